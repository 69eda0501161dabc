"""Images in the files of MNIST and CIFAR-10, each of the ten classes as often as any other."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.audit import idx

Images = NDArray[np.uint8]


def ten_classes(count: int) -> NDArray[np.int64]:
    return np.arange(count) % 10


def write_mnist(folder: Path, train: Images, test: Images) -> None:
    """Training and test images (n, height, width), with their labels."""
    folder.mkdir(parents=True)
    for part, images in (("train", train), ("t10k", test)):
        (folder / f"{part}-images-idx3-ubyte").write_bytes(idx(images))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(idx(ten_classes(len(images)).astype(np.uint8)))


def write_cifar10(folder: Path, train: Sequence[Images], test: Images) -> None:
    """Five batches of training images and one of test images, (n, 3072) each."""
    folder.mkdir(parents=True)
    for name, images in zip((*(f"data_batch_{at}" for at in range(1, 6)), "test_batch"), (*train, test), strict=True):
        batch = {b"data": images, b"labels": ten_classes(len(images)).tolist()}
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
