"""CIFAR-10 in its published form: a folder of six Python pickles, read without running what they might contain.

Format: Krizhevsky, "The CIFAR-10 and CIFAR-100 datasets", dataset layout, Python version.
"""

from __future__ import annotations

import importlib
import io
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tasks.datasets.content import Source, digest_of
from tasks.datasets.dataset import DatasetError
from tasks.datasets.images import Images, Labels, Pixels

RULE = "cifar pickles 1"
TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST = ("test_batch",)
CLASSES = 10

# All that a pickled batch of NumPy arrays, byte strings, lists and dicts names, in NumPy 1's and 2's spelling.
ALLOWED = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy.core.numeric", "_frombuffer"),
    ("numpy._core.numeric", "_frombuffer"),
}


class ArraysOnly(pickle.Unpickler):
    """Unpickles NumPy arrays, numbers, byte strings, lists and dicts; refuses to name anything else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("_codecs", "encode"):
            return latin1  # how bytes are written before protocol 3
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no batch of images needs")
        return getattr(importlib.import_module(module.replace("numpy.core", "numpy._core")), name)


def latin1(text: str, encoding: str = "latin1") -> bytes:
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it asks for the text encoding {encoding!r}")
    return text.encode("latin1")


@dataclass(frozen=True, eq=False)
class CifarContent:
    """Both splits as arrays."""

    train_images: Pixels
    train_labels: Labels
    test_images: Pixels
    test_labels: Labels

    def digest(self) -> str:
        arrays = (self.train_images, self.train_labels, self.test_images, self.test_labels)
        return digest_of(RULE, [np.ascontiguousarray(array).data for array in arrays])

    def images(self) -> Images:
        return Images(self.train_images, self.train_labels, self.test_images, self.test_labels, CLASSES)


def source(folder: Path) -> Source | None:
    """The folder's six batches; None unless all are there."""
    files = tuple(folder / name for name in (*TRAIN, *TEST))
    return Source(RULE, files, lambda: read(folder)) if all(path.is_file() for path in files) else None


def read(folder: Path) -> CifarContent:
    return CifarContent(*batches(folder, TRAIN), *batches(folder, TEST))


def batches(folder: Path, names: Sequence[str]) -> tuple[Pixels, Labels]:
    """The images (n, 32, 32, 3) and labels of several batches, one after another."""
    parts = [batch(folder / name) for name in names]
    return np.concatenate([images for images, _ in parts]), np.concatenate([labels for _, labels in parts])


def batch(path: Path) -> tuple[Pixels, Labels]:
    try:
        content = ArraysOnly(io.BytesIO(path.read_bytes()), encoding="bytes").load()
    except Exception as error:  # an unpickler fed with broken bytes raises nearly anything
        raise DatasetError(f"{path} is not a batch of CIFAR images: {error}") from error
    rows, labels = field(content, "data"), field(content, "labels")
    if not isinstance(rows, np.ndarray) or rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != 3072:
        raise DatasetError(f"{path}: data is not uint8 (n, 3072)")
    if not isinstance(labels, (list, np.ndarray)) or len(labels) != len(rows):
        raise DatasetError(f"{path}: labels are not a list of {len(rows)} numbers")
    # A row holds 1024 red, then green, then blue values.
    pixels = np.ascontiguousarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
    return pixels, np.asarray(labels, np.int64)


def field(content: object, name: str) -> object:
    """A batch's field, whether its keys were written as text or as bytes."""
    if not isinstance(content, Mapping):
        return None
    return content.get(name.encode(), content.get(name))
