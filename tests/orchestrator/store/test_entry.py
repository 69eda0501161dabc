"""Keys are hexadecimal, since a key is part of a path. Sealed tables and states detect every change."""

from __future__ import annotations

import hashlib
import json
import random

import numpy as np
import pyarrow as pa
import pytest

from orchestrator.errors import StoreError, Unwritable
from orchestrator.store import entry
from orchestrator.store.entry import content, valid_key

KEY = "ab" * 32
TABLE = pa.table({"seed": [1, 2, None], "loss": [0.5, float("nan"), 0.25], "name": ["a", None, "ccc"]})
MAP = pa.map_(pa.string(), pa.int64())
COLUMNS = {
    "int": pa.array([1, 2, None, 4]),
    "float": pa.array([1.0, None, float("nan"), -0.0]),
    "half": pa.array(np.array([1, 2, 3, 4], np.float16)),
    "bool": pa.array([True, None, False, True]),
    "string": pa.array(["x", "", None, "zz"]),
    "large": pa.array(["x", "", None, "zz"], pa.large_string()),
    "binary": pa.array([b"ab", None, b"", b"c"]),
    "fixed binary": pa.array([b"ab", None, b"cd", b"ef"], pa.binary(2)),
    "view": pa.array(["a", None, "longer than twelve bytes", ""], pa.string_view()),
    "list": pa.array([[1, 2], None, [], [3, None]]),
    "large list": pa.array([[1, 2], None, [], [3, None]], pa.large_list(pa.int8())),
    "list view": pa.array([[1, 2], None, [], [3, None]], pa.list_view(pa.int8())),
    "fixed list": pa.array([[1, 2], None, [3, None], [5, 6]], pa.list_(pa.int32(), 2)),
    "struct": pa.array([{"x": 1, "y": "q"}, None, {"x": None, "y": "r"}, {"x": 2, "y": None}]),
    "structs": pa.array([[{"w": b"ab"}], None, [{"w": None}, {"w": b"c"}], []]),
    "map": pa.array([[("k", 1)], None, [("z", None)], []], MAP),
    "dictionary": pa.array(["a", None, "b", "a"]).dictionary_encode(),
    "runs": pa.RunEndEncodedArray.from_arrays([2, 3, 4], ["a", None, "b"]),
    "null": pa.nulls(4),
    "time": pa.array([1, None, 2, 3], pa.timestamp("us")),
    "decimal": pa.array([1, None, 2, 3]).cast(pa.decimal128(20)),
}
STATE_KEY = "ab" * 32
OTHER = "cd" * 32


@pytest.mark.parametrize("key", ["0123abcd", "f" * 64, "9" * 128])
def test_valid_key_is_returned_unchanged(key: str) -> None:
    assert key == valid_key(key)


@pytest.mark.parametrize(
    "key", ["", "abcdef0", "f" * 129, "ABCDEF01", "abcdefg0", "../abcdef01", "abcdef01\n", "abcd ef01", "١٢٣٤٥٦٧٨"]
)
def test_invalid_key_is_refused(key: str) -> None:
    with pytest.raises(StoreError) as caught:
        valid_key(key)
    assert str(caught.value) == f"{key!r} is not a key: keys are 8 or more hexadecimal digits"


def seal_table(table: pa.Table = TABLE, **record: object) -> bytes:
    return b"".join(entry.seal(table, {"key": KEY, "task": "t", "version": 1, **record}))


def passes_check(data: bytes) -> bool:
    try:
        entry.check(memoryview(data))
    except entry.CorruptError:
        return False
    return True


def test_sealed_table_is_read_back_with_its_record() -> None:
    data = pa.py_buffer(seal_table(seconds=0.5))
    entry.check(memoryview(data))
    assert TABLE.schema == entry.unseal(data, KEY).schema
    assert str(TABLE.to_pylist()) == str(entry.unseal(data, KEY).to_pylist())
    assert entry.record_of(data, KEY) == {"key": KEY, "task": "t", "version": 1, "seconds": 0.5}


def test_any_arrow_reader_reads_a_sealed_table() -> None:
    assert str(TABLE.to_pylist()) == str(pa.ipc.open_file(pa.py_buffer(seal_table())).read_all().to_pylist())


def test_every_bit_flip_is_detected() -> None:
    data = bytearray(seal_table())
    missed = []
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        if passes_check(data):
            missed.append(bit)
        data[bit // 8] ^= 1 << bit % 8
    assert missed == []
    assert passes_check(data)


def test_every_truncation_and_extension_is_detected() -> None:
    data = seal_table()
    assert [size for size in range(len(data)) if passes_check(data[:size])] == []
    assert [
        more for more in (b"\0", b"ARROW1", data, bytes(64)) if passes_check(data + more) or passes_check(more + data)
    ] == []


def test_zeroed_part_is_detected() -> None:
    data = seal_table()
    generator = random.Random(1)
    for _ in range(500):
        start = generator.randrange(len(data) - 8)
        end = start + generator.randrange(1, 64)
        blank = data[:start] + bytes(len(data[start:end])) + data[end:]
        assert (blank == data) == passes_check(blank)


def test_file_of_another_key_is_detected() -> None:
    with pytest.raises(entry.CorruptError, match=KEY):
        entry.unseal(pa.py_buffer(seal_table()), "cd" * 32)


def test_marker_inside_values_is_harmless() -> None:
    text = entry.MARKER.decode() + "0" * 64
    data = pa.py_buffer(seal_table(pa.table({"text": [text]}), note=text))
    entry.check(memoryview(data))
    assert [text] == entry.unseal(data, KEY)["text"].to_pylist()
    assert text == entry.record_of(data, KEY)["note"]


def test_schema_containing_the_marker_is_refused() -> None:
    with pytest.raises(ValueError, match="marks a stored file"):
        seal_table(pa.table({entry.MARKER.decode(): [1]}))


def test_record_without_json_form_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        seal_table(loss=float("nan"))
    with pytest.raises(TypeError, match="serializable"):
        seal_table(config=object())


def test_chunks_with_different_dictionaries_are_stored() -> None:
    chunks = pa.chunked_array([pa.array(["a", "b"]).dictionary_encode(), pa.array(["c"]).dictionary_encode()])
    data = pa.py_buffer(seal_table(pa.table({"name": chunks})))
    entry.check(memoryview(data))
    assert entry.unseal(data, KEY)["name"].to_pylist() == ["a", "b", "c"]


def test_tables_without_rows_or_columns_are_stored() -> None:
    for table in (TABLE.slice(0, 0), TABLE.schema.empty_table(), pa.table({})):
        data = pa.py_buffer(seal_table(table))
        entry.check(memoryview(data))
        assert table.schema == entry.unseal(data, KEY).schema
        assert json.loads(pa.ipc.open_file(data).metadata[b"engram.record"])["key"] == KEY


@pytest.mark.parametrize("name", COLUMNS)
def test_content_ignores_chunks_slices_and_encoding(name: str) -> None:
    table = pa.table({"a": COLUMNS[name]})
    expected = content(table)
    assert expected == content(pa.concat_tables([table.slice(0, 1), table.slice(1, 0), table.slice(1, 2), table[3:]]))
    if name != "runs":
        longer = pa.concat_tables([table, table, table]).combine_chunks()
    else:
        longer = table
    assert expected == content(longer.slice(len(longer) - 4))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    assert expected == content(pa.ipc.open_stream(sink.getvalue()).read_all())


@pytest.mark.parametrize("name", [name for name in COLUMNS if name != "null"])
def test_content_depends_on_values_and_their_order(name: str) -> None:
    table = pa.table({"a": COLUMNS[name]})
    other_tables = [table.slice(0, 3), table.slice(1), pa.concat_tables([table.slice(1), table.slice(0, 1)])]
    assert len({content(table), *(content(other_table) for other_table in other_tables)}) == 4


def test_content_depends_on_names_types_and_metadata() -> None:
    plain = pa.table({"a": [1, 2]})
    tables = [
        plain,
        plain.rename_columns(["b"]),
        plain.cast(pa.schema([("a", pa.int32())])),
        plain.cast(pa.schema([pa.field("a", pa.int64(), nullable=False)])),
        plain.replace_schema_metadata({"unit": "nat"}),
        plain.cast(pa.schema([pa.field("a", pa.int64(), metadata={"unit": "nat"})])),
    ]
    assert len(tables) == len({content(table) for table in tables})


def test_content_distinguishes_string_boundaries() -> None:
    assert content(pa.table({"a": ["ab", "c"]})) != content(pa.table({"a": ["a", "bc"]}))
    assert content(pa.table({"a": [[1], [2, 3]]})) != content(pa.table({"a": [[1, 2], [3]]}))
    assert content(pa.table({"a": [None, ""]})) != content(pa.table({"a": ["", None]}))


def test_values_under_nulls_are_ignored() -> None:
    validity = pa.py_buffer(b"\x05")  # the second of three is null
    tables = []
    for hidden in (2, 77):
        tables.append(
            pa.table({"a": pa.Array.from_buffers(pa.int64(), 3, [validity, pa.py_buffer(np.array([1, hidden, 3]))])})
        )
    assert content(tables[0]) == content(tables[1]) == content(pa.table({"a": [1, None, 3]}))


def test_floats_are_compared_by_their_bits() -> None:
    assert content(pa.table({"a": [0.0]})) != content(pa.table({"a": [-0.0]}))
    assert content(pa.table({"a": [float("nan")]})) == content(pa.table({"a": [float("nan")]}))


def test_union_column_is_refused() -> None:
    union = pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, 2])])
    with pytest.raises(TypeError, match="stable form"):
        content(pa.table({"a": union}))


def test_digest_covers_schema_and_values_as_documented() -> None:
    def number(value: int) -> bytes:
        return value.to_bytes(8, "little")

    schema = json.dumps([[["a", "int64", True, []], ["b", "string", True, []]], [["75", "6e"]]]).encode()
    table = pa.table({"a": [1, 258], "b": ["xy", None]}).replace_schema_metadata({"u": "n"})
    parts = [
        *(number(len(schema)), schema),
        *(number(2), number(0), number(1), number(258)),
        *(number(2), number(1), b"\0\1", number(2), b"xy"),
    ]
    assert hashlib.sha256(b"".join(parts)).hexdigest() == content(table)


def test_digests_of_all_column_types_are_unchanged() -> None:
    digests = "".join(content(pa.table({"a": column})) for column in COLUMNS.values())
    assert (
        hashlib.sha256(digests.encode()).hexdigest()
        == "e8cddf56b8341936ee0d96c67e10723884dfaa2fc4e68647b005ca34d3e6d64d"
    )


def sealed_state(data: bytes = b"weights", key: str = STATE_KEY) -> bytes:
    return b"".join(entry.seal_state(key, data))


class Refusing:
    """A store whose states cannot be removed."""

    def remove_state(self, key: str) -> None:
        raise Unwritable(f"cannot write {key}: Read-only file system (EROFS)")


class Removing:
    def __init__(self) -> None:
        self.removed: list[str] = []

    def remove_state(self, key: str) -> None:
        self.removed.append(key)


@pytest.mark.parametrize("data", [b"", b"weights", random.Random(1).randbytes(10_000)])
def test_sealed_state_is_read_back(data: bytes) -> None:
    assert data == entry.unseal_state(STATE_KEY, memoryview(sealed_state(data)))


def test_state_has_the_documented_format() -> None:
    expected = (
        b"engram state 1\n"
        + bytes.fromhex("e80971838b417a5d7661b4513acd9f7ad8416ffb5163a5ff1e20011793ca3341")
        + b"weights"
    )
    assert expected == sealed_state()


def test_changed_cut_or_misplaced_state_is_detected() -> None:
    sound = sealed_state()
    flipped = []
    for i in range(len(sound)):
        for bit in (0, 7):
            flipped.append(bytes(b ^ ((index == i) << bit) for index, b in enumerate(sound)))
    for data in (*flipped, *(sound[:end] for end in range(len(sound))), sound + b"!", sealed_state(key=OTHER)):
        with pytest.raises(entry.CorruptState, match="do not match"):
            entry.unseal_state(STATE_KEY, memoryview(data))


def test_damaged_state_is_removed_and_reported() -> None:
    store = Removing()
    error = entry.remove_damaged_state(store, STATE_KEY, ValueError("its bytes are odd"))  # type: ignore[arg-type]
    assert str(error) == f"state {STATE_KEY} was damaged: its bytes are odd; it was removed"
    assert store.removed == [STATE_KEY]


def test_failed_removal_of_damaged_state_is_reported() -> None:
    error = entry.remove_damaged_state(Refusing(), STATE_KEY, ValueError("odd"))  # type: ignore[arg-type]
    assert "odd; it cannot be removed (cannot write" in str(error)
