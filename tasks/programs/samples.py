"""Score records by the samples of a generator that a training program returns.

score(i) = -distance of record i to its nearest sample

A higher score means that the generator came nearer to the record. The program writes one file or folder of samples:

| data set | file | content |
|---|---|---|
| `table:` | `samples.csv`, `samples.parquet` | the feature columns by name, and perhaps the label column |
| images | `samples.npz` | `images` (n, height, width, channels), bytes or numbers in [0, 1] |
| images | `samples` | a folder with one image file per sample |

Features are standardised and texts are one-hot, with the encoding of the data set (`tasks.datasets.feature_columns`).
It is fitted to all rows and does not depend on the halves. With `#raw`, numbers are standardised here.
The label counts as a text column if the samples have one. Pixels are in [0, 1]. A user's embedding may map both to
vectors.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.datasets.dataset import DatasetError, file_bytes
from tasks.datasets.feature_table import read_rows_like
from tasks.datasets.images import Indices, PictureSet, fractions
from tasks.datasets.picture_folder import visible
from tasks.datasets.picture_rows import Selected, empty_rows, slices
from tasks.datasets.pictures import SUFFIXES, PictureError, map_in_threads, pixels
from tasks.numerics.nearest_neighbours import nearest
from tasks.programs.embedding import Embedding
from tasks.worker.size_limits import TooLarge, check_archive

Scores = NDArray[np.float64]
Values = NDArray[np.float32]  # the features of a table (n, features), or images (n, channels, height, width)
Shape = tuple[int, int, int]  # height, width, channels

TABLES = ("samples.csv", "samples.parquet")
ARRAYS = "samples.npz"
FOLDER = "samples"
NAMES = (*TABLES, ARRAYS, FOLDER)
IMAGES = "images"  # the array in the .npz file


def score_samples(folder: Path, records: PictureSet, rows: Indices, embedding: Embedding | None = None) -> Scores:
    """Return minus the distance of these training records to their nearest sample, (rows,). The search is exact.

    Raises DatasetError if the samples are missing or do not have the form of the records, and ValueError if the
    embedding fails.
    """
    record_points, sample_points = read_points(folder, records, rows, embedding)
    distances: Scores = nearest(record_points, sample_points, 1).distances[:, 0]
    return 0.0 - distances


def read_points(
    folder: Path, records: PictureSet, rows: Indices, embedding: Embedding | None = None
) -> tuple[Values, Values]:
    """Return these records (rows, d) and all samples (n, d) as points. Raises the same errors as `score_samples`."""
    path = find_samples(folder, records.is_table)
    if records.is_table:
        inputs = _table_inputs(path, records, rows)
    else:
        samples = _read_images(path, records.shape)
        inputs = _channels_first(_read_fractions(records, rows)), _channels_first(samples)
    if embedding is None:
        record_points, sample_points = (values.reshape(len(values), -1) for values in inputs)
    else:
        record_points, sample_points = (embedding.embed(values) for values in inputs)
    return record_points, sample_points


def find_samples(folder: Path, is_table: bool) -> Path:
    """Return the file or folder of the samples.

    Raises DatasetError if there is none, if there are two, or if it does not fit the data set.
    """
    present = [name for name in NAMES if (folder / name).exists()]
    expected = TABLES if is_table else (ARRAYS, FOLDER)
    if len(present) > 1:
        raise DatasetError(f"{folder} has {' and '.join(present)}; write only one")
    if not present:
        raise DatasetError(f"{folder} has no samples; write {' or '.join(expected)} into it")
    if present[0] not in expected:
        kind = "a table" if is_table else "images"
        raise DatasetError(f"{folder} has {present[0]}, and the data set is {kind}; write {' or '.join(expected)}")
    return folder / present[0]


def _table_inputs(path: Path, records: PictureSet, rows: Indices) -> tuple[Values, Values]:
    """Return the encoded records and samples (n, features), and the classes of both if the samples have them."""
    encoding = records.encoding
    if encoding is None:
        raise DatasetError(f"{path} cannot be compared with these records, which have no column names; use table:FILE")
    samples, classes = read_rows_like(path, encoding)
    features: NDArray[Any] = records.train.pixels(rows)[:, 0, 0]
    if encoding.is_raw:
        features = encoding.encode(list(features.T.astype(np.float64)))
    if classes is not None:
        labels = records.train.labels[rows]
        features = np.hstack([features, encoding.label.encode(labels.astype(np.float64))])
        samples = np.hstack([samples, encoding.label.encode(classes.astype(np.float64))])
    return features, samples


def _read_fractions(records: PictureSet, rows: Indices) -> Values:
    """Return training images in [0, 1], (rows, height, width, channels)."""
    images = Selected(records.train, rows)
    out: Values = empty_rows(images.shape, np.float32)
    for part, image_block in slices(images):
        out[part] = fractions(image_block)
    return out


def _channels_first(images: Values) -> Values:
    """Return images (n, height, width, channels) as (n, channels, height, width)."""
    return images.transpose(0, 3, 1, 2)


def _read_images(path: Path, shape: Shape) -> Values:
    """Return the samples in [0, 1], (n, height, width, channels)."""
    if path.name == FOLDER:
        images = _read_folder(path, shape)
    else:
        images = _read_arrays(path)
    if images.ndim == 3:
        images = images[..., None]
    if images.ndim != 4 or images.shape[1:] != shape:
        raise DatasetError(f"{path} has {IMAGES} {images.shape}; write (n, {', '.join(map(str, shape))})")
    if not len(images):
        raise DatasetError(f"{path} has no images; write at least one sample")
    if images.dtype == np.uint8:
        return fractions(images)
    if images.dtype.kind != "f":
        raise DatasetError(f"{path} has {IMAGES} of type {images.dtype}; write uint8, or numbers in [0, 1]")
    valid = ((images >= 0) & (images <= 1)).reshape(len(images), -1).all(axis=1)  # NaN is not
    if not valid.all():
        raise DatasetError(
            f"{path}: image {int(np.argmin(valid))} of {len(images)}, counted from 0, has values outside [0, 1] or "
            "NaN; write uint8, or numbers in [0, 1]"
        )
    return images.astype(np.float32)


def _read_folder(path: Path, shape: Shape) -> NDArray[np.uint8]:
    files = visible(path)
    other = next((file for file in files if file.suffix.lower() not in SUFFIXES or not file.is_file()), None)
    if other is not None:
        allowed = ", ".join(suffix.lstrip(".") for suffix in SUFFIXES)
        raise DatasetError(f"{other} is not an image file; write only images ({allowed}) into {FOLDER}")

    def one(file: Path) -> NDArray[np.uint8]:
        try:
            image = pixels(file_bytes(file), shape[2])
        except PictureError as error:
            raise DatasetError(f"{file} {error}") from None
        if image.shape != shape:
            sizes = [f"{height} x {width}" for height, width, _ in (image.shape, shape)]
            raise DatasetError(f"{file} is {sizes[0]}, and the records are {sizes[1]}; write samples of this size")
        return image

    images = np.empty((len(files), *shape), np.uint8)
    for row, image in enumerate(map_in_threads(one, files)):
        images[row] = image
    return images


def _read_arrays(path: Path) -> NDArray[Any]:
    content = file_bytes(path)
    try:
        check_archive(content)
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            if IMAGES not in arrays:
                names = ", ".join(arrays) or "no array"
                raise DatasetError(f"{path} has {names}, but no {IMAGES}; save it with numpy.savez(path, images=...)")
            images: NDArray[Any] = arrays[IMAGES]
    except DatasetError:
        raise
    except (TooLarge, TypeError, AttributeError, ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        reason = " ".join(str(error).split())[:160]
        raise DatasetError(f"{path} cannot be read: {reason}; save it with numpy.savez(path, images=...)") from None
    return images
