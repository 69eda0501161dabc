"""SVHN's cropped digits in their published form: MATLAB files, each a split of 32x32 colour images.

FOLDER/train_32x32.mat    73,257 images
FOLDER/test_32x32.mat     26,032 images
FOLDER/extra_32x32.mat    531,131 images, less difficult; only the whole set needs them

X is uint8 (32, 32, 3, n), y is (n, 1): the digit, where 10 stands for 0. The whole set takes 1.9 GB of memory, and 1.6
GB more, for its largest file, while it is read: the files are read one after another into place.

Netzer, Wang, Coates, Bissacco, Wu & Ng 2011, "Reading digits in natural images with unsupervised feature learning",
format 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tasks.datasets.content import Source, digest_of
from tasks.datasets.dataset import DatasetError
from tasks.datasets.images import Images, Labels, Pixels

RULE = "svhn 1"
# The files that each data set's training split is read from, one after another.
TRAIN: Mapping[str, tuple[str, ...]] = {
    "svhn": ("train_32x32.mat",),
    "svhn-full": ("train_32x32.mat", "extra_32x32.mat"),
}
TEST = ("test_32x32.mat",)
SHAPE, CLASSES = (32, 32, 3), 10


@dataclass(frozen=True, eq=False)
class SvhnContent:
    """Both splits as arrays."""

    train_images: Pixels
    train_labels: Labels
    test_images: Pixels
    test_labels: Labels

    def digest(self) -> str:
        arrays = (self.train_images, self.train_labels, self.test_images, self.test_labels)
        return digest_of(RULE, [array.data for array in arrays])

    def images(self) -> Images:
        return Images(self.train_images, self.train_labels, self.test_images, self.test_labels, CLASSES)


def source(name: str, folder: Path) -> Source | None:
    """The folder's files of the data set of this name, one of TRAIN; None unless all are there."""
    if lacking(name, folder):
        return None
    files = tuple(folder / part for part in (*TRAIN[name], *TEST))
    return Source(RULE, files, lambda: SvhnContent(*split(folder, TRAIN[name]), *split(folder, TEST)))


def lacking(name: str, folder: Path) -> list[str]:
    """The data set's files that are not in the folder."""
    return [part for part in (*TRAIN[name], *TEST) if not (folder / part).is_file()]


def split(folder: Path, names: Sequence[str]) -> tuple[Pixels, Labels]:
    """The images (n, 32, 32, 3) and labels of several files, one after another."""
    counts = [images_in(folder / name) for name in names]
    images = np.empty((sum(counts), *SHAPE), np.uint8)
    labels = np.empty(sum(counts), np.int64)
    ends = np.cumsum(counts)
    for name, count, end in zip(names, counts, ends, strict=True):
        read(folder / name, images[end - count : end], labels[end - count : end])
    return images, labels


def images_in(path: Path) -> int:
    """The number of images that a file announces; DatasetError unless X and y have the expected form."""
    from scipy.io import whosmat

    try:
        forms = {name: (shape, kind) for name, shape, kind in whosmat(path, appendmat=False)}
    except Exception as error:  # a reader fed with broken bytes raises nearly anything
        raise unreadable(path, error) from error
    form = forms.get("X")
    if form is None or form[1] != "uint8" or len(form[0]) != 4 or form[0][:3] != SHAPE:
        raise DatasetError(f"{path}: X is {describe_form(form)}; expected uint8 (32, 32, 3, n)")
    count, form = int(form[0][3]), forms.get("y")
    if form is None or form[0] != (count, 1):
        raise DatasetError(f"{path}: y is {describe_form(form)}; expected ({count}, 1), a label for each image in X")
    return count


def describe_form(form: tuple[tuple[int, ...], str] | None) -> str:
    return "absent" if form is None else f"{form[1]} {form[0]}"


def read(path: Path, images: Pixels, labels: Labels) -> None:
    """Fill in the images (n, 32, 32, 3) and labels of one file."""
    from scipy.io import loadmat

    try:
        content: dict[str, Any] = loadmat(path, variable_names=("X", "y"), appendmat=False)
        images[:] = content["X"].transpose(3, 0, 1, 2)
        digits = np.asarray(content["y"][:, 0], np.float64)  # some writers know no other numbers
    except Exception as error:
        raise unreadable(path, error) from error
    wrong = digits[~np.isin(digits, range(1, 11))]
    if len(wrong):
        raise DatasetError(f"{path}: y holds {wrong[0]:g}; expected 1 to 10, where 10 stands for digit 0")
    labels[:] = digits % 10


def unreadable(path: Path, error: Exception) -> DatasetError:
    message = " ".join(str(error).split()) or type(error).__name__
    return DatasetError(f"{path} is not a MATLAB file of SVHN's images: {message}")
