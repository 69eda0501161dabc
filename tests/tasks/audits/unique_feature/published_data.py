"""Data sets with the names, splits and shapes of the published ones, without their images: enough to plan with."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.support.benchmark_data import write_cifar10, write_mnist


def write(root: Path) -> Path:
    """MNIST, Fashion-MNIST and CIFAR-10, of one shade each."""
    for shade, folder in enumerate(("mnist", "fashion-mnist")):
        write_mnist(root / folder, *(np.full((count, 28, 28), shade, np.uint8) for count in (60_000, 10_000)))
    batch = np.zeros((10_000, 3072), np.uint8)
    write_cifar10(root / "cifar-10-batches-py", [batch] * 5, batch)
    return root
