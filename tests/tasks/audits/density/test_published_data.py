"""The black data sets are read as the published ones would be."""

from pathlib import Path

import pytest

from tasks.datasets import catalog
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tests.tasks.audits.density import published_data


@pytest.mark.parametrize(
    ("name", "shape", "classes"), [("mnist", (28, 28, 1), 10), ("cifar10", (32, 32, 3), 10), ("celeba", (32, 32, 3), 1)]
)
def test_they_have_the_published_shapes_and_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, shape: tuple[int, int, int], classes: int
) -> None:
    monkeypatch.setattr(catalog, "_loaded", {})
    monkeypatch.setenv("ENGRAM_DATA", str(published_data.write(tmp_path, 20, 10)))
    images = load(pin(Dataset(name)))
    assert (shape, classes) == (images.shape, images.classes)
    assert (20, 10) == (len(images.train_images), len(images.test_images))
    assert 0 == images.train_images.max()
