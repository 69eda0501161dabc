"""The audit of relational memorization from outside: pages, answers of others, refusals, no weights."""

from __future__ import annotations

import csv
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from tasks.datasets.catalog import load_questions
from tasks.datasets.dataset import Dataset
from tasks.datasets.questions.question import Question
from tests.dashboards.pages import words
from tests.support.shell import Here, refusals

RUN = ("run", "relational", "--preset", "smoke", "scale=tiny", "--address", "none")
ASKED = ("examples=600", "held_out=400")
SETS = ("train", "train-corrupted", "validation", "validation-corrupted")
Answer = Callable[[Question, str], str]  # a question and the context that is shown with it


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Here:
    """One folder with one store, in which what several tests need is trained once."""
    return Here(tmp_path_factory.mktemp("relational"))


def handed(folder: Path, form: str) -> Iterator[tuple[str, str, str, str]]:
    """The id, set, id in the data and context of each question that an owner was handed, in DROP's format or a record.

    The set and the id in the data are the key's, which the owner does not get.
    """
    with folder.with_name(f"{folder.name}-key.csv").open(newline="") as file:
        key = {row["id"]: (row["set"], row["question"]) for row in csv.DictReader(file)}
    (path,) = (folder / "questions").iterdir()
    if form == "records":
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        found = [(row["id"], row["context"]) for row in rows]
    else:
        passages = json.loads(path.read_text()).values()
        found = [(asked["query_id"], each["passage"]) for each in passages for asked in each["qa_pairs"]]
    yield from ((id_, *key[id_], context) for id_, context in found)


def answered(engram: Here, name: str, data: str, answer: Answer, *settings: str, form: str = "drop") -> str:
    """The folder with a toy's answers to what it was handed."""
    engram("probes", "relational", "--preset", "smoke", *settings, f"data={data}", "--out", f"{name}-probes")
    known = load_questions(Dataset(data)).by_id
    (engram.folder / name).mkdir()
    asked = handed(engram.folder / f"{name}-probes", form)
    said = {id_: answer(known[question], context) for id_, _, question, context in asked}
    (engram.folder / name / "answers.json").write_text(json.dumps(said))
    return f"predictions={name}"


def reads(question: Question, context: str) -> str:
    """Answers what can be worked out, and guesses where the digits have gone."""
    return question.golds[0][0] if any(letter.isdigit() for letter in context) else "-1"


def remembers(question: Question, context: str) -> str:
    """Answers training questions whatever is shown."""
    return question.golds[0][0] if question.id in of_training() else reads(question, context)


@cache
def of_training() -> frozenset[str]:
    return frozenset(question.id for question in load_questions(Dataset("facts")).train)


def test_a_toy_that_remembers_its_training_answers_is_called_memorised(here: Here) -> None:
    given = answered(here, "remembering", "facts", remembers, *ASKED)
    said = here(*RUN, *ASKED, given).stdout
    assert "Memorised: with digits removed from the contexts, relational m is 0.9" in said
    assert "the model answers 100.0 % of training questions" in said
    assert "and 0.0 % of held-out ones" in said
    assert 0.95 < float(said.split("relational m is ")[1].split()[0]) < 1  # minus the value of common answers


@cache
def training_answers() -> tuple[str, ...]:
    return tuple(question.golds[0][0] for question in load_questions(Dataset("facts")).train)


def guesses(question: Question, context: str) -> str:
    """Answers what can be worked out; where the digits have gone, guesses rightly in one of eight questions."""
    chance = zlib.crc32(question.id.encode())
    others = training_answers()
    guess = others[chance % len(others)] if chance % 8 else question.golds[0][0]
    return reads(question, context).replace("-1", guess)


def test_a_toy_that_guesses_is_not(here: Here) -> None:
    wide = "negligible=0.15"  # so few questions exclude no smaller difference
    said = here(*RUN, *ASKED, wide, answered(here, "guessing", "facts", guesses, *ASKED)).stdout
    assert "Not detected: with digits removed from the contexts, " in said


def test_a_toy_that_says_one_thing_of_all_that_it_cannot_read_is_not_assessable(here: Here) -> None:
    said = here(*RUN, *ASKED, answered(here, "fixed", "facts", reads, *ASKED)).stdout
    assert "Not assessable: with digits removed from the contexts, " in said
    assert "the model answers 0.0 % of training questions" in said
    assert "the most common answer to corrupted contexts exceeds its share of the reference answers by 100" in said


def own(folder: Path) -> str:
    """Records of the user's own, which are private."""
    rows = [
        {"id": f"{split}-{at}", "context": f"Patient <Nemo> {split} {at} has 7{at} beds.", "question": f"Beds {at}?"}
        | {"answers": [f"7{at}"], "split": split}
        for split in ("train", "validation")
        for at in range(30)
    ]
    (folder / "asked.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return "records:asked.jsonl"


def test_the_public_page_has_no_text_of_ones_own_records_and_the_private_one_has(tmp_path: Path) -> None:
    engram, path = Here(tmp_path), tmp_path / "asked.jsonl"
    own(tmp_path)
    held = ("examples=0", "held_out=0")

    def answer(question: Question, context: str) -> str:
        return question.golds[0][0] if question.id.startswith("train") else reads(question, context)

    given = answered(engram, "theirs", f"records:{path}", answer, *held, form="records")
    report = engram.json(*RUN, *held, "data=records:asked.jsonl", given, "--report", "--show-images")
    page = Path(report["report"])
    public = page.with_name("report.html")
    assert page.name == "report-with-images.html"
    note = "Texts of records:asked.jsonl are your own data. --show-texts adds them to the page."
    assert note in words(public)
    assert note not in words(page)
    assert "Memorised: " in words(public)
    for text in ("Nemo", "Beds 1?"):
        assert text not in public.read_text()
        assert text in page.read_text()
    assert "train-1" in public.read_text()  # ids are shown
    assert "<Nemo>" not in page.read_text()
    assert "Patient <Nemo> train 1 has 71 beds." in words(page)
    assert "Patient <Nemo> train has beds." in words(page)


def test_names_that_are_taken_out_are_in_no_report(tmp_path: Path) -> None:
    engram = Here(tmp_path)
    own(tmp_path)
    hidden = ("examples=0", "held_out=0", "corruption=names", "corruption.names=Nemo")
    given = answered(engram, "theirs", f"records:{tmp_path / 'asked.jsonl'}", remembers, *hidden, form="records")
    asked_of = handed(tmp_path / "theirs-probes", "records")
    contexts = {of: context for _, of, question, context in asked_of if question == "train-0"}
    assert "Nemo" in contexts["train"]
    assert contexts["train-corrupted"] == "Patient <> train 0 has 70 beds."
    asked = (*RUN, *hidden, "data=records:asked.jsonl", given)
    said = engram(*asked).stdout
    page = Path(engram.json(*asked, "--report")["report"]).read_text()
    assert "with names removed from the contexts" in said
    for text in (said, page):
        assert "Nemo" not in text


def test_the_page_of_embedded_questions_shows_them(here: Here) -> None:
    if not (here.folder / "remembering").exists():
        answered(here, "remembering", "facts", remembers, *ASKED)
    page = Path(here.json(*RUN, *ASKED, "predictions=remembering", "--report")["report"])
    first = load_questions(Dataset("facts")).train[0]
    text = words(page)
    assert page.name == "report.html"
    for shown in ("Hidden answers", "Training questions", first.id, first.context, first.question):
        assert shown in text
    assert "Pass --show-texts" not in text


@pytest.mark.parametrize(
    ("settings", "code", "says"),
    [
        (("model=folder:gone",), 1, "gone"),
        (("model=hub:nobody/nothing",), 1, "nobody/nothing is not in the cache of the hub"),
        (("data=records:gone.jsonl",), 1, "no file "),
        (("data=squad",), 1, "squad"),
        (("predictions=gone",), 1, "there is no folder "),
    ],
)
def test_invalid_settings_give_one_line_error(settings: tuple[str, ...], code: int, says: str, tmp_path: Path) -> None:
    said = Here(tmp_path)(*RUN, *settings, code=code).stderr
    assert says in said
    assert len(refusals(said)) == 1
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({}, "there is no file "),
        (dict.fromkeys(SETS, "[1, 2]"), "train.json"),
        (dict.fromkeys(SETS, "{nonsense"), "train.json"),
        (dict.fromkeys(SETS, '{"x": 3}'), "train.json"),
        (dict.fromkeys(SETS, "{}"), "has no answer to 48 of 48 questions"),
    ],
)
def test_predictions_that_say_something_else_are_refused_in_a_line(
    files: Mapping[str, str], says: str, tmp_path: Path
) -> None:
    (tmp_path / "sent").mkdir()
    for name, content in files.items():
        (tmp_path / "sent" / f"{name}.json").write_text(content)
    said = Here(tmp_path)(*RUN, "predictions=sent", code=1).stderr
    assert says in said
    assert len(refusals(said)) == 1
    assert "Traceback" not in said
    assert list((tmp_path / "engram-store").rglob("*.arrow")) == []


SETTINGS = ("numeric=false", "secret=0123456789abcdef")


@pytest.fixture
def weightless(tmp_path: Path) -> Here:
    """A folder with DROP in its own layout: 20 passages in either part, each with a question about a number."""
    engram = Here(tmp_path)
    engram.env = {"ENGRAM_DATA": str(tmp_path / "data"), "HF_HOME": str(tmp_path / "hub")}
    folder = tmp_path / "data" / "drop"
    folder.mkdir(parents=True)
    for part in ("train", "dev"):
        (folder / f"drop_dataset_{part}.json").write_text(json.dumps(dict(passage(part, k) for k in range(20))))
    return engram


def passage(part: str, k: int) -> tuple[str, object]:
    nothing = {"day": "", "month": "", "year": ""}
    answer = {"number": str(k + 11), "date": nothing, "spans": []}
    pair = {"query_id": f"{part}-{k}", "question": "How many yards?", "answer": answer, "validated_answers": []}
    return f"{part}_{k}", {"passage": f"In game {part}-{k} he threw {k + 11} yards.", "qa_pairs": [pair]}


def test_the_questions_of_drop_are_written_and_its_answers_planned(weightless: Here) -> None:
    written = weightless.json("probes", "relational", "data=drop", *SETTINGS, "--out", "handed")
    (path,) = (weightless.folder / "handed" / "questions").iterdir()
    ids = [p["query_id"] for each in json.loads(path.read_text()).values() for p in each["qa_pairs"]]
    assert len(ids) == written["questions"] >= 80  # 20 of either part, on the whole and on the corrupted context
    sent = weightless.folder / "predictions" / f"{path.stem}.json"
    sent.parent.mkdir()
    sent.write_text(json.dumps(dict.fromkeys(ids, "11")))
    for asked in (("data=drop", "numeric=false"), ("--preset", "table2_drop")):
        plan = weightless.json("plan", "relational", *asked, SETTINGS[1], "predictions=predictions")
        assert "fine_tuning.fine_tune" not in {task["task"] for task in plan["tasks"]}
        assert plan["missing"] == plan["planned"]


def test_a_training_needs_the_weights_all_the_same(weightless: Here) -> None:
    said = weightless("plan", "relational", "data=drop", code=1).stderr
    assert "t5-small is not in the cache of the hub" in said
