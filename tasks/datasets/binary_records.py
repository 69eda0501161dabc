"""Purchase-100 and Texas-100: binary records in 100 classes, the standard benchmarks for membership attacks.

| data set | files in its folder (any one is enough) |
|---|---|
| `purchase100` | `dataset_purchase` (per line, a label and 600 features), `dataset_purchase.tgz`, `purchase100.npz` |
| `texas100` | `feats` (6,169 features per line) and `labels` (one per line), `dataset_texas.tgz`, `texas100.npz` |

The text files, whose labels start at 1, were published by Shokri, Stronati, Song & Shmatikov 2017, "Membership
inference attacks against machine learning models", section VI.A, at github.com/privacytrustlab/datasets. The archives
in NumPy's format, with `features` and one-hot `labels`, come from github.com/xehartnort/Purchase100-Texas100-datasets.

Each record is a one-row image in which each feature is a pixel of 0 or 255. The files define no splits, so every tenth
record goes to the test split. Classes are the distinct labels (`tasks.datasets.classes`), numbered from 0.
"""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.datasets.classes import number_array
from tasks.datasets.dataset import DatasetError, file_bytes
from tasks.datasets.images import Images, Labels
from tasks.datasets.source import Source, digest_of
from tasks.worker.size_limits import TooLarge, check_archive, check_unpacked

RULE = "binary records 2"
TEST_EVERY = 10
Bits = NDArray[np.uint8]  # (records, features), each 0 or 1
Texts = Mapping[str, bytes]  # by file name


@dataclass(frozen=True)
class Names:
    """The usual file names of a data set: the text files, the archive that contains them, and the NumPy archive."""

    texts: tuple[str, ...]
    packed: str
    arrays: str

    def __str__(self) -> str:
        return f"{' and '.join(self.texts)}, {self.packed} or {self.arrays}"


FILES: Mapping[str, Names] = {
    "purchase100": Names(("dataset_purchase",), "dataset_purchase.tgz", "purchase100.npz"),
    "texas100": Names(("feats", "labels"), "dataset_texas.tgz", "texas100.npz"),
}


@dataclass(frozen=True, eq=False)
class BinaryRecords:
    """Features (records, features) and labels (records,) of a data set, from any of its file formats."""

    features: Bits
    labels: Labels  # numbered from 0, possibly with gaps

    def digest(self) -> str:
        shape = np.array(self.features.shape, np.int64)
        parts = (shape, np.packbits(self.features), self.labels)
        return digest_of(RULE, [part.tobytes() for part in parts])

    def images(self) -> Images:
        pixels = (255 * self.features)[:, None, :, None]
        test = np.arange(len(pixels)) % TEST_EVERY == TEST_EVERY - 1
        classes = number_array(self.labels)
        train_labels = classes.labels[~test]
        test_labels = classes.labels[test]
        return Images(pixels[~test], train_labels, pixels[test], test_labels, len(classes.names), classes.names)


def source(name: str, folder: Path) -> Source | None:
    """Return the data set's files in a folder, or None if there are none."""
    names = FILES[name]
    texts = tuple(folder / file_name for file_name in names.texts)
    if all(path.is_file() for path in texts):
        return Source(RULE, texts, lambda: _from_texts({path.name: file_bytes(path) for path in texts}, folder))
    readers: Mapping[str, Callable[[Path], BinaryRecords]] = {
        names.packed: lambda path: _from_texts(unpack(path, names.texts), path),
        names.arrays: from_arrays,
    }
    for file, reader in readers.items():
        path = folder / file
        if path.is_file():
            return Source(RULE, (path,), lambda reader=reader, path=path: reader(path))  # type: ignore[misc]
    return None


def unpack(path: Path, names: tuple[str, ...]) -> Texts:
    """Return these text files from any folder of a tar archive.

    Raises DatasetError if one is missing.
    """
    try:
        with tarfile.open(path) as archive:
            members = {PurePosixPath(entry.name).name: entry for entry in archive if entry.isfile()}
            text_entries = [members[name] for name in names if name in members]
            check_unpacked(sum(entry.size for entry in text_entries), path.stat().st_size)
            texts = {
                entry.name: file.read() for entry in text_entries if (file := archive.extractfile(entry)) is not None
            }
    except (OSError, EOFError, tarfile.TarError, TooLarge) as error:
        raise DatasetError(f"{path} cannot be read: {' '.join(str(error).split())[:160]}") from None
    if len(texts) < len(names):
        raise DatasetError(f"{path} has no {' and no '.join(name for name in names if name not in members)}")
    return {PurePosixPath(name).name: text for name, text in texts.items()}


def _from_texts(texts: Texts, path: Path) -> BinaryRecords:
    """Return the records of a single file whose lines begin with the label, or of `feats` and `labels`."""
    parsed = [_parse_numbers(text, f"{name} in {path}") for name, text in texts.items()]
    if len(parsed) == 1:
        features = parsed[0][:, 1:]
        labels = parsed[0][:, 0]
    else:
        features = parsed[0]
        labels = parsed[1][:, 0]
    return _check_records(features, labels.astype(np.int64) - 1, path)


def _parse_numbers(text: bytes, where: str) -> NDArray[np.uint8]:
    """Parse lines of comma-separated integers from 0 to 255 into an array (lines, numbers)."""
    from pyarrow import csv

    columns = text.partition(b"\n")[0].count(b",") + 1
    names = [str(number) for number in range(columns)]
    try:
        table = csv.read_csv(
            io.BytesIO(text),
            csv.ReadOptions(column_names=names),
            convert_options=csv.ConvertOptions(column_types=dict.fromkeys(names, pa.uint8()), null_values=[]),
        )
    except pa.ArrowException as error:
        raise DatasetError(f"{where} is not a table of integers: {' '.join(str(error).split())[:160]}") from None
    return np.stack([column.to_numpy() for column in table.columns], axis=1)


def from_arrays(path: Path) -> BinaryRecords:
    """Return the records of a NumPy archive with `features` and `labels`. Labels are one-hot or start at 0."""
    content = file_bytes(path)
    try:
        check_archive(content)
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            features = arrays["features"]
            labels = arrays["labels"]
    except (TooLarge, KeyError, ValueError, OSError, zipfile.BadZipFile) as error:
        reason = error.args[0] if error.args else error
        raise DatasetError(f"{path} has no arrays features and labels that can be read: {reason}") from None
    if labels.ndim == 2:
        if labels.shape[1] == 1:
            labels = labels[:, 0]
        else:
            labels = labels.argmax(axis=1)
    return _check_records(features, labels, path)


def _check_records(features: NDArray[np.generic], labels: NDArray[np.generic], path: Path) -> BinaryRecords:
    """Raise DatasetError unless all features are 0 or 1 and each record has a label of at least 0."""
    if features.ndim != 2 or labels.shape != features.shape[:1] or len(features) < TEST_EVERY:
        raise DatasetError(
            f"{path} has features {features.shape} and labels {labels.shape}; expected a label for each of at least "
            f"{TEST_EVERY} records"
        )
    invalid_positions = np.argwhere((features != 0) & (features != 1))
    if len(invalid_positions):
        row, column = invalid_positions[0]
        raise DatasetError(f"{path}: feature {column} of record {row} is {features[row, column]}; it must be 0 or 1")
    numbers = labels.astype(np.int64)
    if (numbers != labels).any():
        row = int(np.argmax(numbers != labels))
        raise DatasetError(f"{path}: the label of record {row} is {labels[row]}; it must be a whole number")
    if (numbers < 0).any():
        raise DatasetError(f"{path}: the label of record {int(np.argmax(numbers < 0))} is too low")
    return BinaryRecords(features.astype(np.uint8), numbers)
