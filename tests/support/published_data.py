"""Data sets with the names, shapes and classes of published ones, in the published file formats, large enough to plan.

Every class is equally frequent. ENGRAM_DATA may name the folder that contains their files.
"""

from __future__ import annotations

import io
import pickle
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.io import savemat

from tests.tasks.datasets import test_acdc

Pixels = NDArray[np.uint8]
CIFAR_BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")


numbered = 0  # images made before


def black(count: int, *shape: int) -> Pixels:
    """Black images, except for their number in the first four levels, which makes all images different."""
    global numbered
    images = np.zeros((count, *shape), np.uint8)
    numbers = np.arange(numbered + 1, numbered + 1 + count, dtype="<u4")
    images.reshape(count, -1)[:, :4] = numbers.view(np.uint8).reshape(count, 4)
    numbered += count
    return images


def labels(count: int) -> NDArray[np.uint8]:
    return (np.arange(count) % 10).astype(np.uint8)


def mnist(folder: Path, train: Pixels, test: Pixels) -> None:
    """Images (n, height, width), in the files of MNIST and of Fashion-MNIST."""
    folder.mkdir(parents=True)
    for part, images in (("train", train), ("t10k", test)):
        header = struct.pack(">4B3I", 0, 0, 8, 3, *images.shape)
        (folder / f"{part}-images-idx3-ubyte").write_bytes(header + images.tobytes())
        header = struct.pack(">4BI", 0, 0, 8, 1, len(images))
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(header + labels(len(images)).tobytes())


def cifar10(folder: Path, train: Pixels, test: Pixels) -> None:
    """Images (n, 3072). The training images are split into five equal batches."""
    folder.mkdir(parents=True)
    for name, images in zip(CIFAR_BATCHES, (*np.split(train, 5), test), strict=True):
        batch = {b"data": images, b"labels": labels(len(images)).tolist()}
        (folder / name).write_bytes(pickle.dumps(batch, protocol=2))


def celeba(folder: Path, train: int, test: int) -> None:
    """In torchvision's layout: `test` validation images, and one test image, which is never read."""
    image_folder = folder / "img_align_celeba"
    image_folder.mkdir(parents=True)
    out = io.BytesIO()
    Image.new("RGB", (178, 218)).save(out, "JPEG")
    lines = []
    for number, partition in enumerate([0] * train + [1] * test + [2], start=1):
        (image_folder / f"{number:06}.jpg").write_bytes(out.getvalue())
        lines.append(f"{number:06}.jpg {partition}\n")
    (folder / "list_eval_partition.txt").write_text("".join(lines))


def svhn(folder: Path, pixels: Pixels) -> None:
    """Images (32, 32, 3, n), the same in each of the three files."""
    folder.mkdir(parents=True)
    for name in ("train", "test", "extra"):
        savemat(folder / f"{name}_32x32.mat", {"X": pixels, "y": labels(pixels.shape[-1])[:, None] + 1})


def acdc(folder: Path, patients: int = 6) -> None:
    """Patients of all classes in turn. The first two thirds were scanned at 1.5 T and the others at 3 T."""
    groups = ("DCM", "HCM", "MINF", "NOR", "RV")
    lines = ["patient,tesla"]
    for number in range(1, patients + 1):
        test_acdc.write_patient(folder / "training", number, groups[number % 5], test_acdc.volume(number), packed=False)
        lines.append(f"{number},{'1.5' if 3 * number <= 2 * patients else '3'}")
    (folder / "field_strengths.csv").write_text("\n".join([*lines, ""]))
