import json
import shutil
from pathlib import Path

import pytest

from tasks.datasets import catalog
from tasks.datasets.catalog import load, load_questions, pin
from tasks.datasets.dataset import Dataset, DatasetError, UnknownDataset
from tasks.datasets.questions import drop, squad
from tasks.datasets.questions.facts import SCORERS, Facts
from tasks.datasets.questions.question import Question, Scorer
from tasks.datasets.questions.question_files import FORMATS

TRAIN = [Question("1", "a", "Ann has 4 hens.", "How many?", (("4",),)), Question("2", "b", "Bo has 5.", "?", (("5",),))]
VALIDATION = [Question("3", "c", "Cy has 6.", "How many?", (("6",), ("6.",)))]


@pytest.fixture(autouse=True)
def _nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_questions", {})
    monkeypatch.delenv("ENGRAM_DATA", raising=False)


def put(folder: Path, form: Scorer) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FORMATS[form].TRAIN).write_bytes(FORMATS[form].write_questions(TRAIN))
    (folder / FORMATS[form].VALIDATION).write_bytes(FORMATS[form].write_questions(VALIDATION))
    return folder


def ids(dataset: Dataset) -> tuple[list[str], list[str]]:
    questions = load_questions(dataset)
    return [q.id for q in questions.train], [q.id for q in questions.validation]


@pytest.mark.parametrize(
    ("form", "layout"), [("squad", "squad"), ("squad", "SQuAD"), ("drop", "drop/drop_dataset"), ("drop", "drop")]
)
def test_both_sets_are_found_in_their_usual_layouts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: Scorer, layout: str
) -> None:
    put(tmp_path / layout, form)
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path))
    pinned = pin(Dataset(form))
    assert (["1", "2"], ["3"]) == ids(pinned)
    assert form == load_questions(pinned).scorer
    assert load_questions(pinned) is load_questions(Dataset(form))
    assert (("6",), ("6.",)) == load_questions(pinned).by_id["3"].golds


@pytest.mark.parametrize("form", ["squad", "drop"])
def test_files_of_ones_own_are_a_folder_or_two_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: Scorer
) -> None:
    put(tmp_path / "mine", form)
    monkeypatch.chdir(tmp_path)
    first, second = FORMATS[form].TRAIN, tmp_path / "dev.json"
    shutil.copy(tmp_path / "mine" / FORMATS[form].VALIDATION, second)
    whole = pin(Dataset(f"{form}:mine"))
    assert f"{form}:{tmp_path}/mine" == whole.name
    for name in (f"{form}:mine/{first},{second}", f"{form}:mine/{first},../dev.json"):
        assert whole.digest == pin(Dataset(name)).digest
    monkeypatch.chdir("/")
    assert (["1", "2"], ["3"]) == ids(whole)


def test_a_set_that_is_not_there_says_where_it_belongs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for form in FORMATS:
        with pytest.raises(DatasetError, match=f"'{form}' not found: ENGRAM_DATA is not set; .*data/{form}"):
            pin(Dataset(form))
        with pytest.raises(DatasetError, match=f"no {FORMATS[form].TRAIN} and .* in {tmp_path}"):
            pin(Dataset(f"{form}:{tmp_path}"))
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path))
    with pytest.raises(DatasetError, match=f"looked in {tmp_path}/squad, {tmp_path}/SQuAD"):
        pin(Dataset("squad"))


def test_questions_have_no_shape_and_are_no_images(tmp_path: Path) -> None:
    name = f"squad:{put(tmp_path, 'squad')}"
    with pytest.raises(UnknownDataset, match="questions have no shape"):
        pin(Dataset(f"{name}#28x28"))
    with pytest.raises(UnknownDataset, match="questions have no shape"):
        pin(Dataset("facts#grey"))
    for each in (name, "facts"):
        with pytest.raises(DatasetError, match="holds questions and no images"):
            load(pin(Dataset(each)))
    with pytest.raises(DatasetError, match="'digits' holds images and no questions"):
        load_questions(Dataset("digits"))


def test_the_embedded_sets_are_there_by_name() -> None:
    for name in SCORERS:
        pinned = pin(Dataset(name))
        assert (name, Facts(name).digest()) == (pinned.name, pinned.digest)
        assert 3000 == len(load_questions(pinned).train)
        with pytest.raises(DatasetError, match="is not the one that was pinned"):
            load_questions(Dataset(name, "0" * 64))


def test_a_file_that_changed_after_pinning_is_refused(tmp_path: Path) -> None:
    pinned = pin(Dataset(f"drop:{put(tmp_path, 'drop')}"))
    (tmp_path / drop.VALIDATION).write_bytes(drop.write_questions(VALIDATION[:0]))
    with pytest.raises(DatasetError, match="is not the one that was pinned"):
        load_questions(pinned)


def test_an_id_has_one_question(tmp_path: Path) -> None:
    name = f"squad:{put(tmp_path, 'squad')}"
    (tmp_path / squad.TRAIN).write_bytes(squad.write_questions([TRAIN[0], TRAIN[0], TRAIN[1]]))
    assert (["1", "2"], ["3"]) == ids(Dataset(name))
    (tmp_path / squad.TRAIN).write_bytes(
        squad.write_questions([TRAIN[0], Question("1", "b", "Bo has 5.", "?", (("5",),))])
    )
    with pytest.raises(DatasetError, match=f"{squad.TRAIN} has several questions with the id '1'"):
        load_questions(Dataset(name))
    (tmp_path / squad.TRAIN).write_bytes(squad.write_questions(VALIDATION))
    with pytest.raises(DatasetError, match=f"{squad.TRAIN} and .*{squad.VALIDATION} both have the question '3'"):
        load_questions(Dataset(name))
    (tmp_path / squad.TRAIN).write_bytes(json.dumps({"data": []}).encode())
    with pytest.raises(DatasetError, match=f"{squad.TRAIN} has no questions"):
        load_questions(Dataset(name))
