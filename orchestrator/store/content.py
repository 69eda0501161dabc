"""The digest of a table's content: its schema and values, independent of their layout in memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc


class Hasher(Protocol):
    def update(self, data: Any, /) -> None: ...


def content(table: pa.Table) -> str:
    """SHA-256 (hex) of a table's schema and values: equal however it is chunked, sliced, padded or dictionary-filled.

    Floats count by their bits, so a NaN equals itself and -0.0 is not 0.0. Bytes beneath a null do not count.
    Raises TypeError for a type that has no stable form (unions).
    """
    digest = hashlib.sha256()
    fields = [[f.name, str(f.type), f.nullable, _pairs(f.metadata)] for f in table.schema]
    schema = json.dumps([fields, _pairs(table.schema.metadata)]).encode()
    _number(digest, len(schema))
    digest.update(schema)
    for column in table.columns:
        _digest_values(column.type, column.chunks, digest)
    return digest.hexdigest()


def _pairs(metadata: Mapping[bytes, bytes] | None) -> list[list[str]]:
    return sorted([name.hex(), value.hex()] for name, value in (metadata or {}).items())


def _number(digest: Hasher, number: int) -> None:
    digest.update(number.to_bytes(8, "little"))


def _digest_values(kind: pa.DataType, chunks: list[pa.Array], digest: Hasher) -> None:
    """Feed a column's values to the digest: the count, the null mask, the lengths, then the bytes.

    Each pass goes through all chunks before the next begins, so that the chunking has no effect.
    """
    types = pa.types
    plain = _plain(kind)
    if plain is not None:
        return _digest_values(plain[0], [plain[1](chunk) for chunk in chunks], digest)

    _number(digest, sum(map(len, chunks)))
    if types.is_null(kind):
        return None
    nulls = sum(chunk.null_count for chunk in chunks)
    _number(digest, nulls)
    if nulls:
        for chunk in chunks:
            digest.update(_bytes(chunk.is_null().cast(pa.uint8())))
        chunks = [chunk.drop_null() for chunk in chunks]

    if types.is_struct(kind):
        fields = [chunk.flatten() for chunk in chunks]
        for index in range(kind.num_fields):
            _digest_values(kind.field(index).type, [field[index] for field in fields], digest)
    elif _is_list(kind):
        for chunk in chunks:
            digest.update(_bytes(pc.list_value_length(chunk).cast(pa.int64())))
        _digest_values(kind.value_type, [chunk.flatten() for chunk in chunks], digest)
    elif types.is_boolean(kind):
        for chunk in chunks:
            digest.update(_bytes(chunk.cast(pa.uint8())))
    elif _is_text(kind):
        for chunk in chunks:
            digest.update(_bytes(pc.binary_length(chunk).cast(pa.int64())))
        for chunk in chunks:
            digest.update(_text(chunk))
    elif types.is_union(kind):
        raise TypeError(f"a column of type {kind} has no stable form to be digested in")
    else:
        for chunk in chunks:
            digest.update(_bytes(chunk))
    return None


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    views = types.is_list_view(kind) or types.is_large_list_view(kind)
    return bool(views or types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind)) or _is_large_text(kind)


def _is_large_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(kind) or pa.types.is_large_binary(kind))


def _plain(kind: pa.DataType) -> tuple[pa.DataType, Callable[[pa.Array], pa.Array]] | None:
    """The simpler type for the same values, and the conversion to it; None for a type that is plain already."""
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return kind.storage_type, lambda array: array.storage
    if types.is_dictionary(kind):
        return kind.value_type, lambda array: array.dictionary_decode()
    if types.is_run_end_encoded(kind):
        return kind.value_type, pc.run_end_decode
    if types.is_map(kind):
        plain = pa.list_(pa.struct([kind.key_field, kind.item_field]))
    elif types.is_string_view(kind) or types.is_binary_view(kind):
        plain = pa.large_binary()
    else:
        return None
    return plain, lambda array: array.cast(plain)


def _bytes(array: pa.Array) -> memoryview:
    """The bytes of a fixed-width array without nulls, without padding."""
    width = array.type.bit_width // 8
    return _slice(array.buffers()[1], array.offset * width, len(array) * width)


def _text(array: pa.Array) -> memoryview:
    """The characters of a string or binary array without nulls, concatenated."""
    _, offsets, values = array.buffers()
    if len(array) == 0:
        return memoryview(b"")
    width = 8 if _is_large_text(array.type) else 4
    ends = memoryview(offsets).cast("B").cast("q" if width == 8 else "i")
    first, last = ends[array.offset], ends[array.offset + len(array)]
    return _slice(values, first, last - first)


def _slice(buffer: pa.Buffer | None, start: int, size: int) -> memoryview:
    if buffer is None or size == 0:
        return memoryview(b"")
    return memoryview(buffer).cast("B")[start : start + size]
