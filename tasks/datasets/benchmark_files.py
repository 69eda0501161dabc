"""Readers for the published files of MNIST, Fashion-MNIST, CIFAR-10 and SVHN.

MNIST and Fashion-MNIST come as IDX files, gzipped or not. Big-endian: two zero bytes, a type (8: unsigned byte), the
number of axes, each axis's length as uint32, the values. LeCun, Cortes & Burges, "The MNIST database of handwritten
digits", file formats.

CIFAR-10 comes as a folder of six Python pickles, which are read without running any code in them. Krizhevsky, "The
CIFAR-10 and CIFAR-100 datasets", dataset layout, Python version.

SVHN's cropped digits come as MATLAB files, one split of 32x32 colour images per file:

FOLDER/train_32x32.mat    73,257 images
FOLDER/test_32x32.mat     26,032 images
FOLDER/extra_32x32.mat    531,131 images, less difficult; needed only for the full set

X is uint8 (32, 32, 3, n), y is (n, 1): the digit, where 10 stands for 0. The full set of 1.9 GB is read by rows
(`tasks.datasets.svhn_files`). Netzer, Wang, Coates, Bissacco, Wu & Ng 2011, "Reading digits in natural images with
unsupervised feature learning", format 2.
"""

from __future__ import annotations

import importlib
import io
import math
import pickle
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.datasets.dataset import DatasetError
from tasks.datasets.images import Images, Labels, Pixels
from tasks.datasets.source import Source, digest_of
from tasks.datasets.svhn_files import RULE as SVHN_RULE
from tasks.datasets.svhn_files import SHAPE as SVHN_SHAPE
from tasks.datasets.svhn_files import SvhnFiles, read_blocks, unreadable_svhn
from tasks.worker.size_limits import TooLarge, gunzip

IDX_RULE = "idx 1"
IDX_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True)
class IdxContent:
    """The unpacked bytes of the four files, in the order of IDX_FILES."""

    parts: tuple[bytes, ...]

    def digest(self) -> str:
        return digest_of(IDX_RULE, self.parts)

    def images(self) -> Images:
        train, train_labels, test, test_labels = (
            parse_idx(part, name) for part, name in zip(self.parts, IDX_FILES, strict=True)
        )
        labels = [array.astype(np.int64) for array in (train_labels, test_labels)]
        classes = 1 + max((int(array.max()) for array in labels if array.size), default=0)
        return Images(train[..., None], labels[0], test[..., None], labels[1], classes)


def idx_source(folder: Path) -> Source | None:
    """Return the folder's four IDX files, gzipped or not, or None unless all exist."""
    files = tuple(path for name in IDX_FILES for path in _find_file(folder, name))
    if len(files) < len(IDX_FILES):
        return None
    return Source(IDX_RULE, files, lambda: IdxContent(tuple(_unpack_file(path) for path in files)))


def _find_file(folder: Path, name: str) -> Iterator[Path]:
    """Yield the first of NAME and NAME.gz that exists, if either does."""
    candidates = (folder / name, folder / f"{name}.gz")
    yield from [path for path in candidates if path.is_file()][:1]


def _unpack_file(path: Path) -> bytes:
    """Return the bytes of a file, decompressed if they are gzipped, regardless of the file's name."""
    try:
        raw = path.read_bytes()
        return gunzip(raw) if raw.startswith(GZIP_MAGIC) else raw
    except (OSError, EOFError, zlib.error, TooLarge) as error:
        raise DatasetError(f"{path} cannot be read: {error}") from error


def parse_idx(raw: bytes, name: str) -> NDArray[np.uint8]:
    """Return the read-only array in an IDX file of unsigned bytes."""
    axes = 3 if "idx3" in name else 1
    header = 4 + 4 * axes
    if len(raw) < header or raw[:4] != bytes((0, 0, 8, axes)):
        raise DatasetError(f"{name} is not an IDX file of {axes} axes: it begins with {raw[:4].hex() or 'nothing'}")
    shape = struct.unpack(f">{axes}I", raw[4:header])
    if len(raw) - header != math.prod(shape):
        raise DatasetError(f"{name} contains {len(raw) - header} values; its header announces {math.prod(shape)}")
    return np.frombuffer(raw, np.uint8, offset=header).reshape(shape)


CIFAR_RULE = "cifar pickles 1"
CIFAR_TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
CIFAR_TEST = ("test_batch",)
CLASSES = 10  # in CIFAR-10 and in SVHN

# The only names that pickled batches of NumPy arrays, byte strings, lists and dicts contain, for NumPy 1 and 2.
PICKLED = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy.core.numeric", "_frombuffer"),
    ("numpy._core.numeric", "_frombuffer"),
}


class ArraysOnly(pickle.Unpickler):
    """Unpickler that accepts NumPy arrays, numbers, byte strings, lists and dicts, and rejects every other type."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("_codecs", "encode"):
            return latin1  # encoding of bytes before protocol 3
        if (module, name) not in PICKLED:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which a batch of images does not need")
        return getattr(importlib.import_module(module.replace("numpy.core", "numpy._core")), name)


def latin1(text: str, encoding: str = "latin1") -> bytes:
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it asks for the text encoding {encoding!r}")
    return text.encode("latin1")


@dataclass(frozen=True, eq=False)
class ArrayContent:
    """Both splits as arrays, and the rule of the file format they were read from."""

    rule: str
    train_images: Pixels
    train_labels: Labels
    test_images: Pixels
    test_labels: Labels

    @property
    def arrays(self) -> tuple[Pixels, Labels, Pixels, Labels]:
        return self.train_images, self.train_labels, self.test_images, self.test_labels

    def digest(self) -> str:
        return digest_of(self.rule, [np.ascontiguousarray(array).data for array in self.arrays])

    def images(self) -> Images:
        return Images(*self.arrays, CLASSES)


def cifar_source(folder: Path) -> Source | None:
    """Return the folder's six batches, or None unless all exist."""
    files = tuple(folder / name for name in (*CIFAR_TRAIN, *CIFAR_TEST))
    return Source(CIFAR_RULE, files, lambda: read_cifar(folder)) if all(path.is_file() for path in files) else None


def read_cifar(folder: Path) -> ArrayContent:
    return ArrayContent(CIFAR_RULE, *_read_batches(folder, CIFAR_TRAIN), *_read_batches(folder, CIFAR_TEST))


def _read_batches(folder: Path, names: Sequence[str]) -> tuple[Pixels, Labels]:
    """Return the concatenated images (n, 32, 32, 3) and labels of several batches."""
    parts = [read_batch(folder / name) for name in names]
    return np.concatenate([images for images, _ in parts]), np.concatenate([labels for _, labels in parts])


def read_batch(path: Path) -> tuple[Pixels, Labels]:
    try:
        content = ArraysOnly(io.BytesIO(path.read_bytes()), encoding="bytes").load()
    except Exception as error:  # the unpickler can raise nearly any error for broken bytes
        raise DatasetError(f"{path} is not a batch of CIFAR images: {error}") from error
    rows = _batch_field(content, "data")
    labels = _batch_field(content, "labels")
    if not isinstance(rows, np.ndarray) or rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != 3072:
        raise DatasetError(f"{path}: data is not uint8 (n, 3072)")
    if not isinstance(labels, (list, np.ndarray)) or len(labels) != len(rows):
        raise DatasetError(f"{path}: labels are not a list of {len(rows)} numbers")
    # A row consists of 1024 red values, then the green ones, then the blue ones.
    pixels = np.ascontiguousarray(rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
    return pixels, np.asarray(labels, np.int64)


def _batch_field(content: object, name: str) -> object:
    """Return a field of a batch whose keys are either text or bytes."""
    if not isinstance(content, Mapping):
        return None
    return content.get(name.encode(), content.get(name))


# The training files of each data set.
SVHN_TRAIN: Mapping[str, tuple[str, ...]] = {
    "svhn": ("train_32x32.mat",),
    "svhn-full": ("train_32x32.mat", "extra_32x32.mat"),
}
SVHN_TEST = ("test_32x32.mat",)


def svhn_source(name: str, folder: Path) -> Source | None:
    """Return the folder's files for this data set (a key of SVHN_TRAIN), or None unless all exist."""
    if lacking_svhn_files(name, folder):
        return None
    train, test = (tuple(folder / part for part in parts) for parts in (SVHN_TRAIN[name], SVHN_TEST))

    def read() -> ArrayContent:
        return ArrayContent(SVHN_RULE, *_read_svhn_split(train), *_read_svhn_split(test))

    @cache
    def by_rows() -> SvhnFiles:
        return SvhnFiles(train, test, _images_in, _read_svhn_labels, source.stamp)

    source = Source(SVHN_RULE, (*train, *test), read, by_rows)
    return source


def lacking_svhn_files(name: str, folder: Path) -> list[str]:
    """Return the data set's files that are missing from the folder."""
    return [part for part in (*SVHN_TRAIN[name], *SVHN_TEST) if not (folder / part).is_file()]


def _read_svhn_split(paths: Sequence[Path]) -> tuple[Pixels, Labels]:
    """Return the concatenated images (n, 32, 32, 3) and labels of several files."""
    images = np.empty((sum(map(_images_in, paths)), *SVHN_SHAPE), np.uint8)
    start = 0
    for path in paths:
        for block in read_blocks(path):
            images[start : start + len(block)] = block
            start += len(block)
    return images, np.concatenate([_read_svhn_labels(path) for path in paths])


def _images_in(path: Path) -> int:
    """Return the number of images that a file announces.

    Raises DatasetError unless X and y have the expected shape and type.
    """
    from scipy.io import whosmat

    try:
        forms = {name: (shape, kind) for name, shape, kind in whosmat(path, appendmat=False)}
    except Exception as error:  # the reader can raise nearly any error for broken bytes
        raise unreadable_svhn(path, error) from error
    form = forms.get("X")
    if form is None or form[1] != "uint8" or len(form[0]) != 4 or form[0][:3] != SVHN_SHAPE:
        raise DatasetError(f"{path}: X is {_describe_form(form)}; expected uint8 (32, 32, 3, n)")
    count = int(form[0][3])
    form = forms.get("y")
    if form is None or form[0] != (count, 1):
        raise DatasetError(f"{path}: y is {_describe_form(form)}; expected ({count}, 1), a label for each image in X")
    return count


def _describe_form(form: tuple[tuple[int, ...], str] | None) -> str:
    return "absent" if form is None else f"{form[1]} {form[0]}"


def _read_svhn_labels(path: Path) -> Labels:
    """Return the labels of one file."""
    from scipy.io import loadmat

    try:
        content: dict[str, Any] = loadmat(path, variable_names=("y",), appendmat=False)
        digits = np.asarray(content["y"][:, 0], np.float64)  # some writers only support floats
    except Exception as error:
        raise unreadable_svhn(path, error) from error
    invalid_digits = digits[~np.isin(digits, range(1, 11))]
    if len(invalid_digits):
        raise DatasetError(f"{path}: y contains {invalid_digits[0]:g}; expected 1 to 10, where 10 stands for digit 0")
    return (digits % 10).astype(np.int64)
