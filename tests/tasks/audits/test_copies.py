"""Copies of one image in a user's data are one record, in one part, in every audit, and the answer counts them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from tasks.audits.deja_vu import AUDIT as DEJA_VU
from tasks.audits.deja_vu import DejaVu
from tasks.audits.density import AUDIT as DENSITY
from tasks.audits.density.config import Density
from tasks.audits.forgetting import AUDIT as FORGETTING
from tasks.audits.forgetting import Forgetting
from tasks.audits.forgetting.query_set import QuerySet, load_probes
from tasks.audits.membership import AUDIT as MEMBERSHIP
from tasks.audits.membership import Membership
from tasks.audits.text import AUDIT as TEXT
from tasks.audits.text import Text
from tasks.audits.unique_feature import AUDIT as UNIQUE_FEATURE
from tasks.audits.unique_feature import UniqueFeature
from tasks.audits.unique_feature.canary_selection import canaries
from tasks.contract.audit import Audit
from tasks.contract.copy_counts import COPIES, describe_copies
from tasks.contract.measure import summarise
from tasks.datasets.boxed.partition import split_pictures
from tasks.datasets.catalog import load, load_with_boxes, pin
from tasks.datasets.copies import CopyCount, first_copies
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import Part

COUNT, COPIED = 60, 5


def noise(number: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(number).integers(0, 256, (28, 28), np.uint8))


def user_folder(folder: Path, copies: int) -> Dataset:
    """60 training images of two classes, of which so many are one image, and other test images."""
    for number in range(COUNT):
        path = folder / "train" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        noise(0 if number < copies else number).save(path)
    for number in range(10):
        path = folder / "test" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        noise(1000 + number).save(path)
    return pin(Dataset(f"folder:{folder}#28x28#grey"))


def user_boxes(folder: Path, copies: int) -> Dataset:
    lines = ["path,label,left,top,right,bottom"]
    for number in range(COUNT):
        noise(0 if number < copies else number).save(folder / f"{number:02}.png")
        lines.append(f"{number:02}.png,{'ab'[number % 2]},10,10,20,20")
    (folder / "boxes.csv").write_text("\n".join(lines) + "\n")
    return pin(Dataset(f"boxed:{folder / 'boxes.csv'}"))


def user_texts(folder: Path, copies: int) -> Dataset:
    lines = [f'{{"text": "A note of number {0 if number < copies else number}."}}' for number in range(COUNT)]
    (folder / "texts.jsonl").write_text("\n".join(lines) + "\n")
    return pin(Dataset(f"records:{folder / 'texts.jsonl'}"))


def membership(folder: Path, copies: int) -> Membership:
    return Membership(data=user_folder(folder, copies), models=4, epochs=1)


def density(folder: Path, copies: int) -> Density:
    return Density(data=user_folder(folder, copies), repetitions=2, folds=3, epochs=1, every=0)


def forgetting(folder: Path, copies: int) -> Forgetting:
    data = user_folder(folder, copies)
    return Forgetting(query=QuerySet(data, examples=30), calibration=Part(Dataset("digits#28x28")), epochs=1)


def unique_feature(folder: Path, copies: int) -> UniqueFeature:
    return UniqueFeature(data=user_folder(folder, copies), probe=Dataset("digits"), canaries=20, epochs=1)


def deja_vu(folder: Path, copies: int) -> DejaVu:
    data = user_boxes(folder, copies)
    return DejaVu(data=data, per_class=4, largest=4, public=10, smallest=4, epochs=1, warmup=0, measures=("scores",))


def text(folder: Path, copies: int) -> Text:
    return Text(data=user_texts(folder, copies), documents=20, models=4, epochs=1)


AUDITS = [
    (MEMBERSHIP, membership),
    (DENSITY, density),
    (FORGETTING, forgetting),
    (UNIQUE_FEATURE, unique_feature),
    (DEJA_VU, deja_vu),
    (TEXT, text),
]


def planned_copies(audit: Audit, config: Any) -> CopyCount:
    """What the summary is told of copies."""
    copies: CopyCount = audit.plan(config)["summary"].config.copies
    return copies


@pytest.mark.parametrize(("audit", "make"), AUDITS)
def test_every_audit_counts_copies(audit: Audit, make: Any, tmp_path: Path) -> None:
    copies = planned_copies(audit, make(tmp_path, COPIED))
    assert copies.groups == 1
    assert copies.images == COPIED


@pytest.mark.parametrize(("audit", "make"), AUDITS)
def test_without_copies_nothing_is_counted(audit: Audit, make: Any, tmp_path: Path) -> None:
    assert planned_copies(audit, make(tmp_path, 1)) == CopyCount()
