"""The images and seed of each model's training, and the data that are rejected beforehand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.audits.forgetting import split
from tasks.audits.forgetting.audited import Trained
from tasks.audits.forgetting.config import Forgetting, Scores
from tasks.audits.forgetting.data_sets import load_data_sets
from tasks.audits.forgetting.presets import QUICKSTART
from tasks.audits.forgetting.query_set import ControlSet, HeldBack, NamedImages, QuerySet
from tasks.audits.forgetting.target import Target
from tasks.audits.forgetting.trainings import ModelId, partial_shares, realised_share, training_jobs
from tasks.contract.job import Job
from tasks.datasets import catalog
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.mixtures import Part, Remainder
from tasks.external.handout import png
from tasks.training.mixed import Mixture
from tasks.training.unlearning_config import UNLEARNING, Distillation, Retraining
from tests.support import published_data
from tests.support.settings import with_settings

DIGITS = pin(Dataset("digits"))
ON_PHOTOS = pin(Dataset("digits-on-photos"))
PHOTOS = pin(Dataset("photos"))
TARGETS = (
    Target(query=1.0),
    Target(calibration=1.0),
    Target(calibration=0.5),
    Target(calibration=0.75),
    *(Target(query=share, calibration=1.0) for share in (0.1, 0.5)),
    Target(outside=1.0),
)
CONFIG = with_settings(
    QUICKSTART,
    query=QuerySet(DIGITS, 0, 200, control=None),
    calibration=Part(ON_PHOTOS, 200, 200),
    audited=Trained(TARGETS, Part(PHOTOS)),
    replicates=2,
)


def scores_of(config: Forgetting) -> Scores:
    assert isinstance(config.question, Scores)
    return config.question


def targets_of(config: Forgetting) -> tuple[Target, ...]:
    assert isinstance(config.audited, Trained)
    return config.audited.targets


def jobs_of(config: Forgetting) -> dict[ModelId, Job]:
    return dict(training_jobs(scores_of(config), load_data_sets(config)))


def mixtures(config: Forgetting) -> dict[ModelId, Mixture]:
    return {model: job.config for model, job in jobs_of(config).items()}


def mixtures_by_name(config: Forgetting) -> dict[tuple[str, str, int], Mixture]:
    """The trainings by kind, target and replicate of the model, independently of the number of the target."""
    result = {}
    for model, mixture in mixtures(config).items():
        if model.kind != "partial":
            result[
                (model.kind, "" if model.target is None else str(targets_of(config)[model.target]), model.replicate)
            ] = mixture
    return result


def rows(mixture: Mixture, data: Dataset) -> set[int]:
    """The rows of a data set that a model is trained on."""
    shares = [share for share in mixture.shares if share.part.data == data]
    return {row for share in shares for row in share.rows(load(data)).tolist()}


def target(shares: Target, replicate: int = 0) -> Mixture:
    return mixtures_by_name(CONFIG)["target", str(shares), replicate]


def test_no_two_models_share_a_training() -> None:
    result = mixtures(CONFIG)
    assert (2 + len(TARGETS)) * 2 == len(result) == len(set(result.values()))
    assert len(result) == len({mixture.seed for mixture in result.values()})


def test_training_does_not_depend_on_other_targets() -> None:
    few = mixtures_by_name(with_settings(CONFIG, targets=TARGETS[:2:-2], replicates=1))
    assert few.items() <= mixtures_by_name(CONFIG).items()


def test_models_of_a_share_have_different_draws() -> None:
    config = with_settings(CONFIG, query=QuerySet(DIGITS, 0, 200), calibration_share=0.25, partial=(0.1, 0.25))
    result = mixtures(config)
    draws = {}
    for model, mixture in result.items():
        if model.kind in ("calibration", "partial"):
            draws[model] = frozenset(rows(mixture, ON_PHOTOS))
    assert {len(draw) for draw in draws.values()} == {50}
    assert (
        2 + 2 * len(partial_shares(scores_of(config).audited, load_data_sets(config)))
        == len(draws)
        == len(set(draws.values()))
    )
    assert all(draw < set(range(200, 400)) for draw in draws.values())


def test_unlearning_keeps_the_models_draw() -> None:
    held_rows = Target(query=1.0, calibration=1.0)
    targets = (held_rows, *(replace(held_rows, unlearning=method()) for method in UNLEARNING.values()))
    config = with_settings(CONFIG, query=QuerySet(DIGITS, 0, 200), targets=targets, calibration_share=0.25, partial=())
    jobs = {}
    for model, job in jobs_of(config).items():
        if (model.kind, model.replicate) == ("target", 0):
            jobs[str(targets_of(config)[model.target or 0])] = job.config
    trained_rows = next(share for share in jobs[str(held_rows)].shares if share.part == config.calibration)
    assert (trained_rows,) == jobs[str(replace(held_rows, unlearning=Retraining()))].shares
    assert {job.kept for job in jobs.values() if not isinstance(job, Mixture)} == {(trained_rows,)}


def test_target_with_equal_data_has_another_seed() -> None:
    result = mixtures_by_name(CONFIG)
    for kind, target_name in (("query", "D_Q"), ("calibration", "D_C")):
        other_seeds = result[kind, "", 0]
        target_seeds = result["target", target_name, 0]
        assert other_seeds.shares == target_seeds.shares
        assert other_seeds != target_seeds
        assert other_seeds == replace(target_seeds, seed=other_seeds.seed)


def test_models_are_trained_on_their_shares() -> None:
    query = set(range(200))
    calibration = set(range(200, 400))
    result = mixtures_by_name(CONFIG)
    assert (query, set()) == tuple(rows(result["query", "", 1], data) for data in (DIGITS, ON_PHOTOS))
    assert (set(), calibration) == tuple(rows(result["calibration", "", 1], data) for data in (DIGITS, ON_PHOTOS))
    shares = target(Target(query=0.1, calibration=1.0))
    assert len(rows(shares, DIGITS)) == 20
    assert rows(shares, ON_PHOTOS) == calibration
    assert rows(shares, DIGITS) < query
    assert set(range(len(load(PHOTOS).train_images))) == rows(target(Target(outside=1.0)), PHOTOS)


@pytest.mark.parametrize(
    ("data", "less", "more"),
    [
        (ON_PHOTOS, Target(calibration=0.5), Target(calibration=0.75)),
        (DIGITS, Target(query=0.1, calibration=1.0), Target(query=0.5, calibration=1.0)),
    ],
)
def test_shares_are_nested_within_a_replicate(data: Dataset, less: Target, more: Target) -> None:
    small = [rows(target(less, replicate), data) for replicate in (0, 1)]
    large = [rows(target(more, replicate), data) for replicate in (0, 1)]
    assert small[0] < large[0]
    assert small[1] < large[1]
    assert small[0] != small[1]


def test_unlearning_starts_from_its_trained_target() -> None:
    held_rows = Target(query=0.5, calibration=1.0)
    methods = [Distillation(epochs=4), *(method() for method in UNLEARNING.values())]
    config = with_settings(CONFIG, targets=(held_rows, *(replace(held_rows, unlearning=method) for method in methods)))
    result = jobs_of(config)
    for number, method in enumerate(methods, start=1):
        for replicate in (0, 1):
            before = result[ModelId("target", 0, replicate)]
            after = result[ModelId("target", number, replicate)]
            if method == Retraining():
                all_shares = result[ModelId("calibration", None, replicate)].config
                assert after.config == replace(all_shares, seed=after.config.seed)
                assert len({after.config.seed, all_shares.seed, before.config.seed}) == 3
                continue
            (start,) = after.inputs
            assert start.config == before.config
            assert (*after.config.kept, *after.config.forgotten) == before.config.shares
            assert [share.share for share in after.config.forgotten] == [0.5]
            assert after.config.method == method
            assert after.config.seed != before.config.seed


def test_patients_stay_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_loaded", {})
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path))
    published_data.acdc(tmp_path / "acdc")
    three = pin(Dataset("acdc-3t"))
    one_and_a_half = pin(Dataset("acdc-1.5t"))
    half = Target(calibration=0.5)
    config = with_settings(
        CONFIG,
        query=QuerySet(three, control=None),
        calibration=Part(one_and_a_half),
        targets=(half,),
        replicates=4,
    )
    data = load_data_sets(config)
    patients = load(one_and_a_half).train_groups
    assert patients is not None
    patient_sets = []
    for mixture in (mixture for model, mixture in mixtures(config).items() if model.kind == "target"):
        image_rows = sorted(rows(mixture, one_and_a_half))
        images = set(patients[image_rows].tolist())
        assert len(images) == 2
        assert image_rows == [row for row in range(len(patients)) if patients[row] in images]
        patient_sets.append(frozenset(images))
    assert len(set(patient_sets)) > 1
    groups = load(three).train_groups
    assert groups is not None
    largest = max(np.bincount(groups)) / len(groups)
    realised = realised_share(scores_of(config), data, 0.01)
    assert 0.05 < realised <= largest  # of one patient with more than a hundredth of the images
    assert realised_share(scores_of(CONFIG), load_data_sets(CONFIG), 0.01) == 0.01


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"calibration": Part(Dataset("digits-on-photos#16x16"), 200, 200)},
            "images of digits-on-photos#16x16 are 16 x 16 x 1, images of the query set digits are 28 x 28 x 1; all "
            "must have one shape: add #28x28, or another height x width, and #grey or #rgb",
        ),
        (
            {"query": QuerySet(PHOTOS), "targets": TARGETS[:2]},
            "digits-on-photos has 10 classes, the query set photos 1; it must have no more",
        ),
        (
            {"calibration": Part(ON_PHOTOS, 1400, 38)},
            "digits-on-photos has the training images 0 to 1436, but not 1400 to 1437",
        ),
        ({"crop": 29}, "crop is 29; it must be at most 28, the side of the images"),
        (
            {"calibration": Part(DIGITS, 190, 30)},
            "the query set digits and the calibration set digits have 10 images in common: training image 190 is 190, "
            "191 is 191, 192 is 192, 193 is 193, 194 is 194, and 5 more; the calibration set must not contain "
            "images of the query set or images derived from them: leave these out",
        ),
        (
            {"calibration": Part(ON_PHOTOS, 199, 30)},  # other pixels, derived from the same digit
            "the query set digits and the calibration set digits-on-photos have 1 image in common: training image 199 "
            "is 199; the calibration set must not contain images of the query set or images derived from them: leave "
            "these out",
        ),
        (
            {"outside": Part(DIGITS, 198, 30)},
            "the query set digits and the set out of domain digits have 2 images in common: training image 198 is 198, "
            "199 is 199; the set out of domain must not contain images of the query set or images derived from them: "
            "leave these out",
        ),
    ],
)
def test_unsuitable_data_are_refused(fields: dict[str, Any], expected: str) -> None:
    with pytest.raises(DatasetError) as caught:
        load_data_sets(with_settings(CONFIG, fields))
    assert expected == str(caught.value)


def test_suitable_data_are_accepted() -> None:
    load_data_sets(CONFIG)
    load_data_sets(replace(CONFIG, query=QuerySet(DIGITS, 0, 200, ControlSet(NamedImages(DIGITS, 400, 100)))))


@pytest.mark.parametrize(
    ("control", "expected"),
    [
        (NamedImages(DIGITS, 150, 100), "the query set digits and the control set digits have 50 images in common"),
        (
            NamedImages(DIGITS, 390, 30),
            "the control set digits and the calibration set digits-on-photos have 10 images",
        ),
        (NamedImages(Dataset("digits#16x16"), 500, 50), "all must have one shape"),
    ],
)
def test_control_images_of_other_sets_are_refused(control: NamedImages, expected: str) -> None:
    with pytest.raises(DatasetError, match=expected):
        load_data_sets(with_settings(CONFIG, query=QuerySet(DIGITS, 0, 200, ControlSet(control)), targets=TARGETS[:2]))


def test_held_back_images_are_not_trained_on() -> None:
    config = replace(CONFIG, query=QuerySet(DIGITS, 0, 200, ControlSet(HeldBack(0.3))))
    kept_rows = config.query_part
    assert isinstance(kept_rows, Remainder)
    held_rows = set(kept_rows.held_rows(load(DIGITS)).tolist())
    trained_rows = set().union(*(rows(mixture, DIGITS) for mixture in mixtures(config).values()))
    assert len(held_rows) == 60
    assert len(trained_rows) == 140
    assert not held_rows & trained_rows
    assert len(rows(mixtures_by_name(config)["target", "D_C + 0.1 D_Q", 0], DIGITS)) == 14


def test_seed_determines_held_back_images() -> None:
    query = QuerySet(DIGITS, 0, 200)
    first = query.query_part(0).rows(load(DIGITS)).tolist()
    second = query.query_part(1).rows(load(DIGITS)).tolist()
    assert 100 == len(first) == len(second)
    assert 30 < len(set(first) & set(second)) < 70


def folder_of(path: Path, rows: list[int]) -> Dataset:
    """A folder with these digits, sorted into classes."""
    for index, row in enumerate(rows):
        held_rows = path / str(load(DIGITS).train_labels[row]) / f"{index:03d}.png"
        held_rows.parent.mkdir(parents=True, exist_ok=True)
        held_rows.write_bytes(png(load(DIGITS).train_images[row]))
    return pin(Dataset(f"folder:{path}"))


def test_copies_are_held_back_together(tmp_path: Path) -> None:
    twice = folder_of(tmp_path / "twice", [*range(300, 360), *range(300, 360)])
    config = with_settings(CONFIG, query=QuerySet(twice), calibration=Part(DIGITS, 0, 100), targets=TARGETS[:2])
    load_data_sets(config)
    kept_rows = config.query_part
    images = load(twice)
    assert isinstance(kept_rows, Remainder)
    query = {images.train_images[row].tobytes() for row in kept_rows.rows(images)}
    control = set()
    for row in kept_rows.held_rows(images):
        control.add(images.train_images[row].tobytes())
    assert not query & control
    assert len(query) + len(control) == len({image.tobytes() for image in images.train_images})


@pytest.mark.parametrize("adapted", ["", "#28x28#grey"])
def test_split_names_the_files_of_a_folder(tmp_path: Path, adapted: str) -> None:
    target_seeds = folder_of(tmp_path / "own", [*range(300, 360)])
    expected = split(replace(CONFIG, query=QuerySet(pin(Dataset(target_seeds.name + adapted)))))
    assert expected is not None
    row_numbers = {}
    for row, image in enumerate(load(target_seeds).train_images):
        row_numbers[png(image)] = row
    rows = expected.table.to_pylist()
    assert [row_numbers[Path(row["file"]).read_bytes()] for row in rows] == [row["row"] for row in rows]
    assert {row["set"] for row in rows} == {"query", "control"}
