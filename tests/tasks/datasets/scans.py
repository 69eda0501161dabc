"""Small folders of images, as a user might have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from tasks.datasets import catalog
from tasks.datasets.dataset import Dataset
from tasks.datasets.large_images import LargeImages

CLASSES = ("cat", "dog")


def pixels(label: int, number: int, height: int = 6, width: int = 5) -> NDArray[np.uint8]:
    """A grey image, random but determined by label and number."""
    return np.random.default_rng([label, number]).integers(0, 256, (height, width), dtype=np.uint8)


def saved(path: Path, values: NDArray[np.uint8] | NDArray[np.uint16]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).save(path)
    return path


def classes(folder: Path, count: int = 6) -> Path:
    """FOLDER/CLASS/*.png, `count` of each."""
    for label, name in enumerate(CLASSES):
        for number in range(count):
            saved(folder / name / f"{number:02}.png", pixels(label, number))
    return folder


def damage(path: Path) -> None:
    """Change a byte in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)


def load_by_rows(dataset: Dataset) -> LargeImages:
    """The images as if they exceeded the limit for images in memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalog, "LARGE", 0)
        patch.setattr(catalog, "_loaded", {})
        images = catalog.load(dataset)
    assert isinstance(images, LargeImages)
    return images
