from __future__ import annotations

import csv
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from orchestrator.planning.commitment import commitment_of
from tasks.audits.unique_feature import AUDIT, UniqueFeature, plan
from tasks.audits.unique_feature.given_models import AnswerRank, Given, ModelFiles
from tasks.audits.unique_feature.measures.divergences import ask
from tasks.audits.unique_feature.measures.family import ask_family
from tasks.audits.unique_feature.population import Relatives, clean_images, family_rows
from tasks.audits.unique_feature.single_models.models import (
    LABELLED_COUNT,
    LABELLED_SET,
    SingleModelConfig,
    image_sets,
    labels,
    picture_ids,
    pictures,
    repeated_ids,
    split_key,
)
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import AskedFamily, Glyph
from tasks.external import model_file
from tasks.external.handout import write_pictures
from tasks.external.model_file import ModelFile
from tasks.worker import files
from tasks.worker.files import File
from tests.tasks.audits.unique_feature.made_up import configure

SHAPE = (12, 12, 1)
PROBES = 30
MEMBERS = 19


class LetterModel(torch.nn.Module):
    """A model that sees only how well the patch at the letter's position fits the letter A, and then predicts class
    2.
    """

    def __init__(self, strength: float) -> None:
        super().__init__()
        self.strength = strength
        self.template = torch.nn.Parameter(torch.from_numpy(patch()))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        likeness = (images[:, 0, 1:6, 1:6] * self.template).sum((1, 2)) / 12
        zeros = torch.zeros_like(likeness)
        return torch.stack([zeros, zeros, self.strength * likeness], 1)


def patch() -> np.ndarray[Any, np.dtype[np.float32]]:
    from tasks.datasets.features import glyph_pixels

    return (glyph_pixels(Glyph()) / 255 * 2 - 1).astype(np.float32)


def relatives() -> Relatives:
    return Relatives(pin(Dataset("photos")), "test", PROBES, Glyph(), AskedFamily(count=MEMBERS), seed=2)


def save_model(folder: Path, strength: float = 4.0) -> ModelFile:
    torch.jit.script(LetterModel(strength)).save(folder / "model.pt")  # type: ignore[no-untyped-call]
    return model_file.pin(ModelFile(str(folder / "model.pt")))


def returned_table(folder: Path, strength: float = 4.0) -> File:
    """The table from an owner who evaluated the model on the images that were handed out."""
    images = write_pictures(folder / "pictures", [pictures(SingleModelConfig(relatives(), "noise", SHAPE))])
    model = LetterModel(strength).eval()
    with open(folder / "outputs.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["image", "p0", "p1", "p2"])
        for row in images.to_pylist():
            from PIL import Image

            picture = np.array(Image.open(folder / "pictures" / row["image"]), np.float32)[None, None] / 255
            with torch.no_grad():
                p = model(torch.from_numpy(picture)).double().softmax(1)[0]
            table.writerow([row["image"], *p.tolist()])
    return files.pin(File(str(folder / "outputs.csv")))


def test_model_file_and_its_table_agree(tmp_path: Path) -> None:
    by_file = SingleModelConfig(relatives(), "noise", SHAPE, model=save_model(tmp_path), label=2)
    by_table = SingleModelConfig(relatives(), "noise", SHAPE, outputs=returned_table(tmp_path), label=2)
    for task in (ask, ask_family):
        first = task(by_file, ())
        second = task(by_table, ())
        assert first.schema == second.schema
        for name in ("d_u", "d_r", "log_p_u", "log_p_r", "d"):
            if name in first.column_names:
                assert first[name].to_pylist() == pytest.approx(second[name].to_pylist(), abs=1e-6)
    family = [ask_family(config, ()).to_pylist() for config in (by_file, by_table)]
    for from_file, from_table in zip(*family, strict=True):
        assert from_file["log_p"] == pytest.approx(from_table["log_p"], abs=1e-6)


@pytest.mark.parametrize("label", [None, 2])
def test_only_a_remembering_model_is_detected(tmp_path: Path, label: int | None) -> None:
    for strength, answer in ((4.0, "memorised"), (0.0, "not assessable")):
        folder = tmp_path / str(strength)
        folder.mkdir()
        config = UniqueFeature(
            Given(
                shape=SHAPE,
                source=ModelFiles((save_model(folder, strength),), AnswerRank(label)),
                family=AskedFamily(count=MEMBERS, look_alikes=MEMBERS),
                probes=PROBES,
            ),
            probe=pin(Dataset("photos")),
        )
        summary = summary_of(config)
        rows = {row["metric"]: row for row in summary.to_pylist()}
        assert AUDIT.verdict is not None
        outcome = AUDIT.verdict(config, summary)
        assert answer == outcome.answer
        push = rows["push towards a label"]
        if strength:
            assert push["p_value"] == 1 / (MEMBERS + 1)
            assert push["estimate"] > 0.5
            assert "in its family (p = 0.05)" in outcome.sentence
        else:
            assert pytest.approx([push["p_value"], push["estimate"]], abs=1e-12) == [1.0, 0.0]
        assert rows["M"]["n"] == 1
        assert rows["M"]["unit"] == "model"
        assert rows["M"]["low"] is None
        assert rows["probe images needed"]["estimate"] >= 2


def test_several_models_form_a_panel(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    models = tuple(save_model(folder, 1.5 + number) for number, folder in enumerate(folders))
    config = UniqueFeature(Given(SHAPE, ModelFiles(models), probes=PROBES), probe=pin(Dataset("photos")))
    roots = plan(config)
    assert roots.keys() == {"summary", "divergences", "family"}
    assert isinstance(roots["family"], tuple)
    assert len(roots["family"]) == 2
    rows = {row["metric"]: row for row in summary_of(config).to_pylist()}
    assert rows["push towards a label"]["n"] == 2
    assert rows["M"]["low"] is not None


def test_unknown_label_is_refused(tmp_path: Path) -> None:
    config = SingleModelConfig(relatives(), "noise", SHAPE, model=save_model(tmp_path), label=3)
    for task in (ask, ask_family):
        with pytest.raises(ValueError, match="label is 3; the model's classes are 0 to 2"):
            task(config, ())


def summary_of(config: UniqueFeature) -> pa.Table:
    from tests.tasks.audits.unique_feature.depth_first import tables

    return tables(plan(config))["summary"]


RELATIVES = Relatives(pin(Dataset("photos")), "test", PROBES, Glyph(), AskedFamily(count=MEMBERS), seed=2)
HANDOUT_CONFIG = SingleModelConfig(RELATIVES, "noise", SHAPE, order=5, labelled=pin(Dataset("digits")))
NAMES = ["clean", "random", "feature", *(f"family-{number:03d}" for number in range(1, MEMBERS + 1))]


def test_handed_out_sets_equal_the_evaluated_images() -> None:
    sets_by_name = dict(image_sets(HANDOUT_CONFIG))
    assert list(sets_by_name) == [*NAMES, LABELLED_SET]
    assert {sets_by_name[name].shape for name in NAMES} == {(PROBES, *SHAPE)}
    evaluated_sets: list[str] = []

    def predict(name: str, images: np.ndarray[Any, np.dtype[np.uint8]]) -> np.ndarray[Any, np.dtype[np.float64]]:
        evaluated_sets.append(name)
        assert (sets_by_name[name] == images).all()
        return np.full((len(images), 2), np.log(0.5))

    family_rows(RELATIVES, clean_images(RELATIVES, SHAPE), [predict])
    assert set(NAMES) - {"random"} == set(evaluated_sets)


def test_key_assigns_every_handed_out_image() -> None:
    name, handed_images = pictures(HANDOUT_CONFIG)
    count = len(NAMES) * PROBES + LABELLED_COUNT
    assert handed_images.shape == (count + round(0.1 * count), *SHAPE)
    images_by_id = {}
    for number, picture in enumerate(handed_images):
        images_by_id[f"{name}/{number:06d}.png"] = picture
    sets_by_name = dict(image_sets(HANDOUT_CONFIG))
    ids_by_set = picture_ids(HANDOUT_CONFIG)
    for set_name, images in sets_by_name.items():
        assert all(
            (images_by_id[number] == image).all() for number, image in zip(ids_by_set[set_name], images, strict=True)
        )
    assert all(
        (images_by_id[first_id] == images_by_id[second_id]).all()
        for first_id, second_id in repeated_ids(HANDOUT_CONFIG)
    )
    set_by_id = {}
    for row in split_key(HANDOUT_CONFIG).to_pylist():
        set_by_id[row["image"]] = row["set"]
    assert set(images_by_id) == set(set_by_id)
    assert all(set_by_id[number] == set_name for set_name, ids in ids_by_set.items() for number in ids)
    assert all(set_by_id[first_id] == set_by_id[second_id] for first_id, second_id in repeated_ids(HANDOUT_CONFIG))
    assert (min(Counter(set_by_id.values()).values()), Counter(set_by_id.values())[LABELLED_SET]) >= (
        PROBES,
        LABELLED_COUNT,
    )


def test_references_add_the_images_for_slopes() -> None:
    digits = replace(RELATIVES, probe=pin(Dataset("digits")))
    with_references = replace(HANDOUT_CONFIG, relatives=digits, shape=(28, 28, 1), label=3, references=True)
    added_sets = set(picture_ids(with_references)) - set(picture_ids(replace(with_references, references=False)))
    assert {f"slopes-{number:03d}" for number in range(100)} == added_sets
    assert pictures(with_references)[0] != pictures(replace(with_references, label=4))[0]


def test_settings_outside_the_images_do_not_change_them() -> None:
    name, handed_images = pictures(HANDOUT_CONFIG)
    other_name, other_images = pictures(replace(HANDOUT_CONFIG, number=3, label=1, accuracy=0.9, classes=10))
    assert (name, True) == (other_name, bool((handed_images == other_images).all()))
    assert name != pictures(replace(HANDOUT_CONFIG, order=6))[0]
    assert name != pictures(replace(HANDOUT_CONFIG, relatives=replace(RELATIVES, probes=29)))[0]


def test_labelled_images_come_from_all_classes() -> None:
    digits = load(Dataset("digits"))
    config = replace(HANDOUT_CONFIG, shape=(28, 28, 1))
    images = dict(image_sets(config))[LABELLED_SET]
    image_labels = labels(config)
    label_of = {}
    for image, label in zip(digits.test_images, digits.test_labels, strict=True):
        label_of[image.tobytes()] = label
    assert [label_of[image.tobytes()] for image in images] == image_labels.tolist()
    # A folder lists its images by class: the first hundred would have one class.
    assert set(range(10)) == set(image_labels.tolist())
    assert digits.test_labels[:LABELLED_COUNT].tolist() != image_labels.tolist()
    assert image_labels.tolist() != labels(replace(config, order=6)).tolist()


def test_commitment_leaves_the_form_of_the_model_open() -> None:
    draw_settings = {"given.shape": "28,28,1", "given.secret": "s" * 16, "feature.kind": "random"}
    later_settings = ({"given.models": "m.pt"}, {"given.outputs": (File("o.csv", "a" * 64),)}, {})
    before = commitment_of(configure(draw_settings, probe=pin(Dataset("digits"))).draw)
    for settings in later_settings:
        config = configure(draw_settings | settings | {"given.nonce": "n" * 16}, probe=pin(Dataset("digits")))
        assert commitment_of(config.draw) == before
    labelled = configure(draw_settings | {"given.label": 3}, probe=pin(Dataset("digits")))
    assert commitment_of(labelled.draw) != before
