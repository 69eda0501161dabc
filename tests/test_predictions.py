"""From the command line: questions are handed out, any system answers them, and its predictions are audited."""

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
    """The questions of `facts` as records of the user's own."""
    whole = load_questions(Dataset("facts"))
    parts = (("train", whole.train[:60]), ("validation", whole.validation[:60]))
    rows = [
        {"id": q.id, "context": q.context, "question": q.question, "answers": [q.golds[0][0]], "split": split}
        for split, questions in parts
        for q in questions
    ]
    (folder / "own.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def handed(path: Path) -> dict[str, str]:
    """The contexts that a file of questions has, by the questions' ids, as its owner's program reads them."""
    if path.suffix == ".jsonl":
        return {row["id"]: row["context"] for row in map(json.loads, path.read_text().splitlines())}
    whole: Any = json.loads(path.read_text())
    if "data" in whole:
        pairs = [(p["context"], q["id"]) for a in whole["data"] for p in a["paragraphs"] for q in p["qas"]]
    else:
        pairs = [(p["passage"], q["query_id"]) for p in whole.values() for q in p["qa_pairs"]]
    return {id_: context for context, id_ in pairs}


def answer_all(folder: Path, system: Callable[[str, str], str]) -> Path:
    """What the owner does with the folder: its system takes an id and a context. The file that is sent back."""
    (folder / "predictions").mkdir()
    (path,) = (folder / "handed" / "questions").iterdir()
    sent = folder / "predictions" / f"{path.stem}.json"
    sent.write_text(json.dumps({id_: system(id_, context) for id_, context in handed(path).items()}))
    return sent


def key_of(folder: Path) -> dict[str, tuple[str, str]]:
    """What each question is by the auditor's key: the set and the id that it has in the data."""
    with (folder / "handed-key.csv").open(newline="") as file:
        return {row["id"]: (row["set"], row["question"]) for row in csv.DictReader(file)}


def by_heart(questions: dict[str, Question], key: dict[str, tuple[str, str]]) -> Callable[[str, str], str]:
    """A system that knows what it was trained on, and otherwise reads; where the digits are gone it guesses."""

    def system(id_: str, context: str) -> str:
        (of, question), reads = key[id_], any(map(str.isdigit, context))
        return questions[question].golds[0][0] if reads or of.startswith("train") else "1"

    return system


SETS = ("train", "train-corrupted", "validation", "validation-corrupted")
SECRET = "secret=0123456789abcdef"


@pytest.mark.parametrize("data", ["facts", "facts-stated", "records:own.jsonl"])
def test_a_system_that_knows_its_training_questions_by_heart_is_found_out(engram: Here, data: str) -> None:
    put_records(engram.folder)
    written = engram.json("probes", *SMOKE, f"data={data}", SECRET, "--out", "handed")
    (name,) = written["sets"]
    assert ({name: 264}, 264) == (written["sets"], written["questions"])
    assert [f"{name}.json{'l' if data.startswith('records') else ''}"] == [
        path.name for path in (engram.folder / "handed" / "questions").iterdir()
    ]
    key = key_of(engram.folder)
    assert {*SETS} == {of for of, _ in key.values()}
    whole = load_questions(Dataset("facts" if data.startswith("records") else data))
    answer_all(engram.folder, by_heart(whole.by_id, key))
    run = engram.json(*GIVEN, f"data={data}", SECRET, "--report")
    report = words(Path(run["report"]))
    assert "Memorised: with digits removed from the contexts" in report
    assert f"key of the handed-out questions begins with {written['commitment'][:16]}" in report
    assert SECRET.removeprefix("secret=") not in Path(run["report"]).read_text()


def test_nothing_that_an_owner_gets_says_which_question_is_which(engram: Here) -> None:
    written = engram.json("probes", *SMOKE, SECRET, "--out", "handed")
    key, folder = key_of(engram.folder), engram.folder / "handed"
    (path,) = (folder / "questions").iterdir()
    assert list(key) == list(handed(path))  # in the order of the ids, which tells nothing of the sets
    halves = [of for of, _ in key.values()][: len(key) // 2]
    assert all(40 < 2 * halves.count(of) < 90 for of in SETS)
    told = (folder / "README.txt").read_text()
    assert written["commitment"] in told
    assert hashlib.sha256((engram.folder / "handed-key.csv").read_bytes()).hexdigest() == written["commitment"]
    for file in (path, folder / "README.txt", folder / "questions.csv"):
        assert not any(secret in file.read_text() for secret in ("facts-0", "validation", "train-corrupted"))
    assert "an owner who tries seeds" in engram("probes", *SMOKE, "--out", "guessable").stdout
    other = engram.json("probes", *SMOKE, "secret=fedcba9876543210", "--out", "other")
    assert other["sets"].keys().isdisjoint(written["sets"])


def test_answers_by_the_ids_of_the_data_are_accepted_as_ever(engram: Here) -> None:
    whole = load_questions(Dataset("facts"))
    (engram.folder / "predictions").mkdir()
    for name in SETS:
        part = whole.train[:60] if name.startswith("train") else whole.validation[:60]
        right = {each.id: each.golds[0][0] if name != "validation-corrupted" else "1" for each in part}
        (engram.folder / "predictions" / f"{name}.json").write_text(json.dumps(right))
    said = engram(*GIVEN, SECRET).stdout
    assert "Memorised: with digits removed from the contexts" in said
    assert "handed-out" not in said


def test_two_answers_to_one_question_are_seen(engram: Here) -> None:
    engram("probes", *SMOKE, SECRET, "--out", "handed")
    sent = answer_all(engram.folder, lambda id_, _: id_[-1])  # another answer in another place
    said = engram(*GIVEN, SECRET).stdout
    assert "Not assessable: " in said
    assert " of 24 repeated questions received two different answers" in " ".join(said.split())
    sent.write_text(json.dumps(dict.fromkeys(json.loads(sent.read_text()), "4")))
    assert "two different answers" not in engram(*GIVEN, SECRET).stdout


def test_missing_folder_and_short_secret_are_refused(engram: Here) -> None:
    assert "there is no folder" in engram(*GIVEN, SECRET, code=1).stderr
    (engram.folder / "predictions").mkdir()
    (engram.folder / "predictions" / "any.json").write_text("{}")
    refused = engram(*GIVEN, "secret=short", code=2).stderr
    assert "secret has 5 characters; expected at least 16" in refused
    assert len(refusals(refused)) == 1
