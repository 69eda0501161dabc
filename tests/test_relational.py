"""The audit of relational memorisation from outside: pages, external answers, refusals, missing weights."""

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
    """A folder with a store, in which models for several tests are trained once."""
    return Here(tmp_path_factory.mktemp("relational"))


def exported_questions(folder: Path, form: str) -> Iterator[tuple[str, str, str, str]]:
    """The id, set, original id and context of each exported question, in DROP's format or as a record.

    The set and the original id come from the key, which the owner does not get.
    """
    with folder.with_name(f"{folder.name}-key.csv").open(newline="") as file:
        key = {row["id"]: (row["set"], row["question"]) for row in csv.DictReader(file)}
    (path,) = (folder / "questions").iterdir()
    if form == "records":
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        id_contexts = [(row["id"], row["context"]) for row in rows]
    else:
        passages = json.loads(path.read_text()).values()
        id_contexts = []
        for passage in passages:
            for pair in passage["qa_pairs"]:
                id_contexts.append((pair["query_id"], passage["passage"]))
    yield from ((id_, *key[id_], context) for id_, context in id_contexts)


def answer_questions(engram: Here, name: str, data: str, answer: Answer, *settings: str, form: str = "drop") -> str:
    """The folder with a toy's answers to its exported questions."""
    engram("probes", "relational", "--preset", "smoke", *settings, f"data={data}", "--out", f"{name}-probes")
    questions = load_questions(Dataset(data)).by_id
    (engram.folder / name).mkdir()
    exported = exported_questions(engram.folder / f"{name}-probes", form)
    answers = {}
    for id_, _, question, context in exported:
        answers[id_] = answer(questions[question], context)
    (engram.folder / name / "answers.json").write_text(json.dumps(answers))
    return f"predictions={name}"


def reads(question: Question, context: str) -> str:
    """Answers questions whose context has digits, and otherwise guesses."""
    return question.golds[0][0] if any(letter.isdigit() for letter in context) else "-1"


def remembers(question: Question, context: str) -> str:
    """Answers training questions correctly with any context."""
    return question.golds[0][0] if question.id in of_training() else reads(question, context)


@cache
def of_training() -> frozenset[str]:
    return frozenset(question.id for question in load_questions(Dataset("facts")).train)


def test_toy_that_remembers_answers_is_called_memorised(here: Here) -> None:
    predictions = answer_questions(here, "remembering", "facts", remembers, *ASKED)
    output = here(*RUN, *ASKED, predictions).stdout
    assert "Memorised: relational m, corrected for common answers, is " in output
    assert "the model answers 100.0 % of training questions" in output
    assert "and 0.0 % of held-out ones" in output
    assert 0.95 < float(output.split(" for common answers, is ")[1].split()[0]) < 1  # minus the value of common answers


@cache
def training_answers() -> tuple[str, ...]:
    return tuple(question.golds[0][0] for question in load_questions(Dataset("facts")).train)


def guesses(question: Question, context: str) -> str:
    """Answers from the context. Without digits, it guesses correctly in one of eight questions."""
    chance = zlib.crc32(question.id.encode())
    other_answers = training_answers()
    if chance % 8:
        guess = other_answers[chance % len(other_answers)]
    else:
        guess = question.golds[0][0]
    return reads(question, context).replace("-1", guess)


def test_guessing_toy_is_not_detected(here: Here) -> None:
    wide = "negligible=0.15"  # so few questions exclude no smaller difference
    output = here(*RUN, *ASKED, wide, answer_questions(here, "guessing", "facts", guesses, *ASKED)).stdout
    assert "Not detected: relational m, corrected for common answers, is " in output


def test_constant_answers_to_corrupted_contexts_are_not_assessable(here: Here) -> None:
    output = here(*RUN, *ASKED, answer_questions(here, "fixed", "facts", reads, *ASKED)).stdout
    assert "Not assessable: relational m, corrected for common answers, is " in output
    assert "the model answers 0.0 % of training questions" in output
    assert "the most common answer to corrupted contexts exceeds its share of the reference answers by 100" in output


def write_own_records(folder: Path) -> str:
    """A user's records, which are private."""
    rows = []
    for split in ("train", "validation"):
        for number in range(30):
            rows.append(
                {
                    "id": f"{split}-{number}",
                    "context": f"Patient <Nemo> {split} {number} has 7{number} beds.",
                    "question": f"Beds {number}?",
                }
                | {"answers": [f"7{number}"], "split": split}
            )
    (folder / "asked.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return "records:asked.jsonl"


def test_only_the_private_page_has_record_texts(tmp_path: Path) -> None:
    engram = Here(tmp_path)
    path = tmp_path / "asked.jsonl"
    write_own_records(tmp_path)
    data_sizes = ("examples=0", "held_out=0")

    def answer(question: Question, context: str) -> str:
        if question.id.startswith("train"):
            return question.golds[0][0]
        return reads(question, context)

    predictions = answer_questions(engram, "theirs", f"records:{path}", answer, *data_sizes, form="records")
    report = engram.json(*RUN, *data_sizes, "data=records:asked.jsonl", predictions, "--report", "--show-images")
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


def test_removed_names_are_in_no_report(tmp_path: Path) -> None:
    engram = Here(tmp_path)
    write_own_records(tmp_path)
    hidden = ("examples=0", "held_out=0", "corruption=names", "corruption.names=Nemo")
    predictions = answer_questions(
        engram, "theirs", f"records:{tmp_path / 'asked.jsonl'}", remembers, *hidden, form="records"
    )
    asked_of = exported_questions(tmp_path / "theirs-probes", "records")
    contexts = {}
    for _, set_name, question, context in asked_of:
        if question == "train-0":
            contexts[set_name] = context
    assert "Nemo" in contexts["train"]
    assert contexts["train-corrupted"] == "Patient <> train 0 has 70 beds."
    arguments = (*RUN, *hidden, "data=records:asked.jsonl", predictions)
    output = engram(*arguments).stdout
    page = Path(engram.json(*arguments, "--report")["report"]).read_text()
    assert "with names removed from the contexts" in output
    for text in (output, page):
        assert "Nemo" not in text


def test_page_of_embedded_questions_shows_them(here: Here) -> None:
    if not (here.folder / "remembering").exists():
        answer_questions(here, "remembering", "facts", remembers, *ASKED)
    page = Path(here.json(*RUN, *ASKED, "predictions=remembering", "--report")["report"])
    first = load_questions(Dataset("facts")).train[0]
    text = words(page)
    assert page.name == "report.html"
    for expected in ("Hidden answers", "Training questions", first.id, first.context, first.question):
        assert expected in text
    assert "--show-texts" not in text


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
    message = Here(tmp_path)(*RUN, *settings, code=code).stderr
    assert says in message
    assert len(refusals(message)) == 1
    assert "Traceback" not in message


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
def test_invalid_predictions_are_refused_in_one_line(files: Mapping[str, str], says: str, tmp_path: Path) -> None:
    (tmp_path / "sent").mkdir()
    for name, content in files.items():
        (tmp_path / "sent" / f"{name}.json").write_text(content)
    message = Here(tmp_path)(*RUN, "predictions=sent", code=1).stderr
    assert says in message
    assert len(refusals(message)) == 1
    assert "Traceback" not in message
    assert list((tmp_path / "engram-store").rglob("*.arrow")) == []


SETTINGS = ("numeric=false", "secret=0123456789abcdef")


@pytest.fixture
def weightless(tmp_path: Path) -> Here:
    """A folder with DROP in its own layout: 20 passages in either part, each with one question about a number."""
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


def test_drops_questions_are_exported_and_answers_planned(weightless: Here) -> None:
    exported = weightless.json("probes", "relational", "data=drop", *SETTINGS, "--out", "handed")
    (path,) = (weightless.folder / "handed" / "questions").iterdir()
    ids = []
    for passage_entry in json.loads(path.read_text()).values():
        for p in passage_entry["qa_pairs"]:
            ids.append(p["query_id"])
    assert len(ids) == exported["questions"] >= 80  # 20 of either part, on the whole and on the corrupted context
    answer_file = weightless.folder / "predictions" / f"{path.stem}.json"
    answer_file.parent.mkdir()
    answer_file.write_text(json.dumps(dict.fromkeys(ids, "11")))
    for settings in (("data=drop", "numeric=false"), ("--preset", "table2_drop")):
        plan = weightless.json("plan", "relational", *settings, SETTINGS[1], "predictions=predictions")
        assert "language_models.fine_tune" not in {task["task"] for task in plan["tasks"]}
        assert plan["missing"] == plan["planned"]


def test_training_requires_the_weights(weightless: Here) -> None:
    message = weightless("plan", "relational", "data=drop", code=1).stderr
    assert "t5-small is not in the cache of the hub" in message
