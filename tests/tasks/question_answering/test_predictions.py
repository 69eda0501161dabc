import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tasks.contract.pinnable import Pinnable
from tasks.datasets.catalog import load_questions, pin
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.questions.question import Question, QuestionSet, Scorer
from tasks.question_answering.predictions import (
    Predictions,
    ReadAnswers,
    answers_table,
    parse_predictions,
    read_answers,
)
from tasks.question_answering.question_sets import ANSWERS, SETS, Selection
from tasks.worker.files import FileError

TRAIN = [Question(id_, "c", "Ann has 4.", "?", (("4",),)) for id_ in ("a", "b")]
VALIDATION = [Question("v", "d", "Bo has 5.", "?", (("5",), ("five",)))]
SET = QuestionSet(TRAIN, VALIDATION, "drop")
FILE = Path("train.json")


def put(folder: Path, **changed: Any) -> Predictions:
    """Write predictions `ANSWER of SET`, except for files that are passed as a whole."""
    folder.mkdir(exist_ok=True)
    for name, (split, _) in SETS.items():
        part = TRAIN if split == "train" else VALIDATION
        predictions = changed.get(
            name.replace("-", "_"), {question.id: f"{question.id} of {name}" for question in part}
        )
        (folder / f"{name}.json").write_text(json.dumps(predictions))
    return Predictions(str(folder))


def test_answers_come_from_the_files(tmp_path: Path) -> None:
    table = answers_table(put(tmp_path), SET)
    assert table.schema == ANSWERS
    assert [(row["split"], row["corrupted"], row["id"], row["answer"]) for row in table.to_pylist()] == [
        ("train", False, "a", ["a of train"]),
        ("train", False, "b", ["b of train"]),
        ("train", True, "a", ["a of train-corrupted"]),
        ("train", True, "b", ["b of train-corrupted"]),
        ("validation", False, "v", ["v of validation"]),
        ("validation", True, "v", ["v of validation-corrupted"]),
    ]
    assert 6 == table["epoch"].null_count == table["train_loss"].null_count


def test_task_reads_answers_of_a_data_set(tmp_path: Path) -> None:
    data = pin(Dataset("facts"))
    questions = load_questions(data)
    for name, (split, _) in SETS.items():
        part = questions.train[:3] if split == "train" else questions.validation[:2]
        (tmp_path / f"{name}.json").write_text(json.dumps({question.id: question.golds[0][0] for question in part}))
    predictions = Predictions(str(tmp_path)).pin({})
    table = read_answers(ReadAnswers(data, predictions, Selection(examples=3, held_out=2)), ())
    assert [[*question.golds[0]] for question in questions.train[:3]] == table["answer"].to_pylist()[:3]
    assert table.num_rows == 10


def test_answers_to_unselected_questions_are_ignored(tmp_path: Path) -> None:
    table = answers_table(put(tmp_path), SET, Selection(examples=1))
    assert table["id"].to_pylist() == ["a", "a", "v", "v"]


@pytest.mark.parametrize(
    ("scorer", "prediction", "spans"),
    [
        ("squad", "1966", ("1966",)),
        ("squad", " ", ()),
        ("drop", "4", ("4",)),
        ("drop", "", ()),
        ("drop", ["Bears", "Jets"], ("Bears", "Jets")),
        ("drop", ["Bears", ""], ("Bears", "")),
        ("drop", [], ()),
        ("drop", [""], ()),
        ("drop", {"answer": "4"}, ("4",)),
        ("drop", {"answer": ["Bears", "Jets"], "question_id": "a"}, ("Bears", "Jets")),
    ],
)
def test_answer_has_form_of_its_evaluation(scorer: Scorer, prediction: Any, spans: tuple[str, ...]) -> None:
    assert parse_predictions(FILE, json.dumps({"a": prediction}).encode(), scorer) == {"a": spans}


@pytest.mark.parametrize(
    ("scorer", "prediction", "message"),
    [
        ("squad", [], r"train.json is \[\]; it must be an object"),
        ("squad", {"a": ["1966"]}, r'train.json, a is \["1966"\]; it must be text'),
        ("squad", {"a": 1966}, "train.json, a is 1966; it must be text"),
        ("squad", {"a": None}, "train.json, a is null; it must be text"),
        ("squad", {"a": {"answer": "4"}}, "train.json, a is {.*}; it must be text"),
        ("drop", {"a": 4}, "train.json, a is 4; it must be text, or a list of texts"),
        ("drop", {"a": [4]}, r"train.json, a\[0\] is 4; it must be text"),
        ("drop", {"a": {"value": "4"}}, "train.json, a has no field answer; its fields are value"),
        ("drop", {"a": {"answer": None}}, "train.json, a.answer is null; it must be text, or a list of texts"),
    ],
)
def test_other_answers_are_refused(scorer: Scorer, prediction: Any, message: str) -> None:
    with pytest.raises(DatasetError, match=message) as caught:
        parse_predictions(FILE, json.dumps(prediction).encode(), scorer)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"train": {"b": "x"}}, "train.json has no answer to 1 of 2 questions, the first of them 'a'"),
        ({"train_corrupted": {}}, "train-corrupted.json has no answer to 2 of 2 questions, the first of them 'a'"),
        ({"validation": {"v": "x", "w": "y", "z": ""}}, "validation.json answers 2 questions .* first of them 'w'"),
        ({"validation": {"v": "x", "a": "x"}}, "validation.json answers 1 questions that are not of its set, .*'a'"),
    ],
)
def test_missing_and_unknown_ids_are_counted_and_named(tmp_path: Path, changed: Any, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        answers_table(put(tmp_path, **changed), SET)


def test_two_answers_to_one_id_are_refused(tmp_path: Path) -> None:
    predictions = put(tmp_path)
    (tmp_path / "validation.json").write_text('{"v": "x", "v": "y"}')
    with pytest.raises(DatasetError, match=r"validation\.json has more than one value for 'v'; 1 names are repeated"):
        answers_table(predictions, SET)


def test_digest_depends_only_on_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = put(tmp_path / "one").pin({}), put(tmp_path / "two").pin({})
    assert first.digest == second.digest == first.identity()
    assert Predictions("one", first.digest) == first.named() == Predictions.parse(str(first.named()))
    assert isinstance(first, Pinnable)
    monkeypatch.chdir(tmp_path)
    assert first == Predictions("one").pin({})
    put(tmp_path / "one", train={"a": "other", "b": ""})
    assert first.digest != Predictions("one").pin({}).digest
    for act in (lambda: first.pin({}), first.contents):
        with pytest.raises(FileError, match="are not those that were pinned"):
            act()
    with pytest.raises(ValueError, match="have no digest yet"):
        Predictions("one").identity()


def test_folder_may_be_in_engram_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "numnet")
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path))
    assert str(tmp_path / "numnet") == Predictions("numnet").pin({}).path
    with pytest.raises(FileError, match=f"there is no folder .*/gone nor {tmp_path}/gone; it must hold"):
        Predictions("gone").pin({})


def test_folder_without_a_file_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ENGRAM_DATA", raising=False)
    with pytest.raises(
        FileError, match=r"there is no folder .*gone; it must hold the predictions train.json, train-co"
    ):
        Predictions(str(tmp_path / "gone")).pin({})
    predictions = put(tmp_path)
    (tmp_path / "train-corrupted.json").unlink()
    with pytest.raises(FileError, match=r"there is no file .*train-corrupted\.json"):
        predictions.pin({})
    with pytest.raises(ValueError, match="expected the path of a folder or file of predictions"):
        replace(predictions, path="")
