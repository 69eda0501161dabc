from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tasks.datasets import catalog
from tasks.datasets.catalog import load, load_questions, pin
from tasks.datasets.dataset import Dataset, DatasetError, UnknownDataset
from tasks.datasets.questions.facts import SCORERS, Facts
from tasks.datasets.questions.question import Question, Scorer
from tasks.datasets.questions.question_files import FORMATS, read_drop, read_squad, write_drop, write_squad
from tasks.question_answering.question_sets import AnswerRemoval

TRAIN = [Question("1", "a", "Ann has 4 hens.", "How many?", (("4",),)), Question("2", "b", "Bo has 5.", "?", (("5",),))]
VALIDATION = [Question("3", "c", "Cy has 6.", "How many?", (("6",), ("6.",)))]


@pytest.fixture(autouse=True)
def _nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_questions", {})
    monkeypatch.delenv("ENGRAM_DATA", raising=False)


def put(folder: Path, form: Scorer) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FORMATS[form].train).write_bytes(FORMATS[form].write(TRAIN))
    (folder / FORMATS[form].validation).write_bytes(FORMATS[form].write(VALIDATION))
    return folder


def ids(dataset: Dataset) -> tuple[list[str], list[str]]:
    questions = load_questions(dataset)
    return [q.id for q in questions.train], [q.id for q in questions.validation]


@pytest.mark.parametrize(
    ("form", "layout"), [("squad", "squad"), ("squad", "SQuAD"), ("drop", "drop/drop_dataset"), ("drop", "drop")]
)
def test_sets_are_found_in_usual_layouts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: Scorer, layout: str
) -> None:
    put(tmp_path / layout, form)
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path))
    pinned = pin(Dataset(form))
    assert ids(pinned) == (["1", "2"], ["3"])
    assert form == load_questions(pinned).scorer
    assert load_questions(pinned) is load_questions(Dataset(form))
    assert load_questions(pinned).by_id["3"].golds == (("6",), ("6.",))


@pytest.mark.parametrize("form", ["squad", "drop"])
def test_own_files_are_folder_or_two_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: Scorer) -> None:
    put(tmp_path / "mine", form)
    monkeypatch.chdir(tmp_path)
    first, second = FORMATS[form].train, tmp_path / "dev.json"
    shutil.copy(tmp_path / "mine" / FORMATS[form].validation, second)
    pinned = pin(Dataset(f"{form}:mine"))
    assert pinned.name == f"{form}:{tmp_path}/mine"
    for name in (f"{form}:mine/{first},{second}", f"{form}:mine/{first},../dev.json"):
        assert pinned.digest == pin(Dataset(name)).digest
    monkeypatch.chdir("/")
    assert ids(pinned) == (["1", "2"], ["3"])


def test_missing_set_names_its_location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for form in FORMATS:
        with pytest.raises(DatasetError, match=f"'{form}' not found: ENGRAM_DATA is not set; .*data/{form}"):
            pin(Dataset(form))
        with pytest.raises(DatasetError, match=f"no {FORMATS[form].train} and .* in {tmp_path}"):
            pin(Dataset(f"{form}:{tmp_path}"))
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path))
    with pytest.raises(DatasetError, match=f"looked in {tmp_path}/squad, {tmp_path}/SQuAD"):
        pin(Dataset("squad"))


def test_questions_are_not_images(tmp_path: Path) -> None:
    name = f"squad:{put(tmp_path, 'squad')}"
    with pytest.raises(UnknownDataset, match="questions have no shape"):
        pin(Dataset(f"{name}#28x28"))
    with pytest.raises(UnknownDataset, match="questions have no shape"):
        pin(Dataset("facts#grey"))
    for dataset_name in (name, "facts"):
        with pytest.raises(DatasetError, match="contains questions, not images"):
            load(pin(Dataset(dataset_name)))
    with pytest.raises(DatasetError, match="'digits' contains images, not questions"):
        load_questions(Dataset("digits"))


def test_embedded_sets_are_available_by_name() -> None:
    for name in SCORERS:
        pinned = pin(Dataset(name))
        assert name == pinned.name
        assert Facts(name).digest() == pinned.digest
        assert len(load_questions(pinned).train) == 3000
        with pytest.raises(DatasetError, match="is not the one that was pinned"):
            load_questions(Dataset(name, "0" * 64))


def test_file_changed_after_pinning_is_refused(tmp_path: Path) -> None:
    pinned = pin(Dataset(f"drop:{put(tmp_path, 'drop')}"))
    (tmp_path / DROP_VALIDATION).write_bytes(write_drop(VALIDATION[:0]))
    with pytest.raises(DatasetError, match="is not the one that was pinned"):
        load_questions(pinned)


def test_id_has_one_question(tmp_path: Path) -> None:
    name = f"squad:{put(tmp_path, 'squad')}"
    (tmp_path / SQUAD_TRAIN).write_bytes(write_squad([TRAIN[0], TRAIN[0], TRAIN[1]]))
    assert ids(Dataset(name)) == (["1", "2"], ["3"])
    (tmp_path / SQUAD_TRAIN).write_bytes(write_squad([TRAIN[0], Question("1", "b", "Bo has 5.", "?", (("5",),))]))
    with pytest.raises(DatasetError, match=f"{SQUAD_TRAIN} has several questions with the id '1'"):
        load_questions(Dataset(name))
    (tmp_path / SQUAD_TRAIN).write_bytes(write_squad(VALIDATION))
    with pytest.raises(DatasetError, match=f"{SQUAD_TRAIN} and .*{SQUAD_VALIDATION} both have the question '3'"):
        load_questions(Dataset(name))
    (tmp_path / SQUAD_TRAIN).write_bytes(json.dumps({"data": []}).encode())
    with pytest.raises(DatasetError, match=f"{SQUAD_TRAIN} has no questions"):
        load_questions(Dataset(name))


DROP_VALIDATION = FORMATS["drop"].validation
SQUAD_TRAIN = FORMATS["squad"].train
SQUAD_VALIDATION = FORMATS["squad"].validation
SQUAD = Path("train-v1.1.json")
CONTEXT = "On February 6, 2016, one day before the Super Bowl, Beyoncé released a new single."


def squad_question(**changes: Any) -> dict[str, Any]:
    answers = [{"answer_start": 3, "text": "February 6, 2016"}]
    return {"answers": answers, "question": "What day?", "id": "56be85543aeaaa14008c9063", **changes}


def squad_file(*qas: Any, **changes: Any) -> bytes:
    paragraph = {"context": CONTEXT, "qas": list(qas)}
    return json.dumps({"data": [{"title": "Beyoncé", "paragraphs": [paragraph]}], "version": "1.1", **changes}).encode()


def test_questions_have_context_and_gold_answers() -> None:
    second = squad_question(
        id="2", answers=[{"answer_start": 3, "text": text} for text in ("February 6", "2016", "February 6")]
    )
    first, second_question = read_squad(SQUAD, squad_file(squad_question(), second))
    assert first.id == "56be85543aeaaa14008c9063"
    assert first.context == CONTEXT
    assert first.question == "What day?"
    assert first.golds == (("February 6, 2016",),)
    assert second_question.golds == (("February 6",), ("2016",))
    assert first.context_id == second_question.context_id


def test_squad_survives_writing_and_reading() -> None:
    questions = list(Facts("facts-stated").questions().train[:50])
    read_questions = read_squad(SQUAD, write_squad(questions))
    assert [(q.id, q.context, q.question, q.golds) for q in questions] == [
        (q.id, q.context, q.question, q.golds) for q in read_questions
    ]
    assert len({q.context_id for q in questions}) == len({q.context_id for q in read_questions})
    (answer,) = json.loads(write_squad(questions))["data"][0]["paragraphs"][0]["qas"][0]["answers"]
    assert questions[0].context[answer["answer_start"] :].startswith(answer["text"])


def test_squad_without_answers_needs_a_flag() -> None:
    questions = list(Facts("facts-stated").questions().train[:50])
    bare = write_squad(questions, answered=False)
    assert {question.golds for question in read_squad(SQUAD, bare, answered=False)} == {()}
    assert [q.id for q in questions] == [q.id for q in read_squad(SQUAD, bare, answered=False)]
    with pytest.raises(DatasetError, match="answers is \\[\\]; it must be a list of at least one answer"):
        read_squad(SQUAD, bare)


def test_answer_outside_its_context_cannot_be_written() -> None:
    (question,) = read_squad(SQUAD, squad_file(squad_question(id="7", answers=[{"answer_start": 0, "text": "March"}])))
    with pytest.raises(DatasetError, match="question '7' has an answer that does not occur in its context"):
        write_squad([question])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "train-v1.1.json is not JSON: "),
        (b'{"data": [], "data": []}', "train-v1.1.json has more than one value for 'data'; 1 names are repeated"),
        (b"\xff\xfe", "train-v1.1.json is not text in UTF-8: "),
        (b"[" * 100_000, "train-v1.1.json is not JSON: "),
        (b"[]", r"train-v1.1.json is \[\]; it must be an object with the field data"),
        (b'{"version": "1.1"}', "train-v1.1.json has no field data; its fields are version"),
        (b'{"data": 4}', "train-v1.1.json, data is 4; it must be a list"),
        (squad_file(3), r"data\[0\].paragraphs\[0\].qas\[0\] is 3; it must be an object with the field answers"),
        (
            squad_file(squad_question(), {"id": "1"}),
            r"data\[0\].paragraphs\[0\].qas\[1\] has no field answers; its fields are id",
        ),
        (squad_file(squad_question(id=7)), r"qas\[0\].id is 7; it must be text that is not blank"),
        (squad_file(squad_question(answers=[], is_impossible=True)), "SQuAD v1.1 has no unanswerable questions"),
        (
            squad_file(squad_question(answers=[{"text": " "}])),
            r'answers\[0\].text is " "; it must be text that is not blank',
        ),
        (squad_file(squad_question(answers={"text": ["4"]})), r"qas\[0\].answers is {.*}; it must be a list"),
    ],
)
def test_invalid_squad_files_are_refused(content: bytes, message: str) -> None:
    with pytest.raises(DatasetError, match=message) as caught:
        read_squad(SQUAD, content)
    assert len(str(caught.value).splitlines()) == 1


DROP = Path("drop_dataset_dev.json")
NO_DATE = {"day": "", "month": "", "year": ""}


def answer(number: Any = "", spans: list[str] | None = None, **date: str) -> dict[str, Any]:
    return {"number": number, "date": {**NO_DATE, **date}, "spans": spans or []}


def pair(answer_fields: Any, *validated: Any, **changes: Any) -> dict[str, Any]:
    id_ = "f37e81fa-ef7b-4583-b671-762fc433faa9"
    return {
        "question": "How many?",
        "answer": answer_fields,
        "query_id": id_,
        "validated_answers": list(validated),
        **changes,
    }


def drop_file(*pairs: Any) -> bytes:
    passages = {"nfl_1184": {"passage": "Kicks of 23 and 40 yards.", "qa_pairs": list(pairs), "wiki_url": ""}}
    return json.dumps(passages).encode()


@pytest.mark.parametrize(
    ("answer_fields", "gold"),
    [
        (answer("4"), ("4",)),
        (answer(4), ("4",)),
        (answer(76.5), ("76.5",)),
        (answer("0"), ("0",)),
        (answer("1,200", ["x"]), ("1,200",)),
        (answer(spans=["Bears"]), ("Bears",)),
        (answer(spans=["Bears", "Jets"], year="1966"), ("Bears", "Jets")),
        (answer(day="17", month="August", year="1966"), ("17 August 1966",)),
        (answer(month="August", year="1966"), ("August 1966",)),
        (answer(" ", ["Bears"]), ("Bears",)),
        ({"spans": ["Bears"]}, ("Bears",)),
        ({"number": "4"}, ("4",)),
        ({"date": {"day": "17", "month": "August", "year": None}}, ("17 August",)),
    ],
)
def test_answer_is_number_spans_or_date(answer_fields: Any, gold: tuple[str, ...]) -> None:
    (question,) = read_drop(DROP, drop_file(pair(answer_fields)))
    assert (gold,) == question.golds
    assert question.context_id == "nfl_1184"
    assert question.context == "Kicks of 23 and 40 yards."


def test_validated_answers_are_further_gold_answers() -> None:
    blank = answer()
    several = pair(answer("4"), answer("4"), answer(spans=["four", "five"]), blank)
    late = pair(blank, answer("17"), query_id="2")
    none = pair(blank, blank, query_id="3")
    bare = {}
    for name, value in pair(answer("5"), query_id="4").items():
        if name != "validated_answers":
            bare[name] = value
    questions = read_drop(DROP, drop_file(several, late, none, bare))
    expected = {"f37e81fa-ef7b-4583-b671-762fc433faa9": (("4",), ("four", "five")), "2": (("17",),), "4": (("5",),)}
    assert expected == {question.id: question.golds for question in questions}


def test_drop_survives_writing_and_reading() -> None:
    golds = ((("4",), ("four",)), (("Bears", "Jets"),), (("17 August 1966",),), (("-5",), ("1,200",)))
    own_questions = []
    for k, gold in enumerate(golds):
        own_questions.append(Question(str(k), "c", "text", "?", gold))
    questions = [*Facts("facts").questions().train[:50], *own_questions]
    assert questions == read_drop(DROP, write_drop(questions))


def test_drop_without_answers_needs_a_flag() -> None:
    questions = list(Facts("facts").questions().train[:50])
    bare = write_drop([replace(q, golds=(("secret",),)) for q in questions], answered=False)
    assert b"secret" not in bare
    assert [replace(q, golds=()) for q in questions] == read_drop(DROP, bare, answered=False)
    assert read_drop(DROP, bare) == []  # questions with blank answers are skipped, as in DROP


def test_questions_of_context_may_be_corrupted_differently() -> None:
    questions = []
    for k in (1, 2, 3):
        questions.append(Question(str(k), "c", "one 1 two 2 three 3", "?", ((str(k),),)))
    corrupted = []
    for question in questions:
        corrupted.append(replace(question, context=AnswerRemoval().corrupt_context(question)))
    read_questions = read_drop(DROP, write_drop(corrupted))
    assert [question.context for question in corrupted] == [question.context for question in read_questions]
    assert len({question.context_id for question in read_questions}) == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "drop_dataset_dev.json is not JSON: "),
        (b'{"p": {}, "p": {}, "q": {}}', "drop_dataset_dev.json has more than one value for 'p'; 1 names are repeated"),
        (b"[]", r"drop_dataset_dev.json is \[\]; it must be an object"),
        (b'{"p": {"qa_pairs": []}}', "drop_dataset_dev.json, p has no field passage; its fields are qa_pairs"),
        (b'{"p": {"passage": "a"}}', "p has no field qa_pairs"),
        (drop_file({"question": "?"}), r"nfl_1184.qa_pairs\[0\] has no field answer"),
        (drop_file(pair(answer([4]))), r"answer.number is \[4\]; it must be text"),
        (drop_file(pair(answer(True))), r"answer.number is true; it must be text"),
        (drop_file(pair({"spans": "Bears"})), 'answer.spans is "Bears"; it must be a list'),
        (drop_file(pair({"text": "4"})), r"answer is {.*}; it must be an object with a number, spans or a date"),
        (drop_file(pair("4")), r'answer is "4"; it must be an object with a number, spans or a date'),
        (drop_file(pair({"date": "1966"})), 'answer.date is "1966"; it must be an object'),
        (drop_file(pair(answer("4"), query_id="")), 'query_id is ""; it must be text that is not blank'),
    ],
)
def test_invalid_drop_files_are_refused(content: bytes, message: str) -> None:
    with pytest.raises(DatasetError, match=message) as caught:
        read_drop(DROP, content)
    assert len(str(caught.value).splitlines()) == 1
