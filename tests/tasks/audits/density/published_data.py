"""Data sets with the names, shapes and classes of the published ones, without their images: enough to plan with.

There are few images, since no plan depends on how many there are: of the density audit only the number that is drawn
of the model does, and the bound on `examples`. Whoever needs the published counts gives them.
"""

from __future__ import annotations

import io
import pickle
import struct
from pathlib import Path

import numpy as np
from PIL import Image

TRAIN, TEST = 200, 100


def write(root: Path, train: int = TRAIN, test: int = TEST) -> Path:
    """MNIST, CIFAR-10 and CelebA in black, each class as often as any other; ENGRAM_DATA may name the root.

    CIFAR-10's training images are in five batches: `train` must be a multiple of 5.
    """
    mnist(root / "mnist", train, test)
    cifar10(root / "cifar-10-batches-py", train, test)
    celeba(root / "celeba", train, test)
    return root


def mnist(place: Path, train: int, test: int) -> None:
    place.mkdir(parents=True)
    for part, count in (("train", train), ("t10k", test)):
        header = struct.pack(">4B3I", 0, 0, 8, 3, count, 28, 28)
        (place / f"{part}-images-idx3-ubyte").write_bytes(header + bytes(count * 784))
        labels = (np.arange(count) % 10).astype(np.uint8)
        (place / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">4BI", 0, 0, 8, 1, count) + labels.tobytes())


def cifar10(place: Path, train: int, test: int) -> None:
    place.mkdir(parents=True)
    for name, count in (*((f"data_batch_{number}", train // 5) for number in range(1, 6)), ("test_batch", test)):
        batch = {b"data": np.zeros((count, 3072), np.uint8), b"labels": [row % 10 for row in range(count)]}
        (place / name).write_bytes(pickle.dumps(batch, protocol=2))


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
