"""From the command line: questions are exported, any system answers them, and its predictions are audited."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks.datasets.catalog import load_questions
from tasks.datasets.dataset import Dataset
from tasks.datasets.questions.question import Question
from tests.dashboards.pages import words
from tests.support.shell import Here, refusals

SMOKE = ("relational", "--preset", "smoke")
GIVEN = ("run", *SMOKE, "--address", "none", "predictions=predictions")


def put_records(folder: Path) -> None:
    """The questions of `facts` as a user's records."""
    facts = load_questions(Dataset("facts"))
    parts = (("train", facts.train[:60]), ("validation", facts.validation[:60]))
    rows = []
    for split, questions in parts:
        for q in questions:
            rows.append(
                {"id": q.id, "context": q.context, "question": q.question, "answers": [q.golds[0][0]], "split": split}
            )
    (folder / "own.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def contexts_by_id(path: Path) -> dict[str, str]:
    """The contexts in a file of questions, by question id, as an owner's program reads them."""
    if path.suffix == ".jsonl":
        result = {}
        for row in map(json.loads, path.read_text().splitlines()):
            result[row["id"]] = row["context"]
        return result
    document: Any = json.loads(path.read_text())
    if "data" in document:
        pairs = []
        for a in document["data"]:
            for p in a["paragraphs"]:
                for q in p["qas"]:
                    pairs.append((p["context"], q["id"]))
    else:
        pairs = []
        for p in document.values():
            for q in p["qa_pairs"]:
                pairs.append((p["passage"], q["query_id"]))
    return {id_: context for context, id_ in pairs}


def answer_all(folder: Path, system: Callable[[str, str], str]) -> Path:
    """Answer as an owner: the system takes an id and a context. Returns the file that is sent back."""
    (folder / "predictions").mkdir()
    (path,) = (folder / "handed" / "questions").iterdir()
    answer_file = folder / "predictions" / f"{path.stem}.json"
    answer_file.write_text(json.dumps({id_: system(id_, context) for id_, context in contexts_by_id(path).items()}))
    return answer_file


def key_of(folder: Path) -> dict[str, tuple[str, str]]:
    """The meaning of each question by the auditor's key: its set, and its id in the data."""
    with (folder / "handed-key.csv").open(newline="") as file:
        return {row["id"]: (row["set"], row["question"]) for row in csv.DictReader(file)}


def by_heart(questions: dict[str, Question], key: dict[str, tuple[str, str]]) -> Callable[[str, str], str]:
    """A system that knows its training questions and otherwise reads. Without digits, it guesses."""

    def system(id_: str, context: str) -> str:
        (set_name, question), reads = key[id_], any(map(str.isdigit, context))
        return questions[question].golds[0][0] if reads or set_name.startswith("train") else "1"

    return system


SETS = ("train", "train-corrupted", "validation", "validation-corrupted")
SECRET = "secret=0123456789abcdef"


@pytest.mark.parametrize("data", ["facts", "facts-stated", "records:own.jsonl"])
def test_system_that_memorised_its_questions_is_detected(engram: Here, data: str) -> None:
    put_records(engram.folder)
    exported = engram.json("probes", *SMOKE, f"data={data}", SECRET, "--out", "handed")
    (name,) = exported["sets"]
    assert exported["sets"] == {name: 264}
    assert exported["questions"] == 264
    assert [path.name for path in (engram.folder / "handed" / "questions").iterdir()] == [
        f"{name}.json{'l' if data.startswith('records') else ''}"
    ]
    key = key_of(engram.folder)
    assert {set_name for set_name, _ in key.values()} == {*SETS}
    question_set = load_questions(Dataset("facts" if data.startswith("records") else data))
    answer_all(engram.folder, by_heart(question_set.by_id, key))
    run = engram.json(*GIVEN, f"data={data}", SECRET, "--report")
    report = words(Path(run["report"]))
    assert "Memorised: relational m, corrected for common answers, is " in report
    assert f"key of the handed-out questions begins with {exported['commitment'][:16]}" in report
    assert SECRET.removeprefix("secret=") not in Path(run["report"]).read_text()


def test_owners_files_do_not_identify_the_questions(engram: Here) -> None:
    exported = engram.json("probes", *SMOKE, SECRET, "--out", "handed")
    key = key_of(engram.folder)
    folder = engram.folder / "handed"
    (path,) = (folder / "questions").iterdir()
    assert list(key) == list(contexts_by_id(path))  # in the order of the ids, which does not reveal the sets
    halves = [set_name for set_name, _ in key.values()][: len(key) // 2]
    assert all(40 < 2 * halves.count(set_name) < 90 for set_name in SETS)
    readme = (folder / "README.txt").read_text()
    assert exported["commitment"] in readme
    assert hashlib.sha256((engram.folder / "handed-key.csv").read_bytes()).hexdigest() == exported["commitment"]
    for file in (path, folder / "README.txt", folder / "questions.csv"):
        assert not any(secret in file.read_text() for secret in ("facts-0", "validation", "train-corrupted"))
    assert "an owner who tries seeds" in engram("probes", *SMOKE, "--out", "guessable").stdout
    other_export = engram.json("probes", *SMOKE, "secret=fedcba9876543210", "--out", "other")
    assert other_export["sets"].keys().isdisjoint(exported["sets"])


def test_answers_with_original_ids_are_accepted(engram: Here) -> None:
    facts = load_questions(Dataset("facts"))
    (engram.folder / "predictions").mkdir()
    for name in SETS:
        part = facts.train[:60] if name.startswith("train") else facts.validation[:60]
        right = {}
        for question in part:
            right[question.id] = question.golds[0][0] if name != "validation-corrupted" else "1"
        (engram.folder / "predictions" / f"{name}.json").write_text(json.dumps(right))
    output = engram(*GIVEN, SECRET).stdout
    assert "Memorised: relational m, corrected for common answers, is " in output
    assert "handed-out" not in output


def test_two_answers_to_one_question_are_detected(engram: Here) -> None:
    engram("probes", *SMOKE, SECRET, "--out", "handed")
    answer_file = answer_all(engram.folder, lambda id_, _: id_[-1])  # another answer in another place
    output = engram(*GIVEN, SECRET).stdout
    assert "Not assessable: " in output
    assert " of 24 repeated questions received two different answers" in " ".join(output.split())
    answer_file.write_text(json.dumps(dict.fromkeys(json.loads(answer_file.read_text()), "4")))
    assert "two different answers" not in engram(*GIVEN, SECRET).stdout


def test_missing_folder_and_short_secret_are_refused(engram: Here) -> None:
    assert "there is no folder" in engram(*GIVEN, SECRET, code=1).stderr
    (engram.folder / "predictions").mkdir()
    (engram.folder / "predictions" / "any.json").write_text("{}")
    refused = engram(*GIVEN, "secret=short", code=2).stderr
    assert "secret has 5 characters; expected at least 16" in refused
    assert len(refusals(refused)) == 1
