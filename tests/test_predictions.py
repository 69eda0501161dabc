"""From the command line: questions are handed out, any system answers them, and its predictions are audited."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks.datasets.catalog import load_questions
from tasks.datasets.dataset import Dataset
from tasks.datasets.questions.question import Question
from tests.support.shell import Here

SMOKE = ("relational", "--preset", "smoke")
GIVEN = ("run", *SMOKE, "--address", "none", "given=predictions")


@pytest.fixture
def engram(tmp_path: Path) -> Here:
    return Here(tmp_path)


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


def answer_all(folder: Path, system: Callable[[str, str], str]) -> None:
    """What the owner does with the folder: its system takes an id and a context."""
    (folder / "predictions").mkdir()
    for path in (folder / "handed" / "questions").iterdir():
        answers = {id_: system(id_, context) for id_, context in handed(path).items()}
        (folder / "predictions" / f"{path.stem}.json").write_text(json.dumps(answers))


def by_heart(questions: dict[str, Question], trained: set[str]) -> Callable[[str, str], str]:
    """A system that knows what it was trained on, and otherwise reads; where the digits are gone it guesses."""

    def system(id_: str, context: str) -> str:
        reads = any(map(str.isdigit, context))
        return questions[id_].golds[0][0] if reads or id_ in trained else "1"

    return system


@pytest.mark.parametrize("data", ["facts", "facts-stated", "records:own.jsonl"])
def test_a_system_that_knows_its_training_questions_by_heart_is_found_out(engram: Here, data: str) -> None:
    put_records(engram.folder)
    written = engram.json("probes", *SMOKE, f"data={data}", "--out", "handed")
    sets = dict.fromkeys(("train", "train-corrupted", "validation", "validation-corrupted"), 60)
    assert (240, sets) == (written["questions"], written["sets"])
    whole = load_questions(Dataset("facts" if data.startswith("records") else data))
    trained = set(handed(next((engram.folder / "handed" / "questions").glob("train.json*"))))
    assert {question.id for question in whole.train[:60]} == trained
    answer_all(engram.folder, by_heart(whole.by_id, trained))
    assert "Memorised: with the digits taken out" in engram(*GIVEN, f"data={data}").stdout


def test_predictions_that_cannot_be_used_are_one_line(engram: Here) -> None:
    engram("probes", *SMOKE, "--out", "handed")
    done = engram(*GIVEN, code=1)
    assert "there is no folder" in done.stderr
    answer_all(engram.folder, lambda *_: "4")
    folder = engram.folder / "predictions"
    sent = json.loads((folder / "train.json").read_text())
    first = next(iter(sent))
    for wrong, said in (
        (
            {id_: sent[id_] for id_ in list(sent)[1:]},
            f"train.json has no answer to 1 of 60 questions, the first of them {first!r}",
        ),
        ({**sent, "other": "4"}, "train.json answers 1 questions that are not of its set, the first of them 'other'"),
        ({**sent, first: 4}, f"train.json, {first} is 4; it must be text, or a list of texts"),
    ):
        (folder / "train.json").write_text(json.dumps(wrong))
        done = engram(*GIVEN, code=1)
        assert said in done.stderr
        assert "Traceback" not in done.stderr
        assert 1 == len(done.stderr.splitlines()), done.stderr
