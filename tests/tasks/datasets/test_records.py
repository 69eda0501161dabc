"""Records with ids: declared fields, pinning by content, and one-line errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.datasets.catalog import is_embedded, load, load_records, pin
from tasks.datasets.dataset import Dataset, DatasetError, UnknownDataset
from tasks.datasets.records import Records

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        pa.field("question", pa.string(), nullable=False),
        ("answers", pa.struct([("text", pa.list_(pa.string())), ("start", pa.list_(pa.int32()))])),
    ]
)
LINES = """\
{"id": "56be", "question": "Who sang?", "answers": {"text": ["B\\u00e9la"], "start": [7]}, "title": "passed over"}

{"id": "56bf", "question": "When?"}
"""
ROWS: list[dict[str, Any]] = [
    {"id": "56be", "question": "Who sang?", "answers": {"text": ["Béla"], "start": [7]}},
    {"id": "56bf", "question": "When?", "answers": None},
]


def write_records(folder: Path, text: str = LINES, name: str = "squad.jsonl") -> Dataset:
    (folder / name).write_text(text)
    return Dataset(f"records:{folder / name}")


def test_lines_are_read_by_declared_fields(tmp_path: Path) -> None:
    dataset = pin(write_records(tmp_path))
    loaded = load_records(dataset, SCHEMA)
    assert list(loaded.as_dicts()) == ROWS
    assert loaded.ids == ["56be", "56bf"]
    assert len(loaded) == 2
    assert loaded.table.schema == SCHEMA
    assert loaded is load_records(dataset, SCHEMA)
    only_ids = load_records(dataset, pa.schema([("id", pa.string())]))
    assert list(only_ids.as_dicts()) == [{"id": "56be"}, {"id": "56bf"}]
    assert loaded.rows(np.array([1])).ids == ["56bf"]


def test_parquet_contains_the_same_records(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(ROWS, SCHEMA), tmp_path / "squad.parquet")
    loaded = load_records(pin(Dataset(f"records:{tmp_path / 'squad.parquet'}")), SCHEMA)
    assert list(loaded.as_dicts()) == ROWS
    assert loaded.table.schema == SCHEMA


def test_digest_covers_content_but_not_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = pin(write_records(tmp_path))
    assert first.digest == pin(write_records(tmp_path, name="other.jsonl")).digest
    assert first.digest != pin(write_records(tmp_path, LINES + "\n", "third.jsonl")).digest
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path))
    assert first == pin(Dataset("records:squad.jsonl"))
    assert not is_embedded(first.name)
    write_records(tmp_path, LINES.replace("When", "Where"))
    with pytest.raises(DatasetError, match="is not the one that was pinned"):
        load_records(Dataset(first.name, first.digest), pa.schema([("id", pa.string()), ("title", pa.string())]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"squad.jsonl, line 1 is not JSON: "),
        ('{"id": ' + "[" * 100_000, r"squad.jsonl, line 1 is nested too deeply"),
        (LINES + "[1]", r'squad.jsonl, line 4 is not an object; write each record as {"id": ..., ...}'),
        (LINES + '{"question": "?"}', "squad.jsonl, line 4 has no id"),
        (LINES + '{"id": 4, "question": "?"}', "squad.jsonl, line 4: id is 4; it must be string"),
        (LINES + '{"id": "c"}', "squad.jsonl: record 2 has no question"),
        (LINES + '{"id": "56bf", "question": "?"}', "squad.jsonl: several records have the id '56bf'"),
        (LINES + '{"id": "c", "question": "?", "answers": []}', "its records do not have the declared fields: "),
        (LINES + '{"id": "c", "question": "?", "answers": 3}', "line 4: answers is 3; it must be struct"),
        ("\n", "squad.jsonl has no records"),
    ],
)
def test_invalid_line_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DatasetError) as caught:
        load_records(write_records(tmp_path, text), SCHEMA)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_of_other_kinds_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": ["a"]}), tmp_path / "squad.parquet")
    with pytest.raises(DatasetError, match=r"squad\.parquet has the columns id and no question"):
        load_records(Dataset(f"records:{tmp_path / 'squad.parquet'}"), SCHEMA)
    with pytest.raises(DatasetError, match=r"is not a file of records; it must end in \.jsonl or \.parquet"):
        pin(write_records(tmp_path, "", "squad.txt"))
    with pytest.raises(DatasetError, match=r"no file .*gone\.jsonl"):
        pin(Dataset(f"records:{tmp_path / 'gone.jsonl'}"))
    with pytest.raises(UnknownDataset, match="has the option #rgb; records have no shape"):
        pin(Dataset(write_records(tmp_path).name + "#rgb"))


def test_images_are_no_records_nor_records_images(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="'digits' contains images, not records; use records:FILE"):
        load_records(Dataset("digits"), SCHEMA)
    with pytest.raises(DatasetError, match="contains records, not images"):
        load(pin(write_records(tmp_path)))


@pytest.mark.parametrize(
    "fields", [[("question", pa.string())], [("id", pa.int64())], [("id", pa.string()), ("at", pa.timestamp("s"))]]
)
def test_fields_need_an_id_and_json_types(fields: list[tuple[str, pa.DataType]]) -> None:
    with pytest.raises(DatasetError, match=r"expected a text field id|the field at of records is timestamp"):
        Records(pa.schema(fields).empty_table())
