"""Records for a model's owner: reproducible bytes, and no other file is overwritten."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tasks.datasets.catalog import load_questions
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.questions.question import Question, QuestionSet
from tasks.datasets.questions.question_files import read_drop, read_squad
from tasks.datasets.records import Records
from tasks.external.text_handout import write_questions, write_records
from tasks.question_answering.predictions import Predictions, answers_table
from tasks.question_answering.question_sets import SETS, DigitRemoval, ProbeQuestions, probe_sets
from tasks.question_answering.scoring import score_answer


def records(*ids: str) -> Records:
    return Records(pa.table({"id": list(ids), "asked": [f"{id_}, é?" for id_ in ids], "at": list(range(len(ids)))}))


RECORD_SETS = [("plain", records("a", "b,1")), ("other", records("c"))]


def test_sets_are_files_listed_in_one_table(tmp_path: Path) -> None:
    listing = write_records(tmp_path / "out", RECORD_SETS)
    assert [tuple(row.values()) for row in listing.to_pylist()] == [
        ("a", "plain", 0),
        ("b,1", "plain", 1),
        ("c", "other", 0),
    ]
    files = {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}
    assert (
        files["plain.jsonl"] == '{"id": "a", "asked": "a, é?", "at": 0}\n{"id": "b,1", "asked": "b,1, é?", "at": 1}\n'
    )
    assert files["records.csv"] == 'id,set,row\na,plain,0\n"b,1",plain,1\nc,other,0\n'
    assert "records in plain.jsonl, other.jsonl:" in files["README.txt"]
    assert "records.csv lists all 3 records" in files["README.txt"]
    write_records(tmp_path / "out", RECORD_SETS)
    write_records(tmp_path / "told", RECORD_SETS, commitment="ab" * 32)
    assert (tmp_path / "told" / "README.txt").read_text().startswith(files["README.txt"] + "\nOur commitment\n")
    assert files == {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        ([], "there are no records to write"),
        ([("records.csv", records("a"))], "set 0 is named 'records.csv'"),
        ([("x", records("a")), ("x", records("b"))], "two sets are named 'x'"),
        ([("x", records("a")), ("y", records("a"))], "sets 'x' and 'y' both have a record 'a'; ids must differ"),
        ([("x", records("a")), ("y", Records(records("b").table.slice(0, 0)))], "set 'y' has no records"),
    ],
)
def test_invalid_sets_of_records_are_refused(tmp_path: Path, sets: list[tuple[str, Records]], message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        write_records(tmp_path / "out", sets)
    assert list(tmp_path.iterdir()) == []


def test_folder_with_other_files_is_kept(tmp_path: Path) -> None:
    write_records(tmp_path, RECORD_SETS)
    with pytest.raises(DatasetError, match=r"is not empty: README\.txt has different content"):
        write_records(tmp_path, RECORD_SETS[:1])
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(DatasetError, match=r"is not empty: thesis\.tex is not one of the files to write"):
        write_records(tmp_path, RECORD_SETS)


def first_questions(name: str, **changes: Any) -> QuestionSet:
    """The first 60 training and 20 validation questions of a set."""
    entire_set = load_questions(Dataset(name))
    return replace(QuestionSet(entire_set.train[:60], entire_set.validation[:20], entire_set.scorer), **changes)


def questions_of_files(folder: Path, questions: QuestionSet) -> dict[str, list[Question]]:
    """The questions of the written files, read as by their owner."""
    write_questions(folder, probe_sets(questions, DigitRemoval()))
    if questions.records:
        files = {}
        for name in SETS:
            files[name] = [Question(row["id"], "", row["context"], row["question"], ()) for row in lines(folder, name)]
        return files
    read_file = read_squad if questions.scorer == "squad" else read_drop
    paths = {name: folder / "questions" / f"{name}.json" for name in SETS}
    files = {}
    for name, path in paths.items():
        files[name] = read_file(path, path.read_bytes(), answered=False)
    return files


def lines(folder: Path, name: str) -> list[dict[str, str]]:
    result = []
    for line in (folder / "questions" / f"{name}.jsonl").read_text().splitlines():
        result.append(json.loads(line))
    return result


@pytest.mark.parametrize(
    ("name", "changes"), [("facts", {}), ("facts-stated", {}), ("facts-stated", {"records": True})]
)
def test_memorising_toy_is_scored_as_such(tmp_path: Path, name: str, changes: dict[str, Any]) -> None:
    questions = first_questions(name, **changes)
    (tmp_path / "predictions").mkdir()
    by_heart = {question.id: question.golds[0][0] for question in questions.train}
    for file, questions_of_file in questions_of_files(tmp_path / "handed", questions).items():
        part = questions.train if SETS[file][0] == "train" else questions.validation
        assert [(item.id, item.question) for item in part] == [(item.id, item.question) for item in questions_of_file]
        # For other questions, the toy copies the digits of the context.
        predictions = {
            item.id: by_heart.get(item.id, "".join(filter(str.isdigit, item.context))) for item in questions_of_file
        }
        (tmp_path / "predictions" / f"{file}.json").write_text(json.dumps(predictions))
    table = answers_table(Predictions(str(tmp_path / "predictions")).pin({}), questions)
    rates = {}
    for file, (split, corrupted) in SETS.items():
        rows = []
        for row in table.to_pylist():
            if (row["split"], row["corrupted"]) == (split, corrupted):
                rows.append(row)
        item = []
        for row in rows:
            item.append(score_answer(questions.scorer, tuple(row["answer"]), questions.by_id[row["id"]].golds))
        rates[file] = float(np.mean([exact for exact, _ in item]))
    assert rates == {"train": 1.0, "train-corrupted": 1.0, "validation": 0.0, "validation-corrupted": 0.0}


@pytest.mark.parametrize("name", ["facts", "facts-stated"])
@pytest.mark.parametrize("records", [False, True])
def test_no_gold_answer_is_written(tmp_path: Path, name: str, records: bool) -> None:
    questions = first_questions(name, records=records)
    secret = []
    for question in questions.train:
        secret.append(replace(question, golds=(("the secret",),)))
    write_questions(tmp_path, probe_sets(replace(questions, train=secret), DigitRemoval()))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 6
    assert not [path for path in files if b"secret" in path.read_bytes()]
    corrupted = next(path for path in files if path.stem == "train-corrupted")
    first = json.loads(corrupted.read_text().splitlines()[0])
    assert questions.train[0].context not in corrupted.read_text()
    assert "questions" not in first


def test_readme_describes_the_files_to_return(tmp_path: Path) -> None:
    listing = write_questions(tmp_path, probe_sets(first_questions("facts"), DigitRemoval()))
    text = (tmp_path / "README.txt").read_text()
    assert "Our commitment" not in text
    for passage in (
        "Do not train the system on these files",
        "    questions/validation-corrupted.json\n",
        "    predictions/train-corrupted.json\n",
        "as in DROP's evaluation: a text, or a list\n",
        '\n    {"facts-0000-0": "1966", ...}\n',
        "questions.csv lists all\n160 questions",
    ):
        assert passage in text
    assert max(map(len, text.splitlines())) <= 120
    assert listing.num_rows == 160
    assert listing.column_names == ["id", "set", "row"]
    assert (tmp_path / "questions.csv").read_text().splitlines()[1] == "facts-0000-0,train,0"


def test_readme_contains_the_commitment(tmp_path: Path) -> None:
    write_questions(tmp_path, probe_sets(first_questions("facts"), DigitRemoval()), commitment="ab" * 32)
    text = (tmp_path / "README.txt").read_text()
    assert text.endswith(f"\n    {'ab' * 32}\n")
    assert "The names and the order of the questions reveal nothing about them" in text
    assert max(map(len, text.splitlines())) <= 120


def test_bytes_are_reproducible_and_other_files_kept(tmp_path: Path) -> None:
    write_questions(tmp_path, probe_sets(first_questions("facts"), DigitRemoval()))
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    write_questions(tmp_path, probe_sets(first_questions("facts"), DigitRemoval()))
    assert files == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(DatasetError, match="is not empty"):
        write_questions(tmp_path, probe_sets(first_questions("facts-stated"), DigitRemoval()))


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        ([], "there are no questions to write"),
        ([("x", ProbeQuestions([], "squad"))], "set 'x' has no questions"),
        ([("x/y", ProbeQuestions([], "squad"))], "set 0 is named 'x/y'"),
    ],
)
def test_sets_without_questions_are_refused(
    tmp_path: Path, sets: list[tuple[str, ProbeQuestions]], message: str
) -> None:
    with pytest.raises(DatasetError, match=message):
        write_questions(tmp_path / "out", sets)
    assert list(tmp_path.iterdir()) == []
