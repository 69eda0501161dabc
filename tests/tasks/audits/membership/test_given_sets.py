"""A given model with members and non-members: two data sets of the user, or one with a column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

import orchestrator
from tasks.audits.membership.config import Membership
from tasks.audits.membership.given import handout_order, pictures, question_about
from tasks.audits.membership.given_config import AskedFile, GivenModel, TwoSets
from tasks.audits.membership.measures.given import APART, blind_control
from tasks.contract.summaries import first_row, index_rows
from tasks.contract.verdict import NOT_ASSESSABLE
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.external.model_file import ModelFile
from tests.support.golden import Golden

CLASSES = 3
PER_CLASS = 20
RUN: dict[str, Any] = {"address": "none", "mlflow": "off", "report": False}


def write_folder(folder: Path, seed: int, brightness: int = 0, shared: Sequence[np.ndarray] = ()) -> str:
    """Write noise images of three classes, 25 per class (20 for training), including `shared` ones."""
    noise = (
        np.random.default_rng(seed).integers(0, 200, (CLASSES, PER_CLASS * 5 // 4, 8, 8)).astype(np.uint8) + brightness
    )
    for label in range(CLASSES):
        (folder / f"class {label}").mkdir(parents=True)
        for number, image in enumerate(noise[label]):
            Image.fromarray(image).save(folder / f"class {label}" / f"{number:02}.png")
    for number, image in enumerate(shared):
        Image.fromarray(image).save(folder / "class 0" / f"shared {number}.png")
    return f"folder:{folder}"


def config_of(members: str, non_members: str, **fields: Any) -> Membership:
    sets = TwoSets(members=pin(Dataset(members)), non_members=pin(Dataset(non_members)), **fields)
    return Membership(GivenModel(AskedFile(ModelFile("model.pt")), sets, models=0))


def test_two_sets_give_members_and_non_members(tmp_path: Path) -> None:
    members = write_folder(tmp_path / "mine", 1)
    non_members = write_folder(tmp_path / "elsewhere", 2)
    config = config_of(members, non_members)
    question = question_about(config)
    rows, images, labels = pictures(question)
    inside = load(config.data)
    outside = load(question.unseen.data)
    assert len(rows) == 2 * CLASSES * PER_CLASS
    assert np.array_equal(images, np.concatenate([inside.train_images, outside.train_images]))
    assert np.array_equal(labels, np.concatenate([inside.train_labels, outside.train_labels]))
    fewer = question_about(config_of(members, non_members, examples=12, non_member_examples=6))
    _, _, some_labels = pictures(fewer)
    assert np.bincount(some_labels[:12]).tolist() == [4, 4, 4]
    assert np.bincount(some_labels[12:]).tolist() == [2, 2, 2]
    assert handout_order(fewer).name != handout_order(question).name


def test_incompatible_sets_are_refused(tmp_path: Path) -> None:
    member_data = write_folder(tmp_path / "mine", 1)
    non_members = write_folder(tmp_path / "elsewhere", 2)
    for member_set, other_set, message in (
        (
            member_data,
            f"{non_members}#4x4",
            r"given\.members .* has images of the shape \(8, 8, 1\), given\.non_members",
        ),
        (
            member_data,
            "digits#8x8",
            r"has the classes \('class 0', 'class 1', 'class 2'\), given\.non_members digits#8x8 10",
        ),
        (member_data, member_data, r"have 60 images in common: training image 0 is 0. Remove them from one set"),
    ):
        with pytest.raises(DatasetError, match=message):
            question_about(config_of(member_set, other_set))


Rows = list[tuple[Path, Any]]  # pairs of image and mark


def list_in_csv(folder: Path, rows: Rows) -> str:
    lines = [f"{path},{path.parent.name},{mark}\n" for path, mark in rows]
    (folder / "records.csv").write_text("path,label,Trained\n" + "".join(lines))
    return f"list:{folder / 'records.csv'}"


def list_in_parquet(folder: Path, rows: Rows) -> str:
    table = {"path": [str(path) for path, _ in rows], "label": [path.parent.name for path, _ in rows]}
    pq.write_table(pa.table({**table, "trained": pa.array([mark for _, mark in rows])}), folder / "records.parquet")
    return f"list:{folder / 'records.parquet'}"


def images_in_parquet(folder: Path, rows: Rows) -> str:
    (folder / "hub").mkdir()
    table = {"image": [path.read_bytes() for path, _ in rows], "label": [path.parent.name for path, _ in rows]}
    marks = pa.array([mark for _, mark in rows])
    pq.write_table(pa.table({**table, "trained": marks}), folder / "hub" / "train.parquet")
    return f"parquet:{folder / 'hub'}"


@pytest.mark.parametrize(
    ("write", "marks"),
    [
        (list_in_csv, ("Yes", "no")),
        (list_in_csv, (1, 0)),
        (list_in_parquet, (1.0, 0.0)),
        (list_in_parquet, ("member", "other")),
        (images_in_parquet, (True, False)),
    ],
)
def test_column_of_members_equals_two_sets(
    write: Callable[[Path, Rows], str], marks: tuple[Any, Any], tmp_path: Path
) -> None:
    sets = [write_folder(tmp_path / name, seed) for name, seed in (("mine", 1), ("elsewhere", 2))]
    rows: Rows = []
    for name, mark in zip(("mine", "elsewhere"), marks, strict=True):
        rows += [(path, mark) for path in sorted((tmp_path / name).glob("*/*.png"))]
    model = str(save_model(tmp_path / "model.pt"))
    runs = []
    for settings in (
        {"given.members": sets[0], "given.non_members": sets[1]},
        {"given.members": "column:trained", "data": write(tmp_path, rows)},
    ):
        fields = {**settings, "given.model": model, "network": "mlp1"}
        plan = orchestrator.plan("membership", store=tmp_path / "store", models=20, **fields)
        runs.append(plan["cells"][0]["run"])
    assert runs[0] == runs[1]


@pytest.mark.parametrize("write", [list_in_csv, list_in_parquet, images_in_parquet])
@pytest.mark.parametrize("mark", ["maybe", "", "2"])
def test_other_marks_are_refused_with_their_row(write: Callable[[Path, Rows], str], mark: str, tmp_path: Path) -> None:
    write_folder(tmp_path / "mine", 1)
    paths = sorted((tmp_path / "mine").glob("*/*.png"))
    rows: Rows = [(path, str(number % 2)) for number, path in enumerate(paths)]
    rows[7] = (rows[7][0], mark)
    message = rf"(line 9|row 7): trained is '{mark}'; it must be 1 or 0, true or false, yes or no, or member or other$"
    with pytest.raises(DatasetError, match=message):
        pin(Dataset(f"{write(tmp_path, rows)}#others(trained)"))


@pytest.mark.parametrize("write", [list_in_csv, list_in_parquet, images_in_parquet])
@pytest.mark.parametrize(
    ("class_of_others", "message"),
    [("class 0", "column trained marks no image of class 'class 1' as an other image"), ("", "marks no image as an o")],
)
def test_both_sets_have_all_classes(
    write: Callable[[Path, Rows], str], class_of_others: str, message: str, tmp_path: Path
) -> None:
    write_folder(tmp_path / "mine", 1)
    paths = sorted((tmp_path / "mine").glob("*/*.png"))
    rows: Rows = [(path, path.parent.name != class_of_others) for path in paths]
    with pytest.raises(DatasetError, match=message):
        pin(Dataset(f"{write(tmp_path, rows)}#others(trained)"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"data": "{mine}", "given.members": "column:trained"}, "data must be list:FILE"),
        ({"data": "list:a.csv", "given.members": "column:a/b"}, "a column of members must not contain"),
        (
            {"data": "list:a.csv", "given.members": "column:a", "given.non_members": "{mine}"},
            "given.non_members is a field of question.records=sets, but another setting belongs to",
        ),
        ({"data": "{mine}", "examples": 30}, "Set given.members to images that the model was trained on"),
        ({"given.members": "{mine}"}, "question.records.non_members is missing; only members is given"),
        ({"given.members": "column:trained"}, "question.records.data is missing; only members is given"),
    ],
)
def test_training_images_must_be_specified(fields: dict[str, Any], message: str, tmp_path: Path) -> None:
    members = write_folder(tmp_path / "mine", 1)
    fields = {name: value.format(mine=members) if isinstance(value, str) else value for name, value in fields.items()}
    with pytest.raises(orchestrator.EngramError, match=message):
        orchestrator.plan("membership", store=tmp_path / "store", models=20, **fields, **{"given.model": "model.pt"})


def test_blind_control_measures_difference_of_sets(tmp_path: Path) -> None:
    members = write_folder(tmp_path / "mine", 1, 0)
    similar = write_folder(tmp_path / "same", 2, 0)
    brighter = write_folder(tmp_path / "brighter", 3, 40)
    (similar_row,), (brighter_row,) = (
        blind_control(question_about(config_of(members, non_members)), []).to_pylist()
        for non_members in (similar, brighter)
    )
    assert similar_row["p_value"] > 0.05 > brighter_row["p_value"]
    assert (brighter_row["records"], brighter_row["others"], brighter_row["area"] > 0.95) == (60, 60, True)
    small_config = config_of(members, brighter, examples=10)
    assert not blind_control(question_about(small_config), []).num_rows


def save_model(path: Path) -> Path:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, CLASSES))
    torch.jit.script(module).save(str(path))
    return path


def test_distinguishable_sets_are_not_assessable(golden: Golden, tmp_path: Path) -> None:
    members = write_folder(tmp_path / "mine", 1)
    brighter = write_folder(tmp_path / "brighter", 3, 40)
    settings = {
        "given.model": str(save_model(tmp_path / "model.pt")),
        "given.members": members,
        "given.non_members": brighter,
        "network": "mlp1",
        "models": 20,
        "epochs": 2,
        "batch": 16,
    }
    run = orchestrator.run("membership", store=tmp_path / "store", **settings, **RUN)
    assert run.verdict is not None
    assert run.verdict.answer == NOT_ASSESSABLE
    golden(run.verdict.sentence)
    control = first_row(index_rows(run.table("summary")), APART)
    assert control is not None
    assert control["p_value"] < 0.05
    kinship = run.table("given_kinship")
    assert kinship.num_rows == 21  # the answers about both sets are kept separate
