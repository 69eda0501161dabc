"""File names of a key, and the self-verifying file format.

A result is one Arrow IPC file, readable by any Arrow reader, with a digest over all its bytes. The footer metadata
contains its record (JSON) and the SHA-256 of the whole file. The digest is computed with its own 64 characters set to
zero and checked before any byte is parsed: of 150 single bit flips in an Arrow file, 72 changed the table without an
error from the reader.

A checkpoint file starts with a digest over its bytes and key, followed by the bytes. It only saves time, so a corrupt
one counts as missing.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from orchestrator.errors import Absent, Damaged, StoreError, Unwritable

if TYPE_CHECKING:
    from orchestrator.store.interface import Store

KEY = re.compile(r"[0-9a-f]{8,128}")
DIGEST = "engram.digest"
RECORD = "engram.record"
# JSON escapes line ends, so no record can contain these bytes. A table whose schema contains them is rejected.
MARKER = b"sha256 of this file, with zeros here:\n"
ZEROS = b"0" * 64
MAGIC = b"ARROW1"
LENGTH = 4  # bytes of the footer length, before the closing magic
# The store's folders and their file suffixes.
RESULTS = "results"
FAILURES = "failures"
STATES = "states"
QUARANTINE = "quarantine"
CONFLICTS = "conflicts"
OUTPUTS = "outputs"
JOB_STATES = "job_states"
SUFFIX = ".arrow"
FAILURE_SUFFIX = ".txt"
STATE_SUFFIX = ".state"
STATE_MAGIC = b"engram state 1\n"
STATE_DIGEST = 32  # bytes


def valid_key(key: str) -> str:
    """Return the key. Raises StoreError if it is invalid."""
    if not KEY.fullmatch(key):
        raise StoreError(f"{key!r} is not a key: keys are 8 or more hexadecimal digits")
    return key


def result_name(key: str) -> str:
    """Return the name of a result's file in the store."""
    return f"{RESULTS}/{valid_key(key)[:2]}/{key}{SUFFIX}"


def conflict_name(key: str, content: str) -> str:
    """Return the file name of a conflicting result, which has this content but whose key already had another result."""
    return f"{CONFLICTS}/{key}.{content[:16]}{SUFFIX}"


def failure_name(key: str) -> str:
    """Return the name of the file with a job's traceback."""
    return f"{FAILURES}/{valid_key(key)}{FAILURE_SUFFIX}"


def state_name(key: str) -> str:
    """Return the name of a checkpoint's file."""
    return f"{STATES}/{valid_key(key)}{STATE_SUFFIX}"


def keys_of(names: Iterable[str], suffix: str) -> set[str]:
    """Return the keys of all files with this suffix. Names must not include a folder."""
    return {name.removesuffix(suffix) for name in names if name.endswith(suffix)}


class CorruptError(ValueError):
    """The bytes differ from the sealed ones."""


@contextmanager
def reading_result(store: Store, key: str, set_aside: Callable[[str], None]) -> Iterator[None]:
    """Raise Absent for a missing result, and Damaged for a corrupt one after calling `set_aside(why)`.

    Raises Unwritable if a corrupt result cannot be set aside.
    """
    try:
        yield
    except FileNotFoundError:
        raise Absent(f"no result {key} in {store.location}") from None
    except CorruptError as error:
        try:
            set_aside(str(error))
        except Unwritable as refused:
            raise Unwritable(f"result {key} is damaged ({error}) and cannot be set aside: {refused}") from None
        raise Damaged(f"result {key} was damaged: {error}; it was moved to {store.location}/{QUARANTINE}") from None


def damaged(key: str, error: Exception) -> Damaged:
    """Return the error for a result whose last bytes show that it is corrupt."""
    return Damaged(f"result {key} is damaged: {error}; `engram store verify` sets it aside")


def seal(table: pa.Table, record: Mapping[str, Any]) -> tuple[memoryview, bytes, memoryview]:
    """Return the file's bytes in three consecutive parts. The middle one is the digest.

    Raises ValueError if the schema contains the marker, and TypeError if the record is not JSON.
    """
    metadata = {DIGEST: MARKER + ZEROS, RECORD: json.dumps(record, sort_keys=True, allow_nan=False)}
    sink = pa.BufferOutputStream()
    # One chunk per column, because the file format cannot replace a dictionary between batches.
    with pa.ipc.new_file(sink, table.schema, metadata=metadata) as writer:
        writer.write_table(table.combine_chunks())
    return insert_digest(memoryview(sink.getvalue()))


def insert_digest(data: memoryview, magic: bytes = MAGIC) -> tuple[memoryview, bytes, memoryview]:
    """Replace the zeros after the marker in the footer metadata with the digest. Returns three consecutive parts.

    The file must end with its footer, the footer length and the format's magic, as Arrow and Parquet files do.
    """
    try:
        offset = _place(data, magic)
    except CorruptError:
        raise ValueError(
            f"a field's name or metadata contains {MARKER!r}, which marks a stored file's digest"
        ) from None
    digest = hashlib.sha256(data).hexdigest().encode()
    return data[:offset], digest, data[offset + len(ZEROS) :]


def is_sound(data: bytes, key: str) -> bool:
    """Whether these bytes are an intact result for this key, determined without parsing.

    Equivalent to `check` plus the record's key, but twice as fast: each start of a run verifies 100,000 results.
    """
    footer = _footer_start(data, MAGIC)
    offset = 0
    if footer >= 0 and data.endswith(MAGIC):
        offset = data.find(MARKER, footer) + len(MARKER)
    if offset < len(MARKER) or data.find(MARKER, offset) >= 0:
        return False
    digest = hashlib.sha256(b"".join((data[:offset], ZEROS, data[offset + len(ZEROS) :]))).hexdigest()
    # No record of another job has this key under that name.
    return data.startswith(digest.encode(), offset) and data.find(f'"key": "{key}"'.encode(), footer) >= 0


def check(data: memoryview, magic: bytes = MAGIC) -> None:
    """Raise CorruptError unless every byte equals the sealed one. Parses nothing."""
    offset = _place(data, magic)
    end = offset + len(ZEROS)
    digest = hashlib.sha256(data[:offset])
    digest.update(ZEROS)
    digest.update(data[end:])
    if digest.hexdigest().encode() != data[offset:end]:
        raise CorruptError("its bytes do not match their digest")


def _place(data: memoryview, magic: bytes) -> int:
    """Return the offset of the digest."""
    tail = LENGTH + len(magic)
    if len(data) < tail or data[-len(magic) :] != magic:
        raise CorruptError("it is truncated, or not an Arrow file")
    footer = _footer_start(data, magic)
    if footer < 0:
        raise CorruptError("it is truncated, or its last bytes have changed")
    # Search only the footer, because table values may contain the marker.
    end = bytes(data[footer:])
    if end.count(MARKER) != 1:
        raise CorruptError("it contains no digest of itself")
    offset = footer + end.index(MARKER) + len(MARKER)
    if offset + len(ZEROS) > len(data):
        raise CorruptError("it is truncated, or its last bytes have changed")
    return offset


def _footer_start(data: bytes | memoryview, magic: bytes) -> int:
    tail = LENGTH + len(magic)
    return len(data) - tail - int.from_bytes(data[-tail : -len(magic)], "little")


def record_of(buffer: pa.Buffer | pa.NativeFile, key: str) -> dict[str, Any]:
    """Return the record in a file without checking its bytes. Raises CorruptError if it belongs to another key."""
    return _record(pa.ipc.open_file(buffer), key)


def unseal(buffer: pa.Buffer, key: str) -> pa.Table:
    """Return the table in a checked file without copying the buffer.

    Raises CorruptError if it belongs to another key.
    """
    reader = pa.ipc.open_file(buffer)
    _record(reader, key)
    return reader.read_all()


def _record(reader: pa.ipc.RecordBatchFileReader, key: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(reader.metadata[RECORD.encode()])
    if record["key"] != key:
        raise CorruptError(f"it is the result of {record['key']}")
    return record


class Hasher(Protocol):
    def update(self, data: Any, /) -> None: ...


def content(table: pa.Table) -> str:
    """Return the SHA-256 (hex) of a table's schema and values, independent of chunks, slices, padding and dictionaries.

    Floats are compared bitwise, so a NaN equals itself and -0.0 differs from 0.0. Bytes beneath a null are ignored.
    Raises TypeError for types without a stable form (unions).
    """
    digest = hashlib.sha256()
    fields = []
    for f in table.schema:
        fields.append([f.name, str(f.type), f.nullable, _pairs(f.metadata)])
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

    Each pass covers all chunks before the next begins, so the chunking has no effect.
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
            digest.update(_bytes(_compute().list_value_length(chunk).cast(pa.int64())))
        _digest_values(kind.value_type, [chunk.flatten() for chunk in chunks], digest)
    elif types.is_boolean(kind):
        for chunk in chunks:
            digest.update(_bytes(chunk.cast(pa.uint8())))
    elif _is_text(kind):
        for chunk in chunks:
            digest.update(_bytes(_compute().binary_length(chunk).cast(pa.int64())))
        for chunk in chunks:
            digest.update(_text(chunk))
    elif types.is_union(kind):
        raise TypeError(f"a column of type {kind} has no stable form, so it has no digest")
    else:
        for chunk in chunks:
            digest.update(_bytes(chunk))
    return None


def _compute() -> Any:
    """Return Arrow's compute functions. They are loaded only when needed, because this takes a tenth of a second."""
    import pyarrow.compute

    return pyarrow.compute


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    views = types.is_list_view(kind) or types.is_large_list_view(kind)
    return bool(views or types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind)) or _is_large_text(kind)


def _is_large_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(kind) or pa.types.is_large_binary(kind))


def _plain(kind: pa.DataType) -> tuple[pa.DataType, Callable[[pa.Array], pa.Array]] | None:
    """Return a simpler type for the same values and the conversion to it. Returns None if the type is already plain."""
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return kind.storage_type, lambda array: array.storage
    if types.is_dictionary(kind):
        return kind.value_type, lambda array: array.dictionary_decode()
    if types.is_run_end_encoded(kind):
        return kind.value_type, _compute().run_end_decode
    if types.is_map(kind):
        plain = pa.list_(pa.struct([kind.key_field, kind.item_field]))
    elif types.is_string_view(kind) or types.is_binary_view(kind):
        plain = pa.large_binary()
    else:
        return None
    return plain, lambda array: array.cast(plain)


def _bytes(array: pa.Array) -> memoryview:
    """Return the bytes, without padding, of a fixed-width array without nulls."""
    width = array.type.bit_width // 8
    return _slice(array.buffers()[1], array.offset * width, len(array) * width)


def _text(array: pa.Array) -> memoryview:
    """Return the concatenated characters of a string or binary array without nulls."""
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


class CorruptState(ValueError):
    """The bytes differ from the checkpoint written under this key."""


def seal_state(key: str, data: bytes) -> tuple[bytes, bytes]:
    """Return the file's bytes in two consecutive parts."""
    return STATE_MAGIC + _state_digest(key, data), data


def unseal_state(key: str, file: memoryview) -> bytes:
    """Return the checkpoint. Raises CorruptState if it belongs to another key or any byte has changed."""
    start = len(STATE_MAGIC) + STATE_DIGEST
    data = bytes(file[start:])
    if bytes(file[:start]) != STATE_MAGIC + _state_digest(key, data):
        raise CorruptState("its bytes do not match their digest")
    return data


class StateRemover(Protocol):
    def remove_state(self, key: str, /) -> None: ...


def remove_damaged_state(store: StateRemover, key: str, error: Exception) -> Damaged:
    """Remove a damaged checkpoint and return the error to raise."""
    outcome = "it was removed"
    try:
        store.remove_state(key)
    except (StoreError, OSError) as refused:
        outcome = f"it cannot be removed ({refused})"
    return Damaged(f"state {key} was damaged: {error}; {outcome}")


def _state_digest(key: str, data: bytes) -> bytes:
    return hashlib.sha256(key.encode() + b"\n" + data).digest()
