"""Usual sets that are not here are known by their sizes while a price is asked for, and at no other time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.datasets import catalog
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.outlines import SIZES


@pytest.fixture(autouse=True)
def nothing_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path))


@pytest.mark.parametrize("name", SIZES)
def test_an_outline_has_the_size_that_is_described_and_takes_no_memory(name: str) -> None:
    with catalog.use_outlines():
        images = catalog.load(catalog.pin(Dataset(name)))
    stated = catalog.DESCRIPTIONS[name].split()[0].replace(",", "")
    assert int(stated) == len(images.train_images) + len(images.test_images)
    assert (0, 0) == (images.train_images.strides[0], images.test_images.strides[0])


def test_outside_of_a_price_and_in_another_shape_what_is_absent_is_absent() -> None:
    with catalog.use_outlines(), pytest.raises(DatasetError, match="data set 'cifar10' not found"):
        catalog.pin(Dataset("cifar10#28x28#grey"))
    with pytest.raises(DatasetError, match="data set 'mnist' not found"):
        catalog.pin(Dataset("mnist"))


def test_the_digest_of_an_outline_is_that_of_no_data_set() -> None:
    with catalog.use_outlines():
        digests = [catalog.pin(Dataset(name)).digest for name in SIZES]
    with pytest.raises(DatasetError):
        catalog.load(Dataset("svhn", "0" * 64))
    assert len(SIZES) == len(set(digests)) + 1  # mnist and fashion-mnist are of one size
