"""Records for a model's owner: the same bytes every time, and nothing of anybody's is overwritten."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tasks.datasets.dataset import DatasetError
from tasks.datasets.records import Records
from tasks.external import record_handout


def records(*ids: str) -> Records:
    return Records(pa.table({"id": list(ids), "asked": [f"{each}, é?" for each in ids], "at": list(range(len(ids)))}))


SETS = [("plain", records("a", "b,1")), ("other", records("c"))]


def test_every_set_is_a_file_of_lines_and_the_list_names_all(tmp_path: Path) -> None:
    written = record_handout.write(tmp_path / "out", SETS)
    assert [("a", "plain", 0), ("b,1", "plain", 1), ("c", "other", 0)] == [
        tuple(row.values()) for row in written.to_pylist()
    ]
    files = {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}
    assert (
        '{"id": "a", "asked": "a, é?", "at": 0}\n{"id": "b,1", "asked": "b,1, é?", "at": 1}\n' == files["plain.jsonl"]
    )
    assert 'id,set,row\na,plain,0\n"b,1",plain,1\nc,other,0\n' == files["records.csv"]
    assert "records of plain.jsonl, other.jsonl:" in files["README.txt"]
    assert "records.csv lists all 3 of them" in files["README.txt"]
    record_handout.write(tmp_path / "out", SETS)
    record_handout.write(tmp_path / "told", SETS, commitment="ab" * 32)
    assert (tmp_path / "told" / "README.txt").read_text().startswith(files["README.txt"] + "\nWhat we promise\n")
    assert files == {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        ([], "there are no records to write"),
        ([("records.csv", records("a"))], "set 0 is called 'records.csv'"),
        ([("x", records("a")), ("x", records("b"))], "two sets are called 'x'"),
        ([("x", records("a")), ("y", records("a"))], "sets 'x' and 'y' have a record 'a' each; ids must differ"),
        ([("x", records("a")), ("y", Records(records("b").table.slice(0, 0)))], "set 'y' has no records"),
    ],
)
def test_sets_that_cannot_be_told_apart_are_refused(tmp_path: Path, sets: list[tuple[str, Records]], said: str) -> None:
    with pytest.raises(DatasetError, match=said):
        record_handout.write(tmp_path / "out", sets)
    assert [] == list(tmp_path.iterdir())


def test_a_folder_with_anything_else_in_it_is_left_alone(tmp_path: Path) -> None:
    record_handout.write(tmp_path, SETS)
    with pytest.raises(DatasetError, match=r"is not empty: README\.txt is not what would be written"):
        record_handout.write(tmp_path, SETS[:1])
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(DatasetError, match=r"is not empty: thesis\.tex does not belong there"):
        record_handout.write(tmp_path, SETS)
