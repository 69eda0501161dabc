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
PROBES, MEMBERS = 30, 19


class Remembers(torch.nn.Module):
    """Sees nothing but how well the patch at the letter's place fits the letter A, and then says class 2."""

    def __init__(self, strength: float) -> None:
        super().__init__()
        self.strength = strength
        self.template = torch.nn.Parameter(torch.from_numpy(patch()))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        likeness = (images[:, 0, 1:6, 1:6] * self.template).sum((1, 2)) / 12
        nothing = torch.zeros_like(likeness)
        return torch.stack([nothing, nothing, self.strength * likeness], 1)


def patch() -> np.ndarray[Any, np.dtype[np.float32]]:
    from tasks.datasets.features import glyph_pixels

    return (glyph_pixels(Glyph()) / 255 * 2 - 1).astype(np.float32)


def relatives() -> Relatives:
    return Relatives(pin(Dataset("photos")), "test", PROBES, Glyph(), AskedFamily(count=MEMBERS), seed=2)


def saved(folder: Path, strength: float = 4.0) -> ModelFile:
    torch.jit.script(Remembers(strength)).save(folder / "model.pt")  # type: ignore[no-untyped-call]
    return model_file.pin(ModelFile(str(folder / "model.pt")))


def answered(folder: Path, strength: float = 4.0) -> File:
    """The table that an owner returns who asked the model about the pictures handed out."""
    images = write_pictures(folder / "pictures", [pictures(SingleModelConfig(relatives(), "noise", SHAPE))])
    model = Remembers(strength).eval()
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


def test_a_model_file_and_the_table_of_its_outputs_say_the_same(tmp_path: Path) -> None:
    by_file = SingleModelConfig(relatives(), "noise", SHAPE, model=saved(tmp_path), label=2)
    by_table = SingleModelConfig(relatives(), "noise", SHAPE, outputs=answered(tmp_path), label=2)
    for task in (ask, ask_family):
        first, second = (task(config, ()) for config in (by_file, by_table))
        assert first.schema == second.schema
        for name in ("d_u", "d_r", "log_p_u", "log_p_r", "d"):
            if name in first.column_names:
                assert first[name].to_pylist() == pytest.approx(second[name].to_pylist(), abs=1e-6)
    family = [ask_family(config, ()).to_pylist() for config in (by_file, by_table)]
    for one, other in zip(*family, strict=True):
        assert one["log_p"] == pytest.approx(other["log_p"], abs=1e-6)


@pytest.mark.parametrize("label", [None, 2])
def test_a_model_that_remembers_the_letter_is_found_and_one_that_does_not_is_not(
    tmp_path: Path, label: int | None
) -> None:
    for strength, answer in ((4.0, "memorised"), (0.0, "not assessable")):
        folder = tmp_path / str(strength)
        folder.mkdir()
        config = UniqueFeature(
            Given(
                shape=SHAPE,
                source=ModelFiles((saved(folder, strength),), AnswerRank(label)),
                family=AskedFamily(count=MEMBERS, look_alikes=MEMBERS),
                probes=PROBES,
            ),
            probe=pin(Dataset("photos")),
        )
        summary = computed(config)
        rows = {row["metric"]: row for row in summary.to_pylist()}
        assert AUDIT.verdict is not None
        found = AUDIT.verdict(config, summary)
        assert answer == found.answer
        push = rows["push towards a label"]
        if strength:
            assert push["p_value"] == 1 / (MEMBERS + 1)
            assert push["estimate"] > 0.5
            assert "in its family (p = 0.05)" in found.sentence
        else:
            assert pytest.approx([push["p_value"], push["estimate"]], abs=1e-12) == [1.0, 0.0]
        assert (rows["M"]["n"], rows["M"]["unit"], rows["M"]["low"]) == (1, "model", None)
        assert rows["probe images needed"]["estimate"] >= 2


def test_several_models_are_one_panel(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    models = tuple(saved(folder, 1.5 + number) for number, folder in enumerate(folders))
    config = UniqueFeature(Given(SHAPE, ModelFiles(models), probes=PROBES), probe=pin(Dataset("photos")))
    roots = plan(config)
    assert {"summary", "divergences", "family"} == roots.keys()
    assert isinstance(roots["family"], tuple)
    assert len(roots["family"]) == 2
    rows = {row["metric"]: row for row in computed(config).to_pylist()}
    assert rows["push towards a label"]["n"] == 2
    assert rows["M"]["low"] is not None


def test_a_label_that_the_model_does_not_have_is_refused(tmp_path: Path) -> None:
    config = SingleModelConfig(relatives(), "noise", SHAPE, model=saved(tmp_path), label=3)
    for task in (ask, ask_family):
        with pytest.raises(ValueError, match="label is 3; the model's classes are 0 to 2"):
            task(config, ())


def computed(config: UniqueFeature) -> pa.Table:
    from tests.tasks.audits.unique_feature.depth_first import tables

    return tables(plan(config))["summary"]


RELATIVES = Relatives(pin(Dataset("photos")), "test", PROBES, Glyph(), AskedFamily(count=MEMBERS), seed=2)
ASKED = SingleModelConfig(RELATIVES, "noise", SHAPE, order=5, labelled=pin(Dataset("digits")))
NAMES = ["clean", "random", "feature", *(f"family-{number:03d}" for number in range(1, MEMBERS + 1))]


def test_the_sets_are_the_very_images_that_a_model_here_is_asked_about() -> None:
    held = dict(image_sets(ASKED))
    assert [*NAMES, LABELLED_SET] == list(held)
    assert {(PROBES, *SHAPE)} == {held[name].shape for name in NAMES}
    asked: list[str] = []

    def says(name: str, images: np.ndarray[Any, np.dtype[np.uint8]]) -> np.ndarray[Any, np.dtype[np.float64]]:
        asked.append(name)
        assert (held[name] == images).all()
        return np.full((len(images), 2), np.log(0.5))

    family_rows(RELATIVES, clean_images(RELATIVES, SHAPE), [says])
    assert set(NAMES) - {"random"} == set(asked)


def test_the_owner_gets_them_in_one_set_and_the_key_says_which_is_which() -> None:
    name, given = pictures(ASKED)
    count = len(NAMES) * PROBES + LABELLED_COUNT
    assert (count + round(0.1 * count), *SHAPE) == given.shape
    at = {f"{name}/{place:06d}.png": picture for place, picture in enumerate(given)}
    held, where = dict(image_sets(ASKED)), picture_ids(ASKED)
    for of, images in held.items():
        assert all((at[place] == image).all() for place, image in zip(where[of], images, strict=True))
    assert all((at[first] == at[second]).all() for first, second in repeated_ids(ASKED))
    listed = {row["image"]: row["set"] for row in split_key(ASKED).to_pylist()}
    assert set(at) == set(listed)
    assert all(listed[place] == of for of, ids in where.items() for place in ids)
    assert all(listed[first] == listed[second] for first, second in repeated_ids(ASKED))
    assert (min(Counter(listed.values()).values()), Counter(listed.values())[LABELLED_SET]) >= (PROBES, LABELLED_COUNT)


def test_beside_references_the_images_that_slopes_are_fitted_to_are_among_them() -> None:
    digits = replace(RELATIVES, probe=pin(Dataset("digits")))
    beside = replace(ASKED, relatives=digits, shape=(28, 28, 1), label=3, references=True)
    more = set(picture_ids(beside)) - set(picture_ids(replace(beside, references=False)))
    assert {f"slopes-{at:03d}" for at in range(100)} == more
    assert pictures(beside)[0] != pictures(replace(beside, label=4))[0]


def test_what_is_not_seen_in_the_pictures_does_not_change_them() -> None:
    name, given = pictures(ASKED)
    same, again = pictures(replace(ASKED, number=3, label=1, accuracy=0.9, classes=10))
    assert (name, True) == (same, bool((given == again).all()))
    assert name != pictures(replace(ASKED, order=6))[0]
    assert name != pictures(replace(ASKED, relatives=replace(RELATIVES, probes=29)))[0]


def test_the_pictures_with_labels_are_drawn_from_all_classes_and_have_their_own() -> None:
    digits = load(Dataset("digits"))
    whole = replace(ASKED, shape=(28, 28, 1))
    shown, known = dict(image_sets(whole))[LABELLED_SET], labels(whole)
    label_of = {image.tobytes(): label for image, label in zip(digits.test_images, digits.test_labels, strict=True)}
    assert [label_of[image.tobytes()] for image in shown] == known.tolist()
    # A folder lists its pictures class by class: the first hundred would be of one.
    assert set(range(10)) == set(known.tolist())
    assert digits.test_labels[:LABELLED_COUNT].tolist() != known.tolist()
    assert known.tolist() != labels(replace(whole, order=6)).tolist()


def test_commitment_leaves_open_how_the_model_comes() -> None:
    drawn = {"given.shape": "28,28,1", "given.secret": "s" * 16, "feature.kind": "random"}
    later = ({"given.models": "m.pt"}, {"given.outputs": (File("o.csv", "a" * 64),)}, {})
    before = commitment_of(configure(drawn, probe=pin(Dataset("digits"))).draw)
    for settings in later:
        config = configure(drawn | settings | {"given.nonce": "n" * 16}, probe=pin(Dataset("digits")))
        assert commitment_of(config.draw) == before
    labelled = configure(drawn | {"given.label": 3}, probe=pin(Dataset("digits")))
    assert commitment_of(labelled.draw) != before
