import hashlib
import json

import numpy as np
import pyarrow as pa
import pytest

from orchestrator.store.entry import content

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


@pytest.mark.parametrize("name", COLUMNS)
def test_content_does_not_depend_on_chunks_slices_or_storage(name: str) -> None:
    table = pa.table({"a": COLUMNS[name]})
    expected = content(table)
    assert expected == content(pa.concat_tables([table.slice(0, 1), table.slice(1, 0), table.slice(1, 2), table[3:]]))
    longer = pa.concat_tables([table, table, table]).combine_chunks() if name != "runs" else table
    assert expected == content(longer.slice(len(longer) - 4))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    assert expected == content(pa.ipc.open_stream(sink.getvalue()).read_all())


@pytest.mark.parametrize("name", [name for name in COLUMNS if name != "null"])
def test_content_sees_values_their_order_and_their_places(name: str) -> None:
    table = pa.table({"a": COLUMNS[name]})
    others = [table.slice(0, 3), table.slice(1), pa.concat_tables([table.slice(1), table.slice(0, 1)])]
    assert 4 == len({content(table), *(content(other) for other in others)})


def test_content_sees_names_types_and_metadata() -> None:
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


def test_content_tells_a_boundary_between_strings() -> None:
    assert content(pa.table({"a": ["ab", "c"]})) != content(pa.table({"a": ["a", "bc"]}))
    assert content(pa.table({"a": [[1], [2, 3]]})) != content(pa.table({"a": [[1, 2], [3]]}))
    assert content(pa.table({"a": [None, ""]})) != content(pa.table({"a": ["", None]}))


def test_what_lies_beneath_a_null_does_not_count() -> None:
    validity = pa.py_buffer(b"\x05")  # the second of three is null
    tables = [
        pa.table({"a": pa.Array.from_buffers(pa.int64(), 3, [validity, pa.py_buffer(np.array([1, hidden, 3]))])})
        for hidden in (2, 77)
    ]
    assert content(tables[0]) == content(tables[1]) == content(pa.table({"a": [1, None, 3]}))


def test_floats_count_by_their_bits() -> None:
    assert content(pa.table({"a": [0.0]})) != content(pa.table({"a": [-0.0]}))
    assert content(pa.table({"a": [float("nan")]})) == content(pa.table({"a": [float("nan")]}))


def test_a_union_is_refused() -> None:
    union = pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, 2])])
    with pytest.raises(TypeError, match="stable form"):
        content(pa.table({"a": union}))


def test_the_digest_is_that_of_schema_and_values_as_described() -> None:
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


def test_the_digest_of_every_type_of_column_is_what_it_has_always_been() -> None:
    digests = "".join(content(pa.table({"a": column})) for column in COLUMNS.values())
    assert (
        "e8cddf56b8341936ee0d96c67e10723884dfaa2fc4e68647b005ca34d3e6d64d"
        == hashlib.sha256(digests.encode()).hexdigest()
    )
