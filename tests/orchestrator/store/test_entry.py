import json
import random

import pyarrow as pa
import pytest

from orchestrator.store import entry

KEY = "ab" * 32
TABLE = pa.table({"seed": [1, 2, None], "loss": [0.5, float("nan"), 0.25], "name": ["a", None, "ccc"]})


def sealed(table: pa.Table = TABLE, **record: object) -> bytes:
    return b"".join(entry.seal(table, {"key": KEY, "task": "t", "version": 1, **record}))


def passes(data: bytes) -> bool:
    try:
        entry.check(memoryview(data))
    except entry.CorruptError:
        return False
    return True


def test_a_sealed_table_comes_back_with_its_record() -> None:
    data = pa.py_buffer(sealed(seconds=0.5))
    entry.check(memoryview(data))
    assert TABLE.schema == entry.unseal(data, KEY).schema
    assert str(TABLE.to_pylist()) == str(entry.unseal(data, KEY).to_pylist())
    assert {"key": KEY, "task": "t", "version": 1, "seconds": 0.5} == entry.record_of(data, KEY)


def test_any_arrow_reader_reads_a_sealed_table() -> None:
    assert str(TABLE.to_pylist()) == str(pa.ipc.open_file(pa.py_buffer(sealed())).read_all().to_pylist())


def test_every_single_bit_flip_is_found() -> None:
    data = bytearray(sealed())
    missed = []
    for bit in range(8 * len(data)):
        data[bit // 8] ^= 1 << bit % 8
        if passes(data):
            missed.append(bit)
        data[bit // 8] ^= 1 << bit % 8
    assert [] == missed
    assert passes(data)


def test_every_truncation_and_extension_is_found() -> None:
    data = sealed()
    assert [] == [size for size in range(len(data)) if passes(data[:size])]
    assert [] == [more for more in (b"\0", b"ARROW1", data, bytes(64)) if passes(data + more) or passes(more + data)]


def test_a_part_overwritten_with_zeros_is_found() -> None:
    data, generator = sealed(), random.Random(1)
    for _ in range(500):
        start = generator.randrange(len(data) - 8)
        end = start + generator.randrange(1, 64)
        blank = data[:start] + bytes(len(data[start:end])) + data[end:]
        assert (blank == data) == passes(blank)


def test_a_file_of_another_key_is_told_apart() -> None:
    with pytest.raises(entry.CorruptError, match=KEY):
        entry.unseal(pa.py_buffer(sealed()), "cd" * 32)


def test_the_marker_in_values_and_records_does_no_harm() -> None:
    text = entry.MARKER.decode() + "0" * 64
    data = pa.py_buffer(sealed(pa.table({"text": [text]}), note=text))
    entry.check(memoryview(data))
    assert [text] == entry.unseal(data, KEY)["text"].to_pylist()
    assert text == entry.record_of(data, KEY)["note"]


def test_a_schema_that_holds_the_marker_is_refused() -> None:
    with pytest.raises(ValueError, match="marks a stored file"):
        sealed(pa.table({entry.MARKER.decode(): [1]}))


def test_what_json_cannot_hold_is_refused_in_a_record() -> None:
    with pytest.raises(ValueError, match="JSON"):
        sealed(loss=float("nan"))
    with pytest.raises(TypeError, match="serializable"):
        sealed(config=object())


def test_chunks_with_different_dictionaries_are_stored() -> None:
    chunks = pa.chunked_array([pa.array(["a", "b"]).dictionary_encode(), pa.array(["c"]).dictionary_encode()])
    data = pa.py_buffer(sealed(pa.table({"name": chunks})))
    entry.check(memoryview(data))
    assert ["a", "b", "c"] == entry.unseal(data, KEY)["name"].to_pylist()


def test_tables_without_rows_or_columns_are_stored() -> None:
    for table in (TABLE.slice(0, 0), TABLE.schema.empty_table(), pa.table({})):
        data = pa.py_buffer(sealed(table))
        entry.check(memoryview(data))
        assert table.schema == entry.unseal(data, KEY).schema
        assert json.loads(pa.ipc.open_file(data).metadata[b"engram.record"])["key"] == KEY
