"""MNIST, or random images of the same shape if MNIST is not available."""

from __future__ import annotations

import numpy as np

from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.images import Images


def images(count: int) -> tuple[str, Images]:
    """Return a name for the data and the first MNIST images, or random images if MNIST is not available."""
    try:
        data = load(Dataset("mnist"))
        train = data.train_images[:count]
        labels = data.train_labels[:count]
        return "MNIST", Images(train, labels, data.test_images[:count], data.test_labels[:count], data.classes)
    except DatasetError:
        stream = np.random.default_rng(0)
        pixels = stream.integers(0, 256, (count, 28, 28, 1), dtype=np.uint8)
        labels = stream.integers(0, 10, count)
        few = min(count, 10_000)
        return "random images of MNIST's shape", Images(pixels, labels, pixels[:few], labels[:few], 10)
