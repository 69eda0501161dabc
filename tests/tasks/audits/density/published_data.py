"""Data sets with the names, shapes and classes of the published ones, without their images: enough to plan with.

There are few images, since no plan depends on how many there are: of the density audit only the number that is drawn
of the model does, and the bound on `examples`. Whoever needs the published counts gives them.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

from tests.support.benchmark_data import write_cifar10, write_mnist

TRAIN, TEST = 200, 100


def write(root: Path, train: int = TRAIN, test: int = TEST) -> Path:
    """MNIST, CIFAR-10 and CelebA in black, each class as often as any other; ENGRAM_DATA may name the root.

    CIFAR-10's training images are in five batches: `train` must be a multiple of 5.
    """
    write_mnist(root / "mnist", *(np.zeros((count, 28, 28), np.uint8) for count in (train, test)))
    batches = [np.zeros((count, 3072), np.uint8) for count in (*[train // 5] * 5, test)]
    write_cifar10(root / "cifar-10-batches-py", batches[:5], batches[5])
    celeba(root / "celeba", train, test)
    return root


def celeba(place: Path, train: int, test: int) -> None:
    """In torchvision's layout: `test` validation images, and one of the test images, which nobody reads."""
    pictures = place / "img_align_celeba"
    pictures.mkdir(parents=True)
    out = io.BytesIO()
    Image.new("RGB", (178, 218)).save(out, "JPEG")
    partitions = [0] * train + [1] * test + [2]
    names = [f"{number:06}.jpg" for number in range(1, len(partitions) + 1)]
    for name in names:
        (pictures / name).write_bytes(out.getvalue())
    lines = [f"{name} {partition}\n" for name, partition in zip(names, partitions, strict=True)]
    (place / "list_eval_partition.txt").write_text("".join(lines))
