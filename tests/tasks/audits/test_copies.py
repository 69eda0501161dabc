"""Copies of one image in a user's data are one record, in one part, in every audit, and the answer counts them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tasks.audits.deja_vu import AUDIT as DEJA_VU
from tasks.audits.deja_vu import DejaVu
from tasks.audits.density import AUDIT as DENSITY
from tasks.audits.density.config import Density
from tasks.audits.density.trainings import trainings as density_trainings
from tasks.audits.forgetting import AUDIT as FORGETTING
from tasks.audits.forgetting import Forgetting, Target
from tasks.audits.forgetting.query_set import QuerySet, load_probes
from tasks.audits.membership import AUDIT as MEMBERSHIP
from tasks.audits.membership import Membership
from tasks.audits.membership.trainings import trainings as trained_models
from tasks.audits.text import AUDIT as TEXT
from tasks.audits.text import Text
from tasks.audits.unique_feature import AUDIT as UNIQUE_FEATURE
from tasks.audits.unique_feature import UniqueFeature
from tasks.audits.unique_feature.canary_selection import canaries
from tasks.contract.audit import Audit
from tasks.contract.copy_counts import describe_copies
from tasks.contract.job import Job, text_of
from tasks.contract.measure import summarise
from tasks.datasets.boxed.partition import split_pictures
from tasks.datasets.catalog import load, load_with_boxes, pin
from tasks.datasets.copies import CopyCount, first_copies
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import Part, Rows
from tasks.training.density import member_of

COUNT, COPIED = 60, 5


def noise(number: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(number).integers(0, 256, (28, 28), np.uint8))


def user_folder(folder: Path, copies: int, offset: int = 0) -> Dataset:
    """60 training images of two classes, of which so many are one image, and other test images."""
    for number in range(COUNT):
        path = folder / "train" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        noise(offset if number < copies else offset + number).save(path)
    for number in range(10):
        path = folder / "test" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        noise(offset + 1000 + number).save(path)
    return pin(Dataset(f"folder:{folder}#28x28#grey"))


def user_boxes(folder: Path, copies: int) -> Dataset:
    lines = ["path,label,left,top,right,bottom"]
    for number in range(COUNT):
        noise(0 if number < copies else number).save(folder / f"{number:02}.png")
        lines.append(f"{number:02}.png,{'ab'[number % 2]},10,10,20,20")
    (folder / "boxes.csv").write_text("\n".join(lines) + "\n")
    return pin(Dataset(f"boxed:{folder / 'boxes.csv'}"))


def user_texts(folder: Path, copies: int) -> Dataset:
    lines = [f'{{"id": "{number}", "text": "Note {0 if number < copies else number}."}}' for number in range(COUNT)]
    (folder / "texts.jsonl").write_text("\n".join(lines) + "\n")
    return pin(Dataset(f"records:{folder / 'texts.jsonl'}"))


def membership(folder: Path, copies: int) -> Membership:
    return Membership(data=user_folder(folder, copies), models=4, epochs=1)


def density(folder: Path, copies: int) -> Density:
    return Density(data=user_folder(folder, copies), repetitions=2, folds=3, epochs=1, every=0)


def forgetting(folder: Path, copies: int) -> Forgetting:
    calibration = Part(user_folder(folder / "calibration", 1, offset=5000))
    query = QuerySet(user_folder(folder / "query", copies))
    return Forgetting(query=query, calibration=calibration, targets=(Target(query=0.5, calibration=1.0),), epochs=1)


def unique_feature(folder: Path, copies: int) -> UniqueFeature:
    return UniqueFeature(data=user_folder(folder, copies), probe=Dataset("digits"), canaries=20, epochs=1)


def deja_vu(folder: Path, copies: int) -> DejaVu:
    data = user_boxes(folder, copies)
    return DejaVu(data=data, per_class=4, largest=4, public=10, smallest=4, epochs=1, warmup=0, measures=("scores",))


def text(folder: Path, copies: int) -> Text:
    return Text(data=user_texts(folder, copies), documents=20, models=4, epochs=1)


def copied_rows(data: Dataset) -> Rows:
    """The training rows of the image that occurs several times."""
    first = first_copies(load(data))
    return np.flatnonzero(np.bincount(first, minlength=len(first))[first] > 1)


def membership_sides(config: Membership) -> Iterator[Rows]:
    images = load(config.data)
    for job in trained_models(config):
        for share in job.inputs[0].config.shares:
            yield share.rows(images)


def density_sides(config: Density) -> Iterator[Rows]:
    planned = density_trainings(config)
    assert planned is not None
    for job in planned.fits:
        yield member_of(job.config, load(config.data)).rows


def forgetting_sides(config: Forgetting) -> Iterator[Rows]:
    probes = load_probes(config.probes)
    yield probes.rows[probes.is_control]
    yield probes.rows[~probes.is_control]


def deja_vu_sides(config: DejaVu) -> Iterator[Rows]:
    yield from split_pictures(load_with_boxes(config.data), config.partition).there.values()


AUDITS = [
    (MEMBERSHIP, membership),
    (DENSITY, density),
    (FORGETTING, forgetting),
    (UNIQUE_FEATURE, unique_feature),
    (DEJA_VU, deja_vu),
    (TEXT, text),
]
SIDES = [
    (membership, membership_sides),
    (density, density_sides),
    (forgetting, forgetting_sides),
    (deja_vu, deja_vu_sides),
]


def planned_summary(audit: Audit, config: Any) -> Any:
    """The config of the summary."""
    job = audit.plan(config)["summary"]
    assert isinstance(job, Job)
    return job.config


@pytest.mark.parametrize(("audit", "make"), AUDITS)
def test_every_audit_counts_copies(audit: Audit, make: Any, tmp_path: Path) -> None:
    about = planned_summary(audit, make(tmp_path, COPIED))
    assert about.copies.groups == 1
    assert about.copies.images == COPIED
    assert f"1 of the {COUNT - COPIED + 1} records stands for {COPIED} " in describe_copies(summarise((), (), about))


@pytest.mark.parametrize(("audit", "make"), AUDITS)
def test_without_copies_nothing_is_counted(audit: Audit, make: Any, tmp_path: Path) -> None:
    about = planned_summary(audit, make(tmp_path, 1))
    assert about.copies == CopyCount()
    assert "copies" not in text_of(about)
    assert describe_copies(summarise((), (), about)) == ""


@pytest.mark.parametrize(("make", "sides"), SIDES)
def test_copies_are_on_one_side(make: Any, sides: Any, tmp_path: Path) -> None:
    config = make(tmp_path, COPIED)
    if isinstance(config, DejaVu):
        copies = np.arange(COPIED)
    else:
        copies = copied_rows(config.query.data if isinstance(config, Forgetting) else config.data)
    found = [int(np.isin(copies, rows).sum()) for rows in sides(config)]
    assert len(copies) == COPIED
    assert found
    assert set(found) <= {0, COPIED}


def test_copies_are_one_canary(tmp_path: Path) -> None:
    config = replace(unique_feature(tmp_path, COPIED), canaries=COUNT - COPIED + 1)
    images = load(config.trained_on)
    rows = [canary.image for canary in canaries(config, images)]
    assert np.isin(rows, copied_rows(config.trained_on)).sum() == 1
    with pytest.raises(ValueError, match="canaries is 57; it must be at most 56, the training images that differ"):
        canaries(replace(config, canaries=COUNT - COPIED + 2), images)


def test_limits_begin_with_the_copies(tmp_path: Path) -> None:
    config = membership(tmp_path, COPIED)
    answer = MEMBERSHIP.answer(config, summarise((), (), planned_summary(MEMBERSHIP, config)))
    assert answer is not None
    assert answer.limits.startswith("Exact copies count as one record: 1 of the 56 records stands for 5 images. The")
