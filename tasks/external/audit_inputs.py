"""The records that `engram.audit` accepts: two sets of records in any common form, converted to a single form.

A set is (images, labels), a data set or data loader of such pairs, a pandas data frame, a mapping, or the name or
folder of a data set, which is decoded as in every other audit. If a set cannot be read, a ValueError names it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tasks.datasets.images import is_table
from tasks.datasets.large_images import LargeImages
from tasks.datasets.picture_rows import Concatenated, ConvertedRows, Selected, gather, slices, whole_split

if TYPE_CHECKING:
    from tasks.datasets.images import PictureSet

Array = NDArray[Any]
Records = NDArray[Any] | Selected | ConvertedRows  # (n, ...): an array, or images that are read by rows
Labels = NDArray[np.int64]

FEWEST = 20  # records per set
BYTE = 255
IMAGE_NAMES = ("images", "image", "pixel_values", "inputs", "features", "data", "x", "X", "img")
LABEL_NAMES = ("labels", "label", "targets", "target", "y", "fine_label", "class")
EXPECTED = (
    "expected (images, labels), a data set or loader of pairs (image, label) with images of one shape, or the folder "
    "or name of a data set"
)


@dataclass(frozen=True, eq=False)
class RecordSet:
    """Images (n, ...) and labels (n,), with class names if known, and notes on conversions.

    `positions` (n,) are the records' positions in the user's set. None if no record was left out.

    Images of a data set that is read by rows (`tasks.datasets.large_images`) are not in memory. `hashes` (n, 32) then
    identify its records, which are copies if their files are equal.
    """

    images: Records
    labels: Labels
    classes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    positions: Labels | None = None
    hashes: NDArray[np.uint8] | None = None

    def select(self, rows: Array) -> RecordSet:
        return replace(
            self,
            images=self.images[rows] if isinstance(self.images, np.ndarray) else self.images.select(rows),
            labels=self.labels[rows],
            positions=self.rows()[rows],
            hashes=None if self.hashes is None else self.hashes[rows],
        )

    def convert(self, conversion: Callable[[Array], Array]) -> RecordSet:
        """Return the records with converted images. The conversion does not depend on the other images."""
        match self.images:
            case Selected():
                images: Records = ConvertedRows(self.images, conversion)
            case ConvertedRows():
                images = self.images.then(conversion)
            case _:
                images = conversion(self.images)
        return replace(self, images=images)

    def rows(self) -> Labels:
        """Return each record's position in the user's set, (n,)."""
        return np.arange(len(self.labels)) if self.positions is None else self.positions


def read_sets(members: Any, nonmembers: Any) -> tuple[RecordSet, RecordSet]:
    """Read both sets, on the same scale and without copies.

    Raises ValueError if a set cannot be read or has too few records, if the sets share a record, or if their class
    names differ.
    """
    return compatible_sets(_read_set(members, "members"), _read_set(nonmembers, "nonmembers"))


def compatible_sets(inside: RecordSet, outside: RecordSet) -> tuple[RecordSet, RecordSet]:
    """Return both sets on the same scale and without copies. Raises ValueError as `read_sets`."""
    if inside.classes and outside.classes and inside.classes != outside.classes:
        raise ValueError(
            f"members have the classes {_shown(inside.classes)} and nonmembers {_shown(outside.classes)}; both sets "
            "must have the same class names, because classes are numbered by name"
        )
    are_tables = all(isinstance(images, np.ndarray) and is_table(images) for images in (inside.images, outside.images))
    if not are_tables and is_bytes(inside.images) and _is_unit(outside.images):
        inside = scale(inside, "members")
    elif not are_tables and is_bytes(outside.images) and _is_unit(inside.images):
        outside = scale(outside, "nonmembers")
    have_layouts = len(inside.images.shape) > 2 and len(outside.images.shape) > 2
    if inside.images.shape[1:] == outside.images.shape[1:] or not have_layouts:
        check_distinct(inside, outside)
    return _drop_copies(inside, "members"), _drop_copies(outside, "nonmembers")


def _shown(names: tuple[str, ...]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def is_bytes(images: Records) -> bool:
    """Return whether images are integers from 0 to 255, as in image files."""
    if not isinstance(images, np.ndarray):
        return _dtype_of(images) == np.uint8
    if images.dtype == np.uint8:
        return True
    if images.dtype == bool or images.min() < 0 or not 1 < images.max() <= BYTE:
        return False
    return bool(np.array_equal(images, np.rint(images)))


def _dtype_of(images: Records) -> np.dtype[Any]:
    """Return the type of the values, without reading an image."""
    return np.dtype(np.uint8) if isinstance(images, Selected) else images.dtype


def _is_unit(images: Records) -> bool:
    """Return whether images are floats in [0, 1]."""
    if not isinstance(images, np.ndarray):
        return _dtype_of(images).kind == "f"  # converted from bytes
    return images.dtype.kind == "f" and bool(images.min() >= 0 and images.max() <= 1)


def scale(records: RecordSet, name: str) -> RecordSet:
    """Scale the images to [0, 1] as float32."""
    notes = (*records.notes, f"{name}: images were scaled from [0, 255] to [0, 1]")
    return replace(records.convert(lambda images: np.divide(images, BYTE, dtype=np.float32)), notes=notes)


def _read_set(source: Any, name: str) -> RecordSet:
    if isinstance(source, str | Path):
        return _read_named_set(source, name)
    try:
        images, labels = _images_and_labels(source)
    except Exception as error:  # the user's objects may raise any exception
        raise ValueError(f"{name} is {type(source).__name__}; {EXPECTED}: {_one_line(error)}") from None
    return RecordSet(_checked_images(images, labels, name), _checked_labels(labels, name))


def _images_and_labels(source: Any) -> tuple[Array, Array]:
    """Return the image and label arrays of a set in any form."""
    if isinstance(source, tuple | list) and len(source) == 2:
        return _stacked(source[0]), _array(source[1])
    if hasattr(source, "columns") and hasattr(source, "iloc"):  # a pandas data frame
        label = _find_name(list(source.columns), LABEL_NAMES)
        return _array(source.drop(columns=[label])), _array(source[label])
    if isinstance(source, Mapping):
        return _stacked(source[_find_name(source, IMAGE_NAMES)]), _array(source[_find_name(source, LABEL_NAMES)])
    pairs = [tuple(map(_array, _pair(item))) for item in _items(source)]
    if not pairs:
        raise ValueError("it is empty")
    images = [image for image, _ in pairs]
    labels = [label for _, label in pairs]
    if not _has_items(source) and labels[0].ndim:  # batches
        return np.concatenate(images), np.concatenate(labels)
    return np.stack(images), np.array([label.item() if label.size == 1 else label for label in labels])


def _has_items(source: Any) -> bool:
    """Return whether the source can be indexed, unlike a data loader or an iterable data set."""
    return hasattr(source, "__getitem__") and hasattr(source, "__len__")


def _items(source: Any) -> Iterator[Any]:
    if _has_items(source):
        return (source[number] for number in range(len(source)))
    if not isinstance(source, Iterable):
        raise TypeError("it has no records")
    return iter(source)


def _pair(item: Any) -> tuple[Any, Any]:
    if isinstance(item, Mapping):
        return item[_find_name(item, IMAGE_NAMES)], item[_find_name(item, LABEL_NAMES)]
    if not isinstance(item, tuple | list) or len(item) < 2:
        raise ValueError(f"its items are {type(item).__name__}, not pairs of image and label")
    return item[0], item[1]


def _find_name(names: Iterable[Any], accepted_names: tuple[str, ...]) -> str:
    present = [str(name) for name in names]
    for name in accepted_names:
        if name in present:
            return name
    raise ValueError(f"it has {', '.join(present[:8]) or 'nothing'}, and none of {', '.join(accepted_names[:5])}")


def _stacked(images: Any) -> Array:
    """Return images as a single array, from an array or a list of arrays, tensors or Pillow images."""
    if isinstance(images, list | tuple) and images and not np.isscalar(images[0]):
        return np.stack([_array(image) for image in images])
    return _array(images)


def _array(value: Any) -> Array:
    """Convert an array, tensor, series or Pillow image to a NumPy array."""
    value = value.detach().cpu() if hasattr(value, "detach") else value
    if str(getattr(value, "dtype", "")) == "torch.bfloat16":
        value = value.float()
    return np.asarray(value)


def _checked_images(images: Array, labels: Array, name: str) -> Array:
    if images.ndim < 2 or labels.shape[:1] != images.shape[:1] or images.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} has images {images.dtype} {images.shape} and labels {labels.shape}; expected (n, ...) and (n,)"
        )
    _check_count(len(images), name)
    flat_images = images.reshape(len(images), -1)
    if images.dtype.kind == "f":
        invalid_rows = np.flatnonzero(~np.isfinite(flat_images).all(axis=1))
    else:
        invalid_rows = np.zeros(0, int)
    if len(invalid_rows):
        raise ValueError(
            f"{name}: the image of record {invalid_rows[0]} is not finite; {len(invalid_rows)} of {len(images)} are not"
        )
    return images


def _check_count(count: int, name: str) -> None:
    if count < FEWEST:
        raise ValueError(f"{name} has {count} records; expected at least {FEWEST}")


def _checked_labels(labels: Array, name: str) -> Labels:
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim == 2 and labels.dtype.kind in "biuf" and _is_one_hot(labels):
        labels = labels.argmax(axis=1)
    if labels.ndim != 1:
        raise ValueError(f"{name} has labels {labels.shape}; expected one class number per record")
    is_number = labels.dtype.kind in "biuf"
    if not is_number or not np.isfinite(labels).all() or (labels != np.rint(labels)).any() or labels.min() < 0:
        first = next((label for label in labels.tolist() if not _is_class(label)), labels[0])
        raise ValueError(f"{name} has labels such as {first!r}; expected class numbers, counted from 0")
    return labels.astype(np.int64)


def _is_one_hot(labels: Array) -> bool:
    return bool(np.isin(labels, (0, 1)).all() and (labels.sum(axis=1) == 1).all())


def _is_class(label: Any) -> bool:
    return isinstance(label, int | float) and label >= 0 and float(label).is_integer()


def _read_named_set(path_or_name: str | Path, name: str) -> RecordSet:
    """Read all images of a data set by name, such as `folder:mine#64x64`, or of a folder, list or table by path."""
    from tasks.datasets import catalog
    from tasks.datasets.dataset import Dataset

    dataset_name = name_dataset(str(path_or_name), name)
    try:
        records = whole_set(catalog.load(Dataset.parse(dataset_name)), name)
    except ValueError as error:
        raise ValueError(f"{name}: {_one_line(error)}") from None
    if isinstance(records.images, np.ndarray) and is_table(records.images):
        note = f"{name}: {len(records.labels):,} rows of {dataset_name}"
        return replace(records, images=records.images.reshape(len(records.labels), -1), notes=(note,))
    note = f"{name}: {len(records.labels):,} images of {dataset_name}, in [0, 1], as (channels, height, width)"

    def to_fractions(images: Array) -> Array:
        return np.divide(images.transpose(0, 3, 1, 2), BYTE, dtype=np.float32)

    return replace(records.convert(to_fractions), notes=(note,))


def whole_set(dataset: PictureSet, name: str) -> RecordSet:
    """Return all images of a data set, of its training split first and then of its test split, as bytes (n, h, w, c).

    Images of a large data set are read by rows. Raises ValueError if there are too few.
    """
    labels = np.concatenate([dataset.train.labels, dataset.test.labels])
    if isinstance(dataset, LargeImages):
        _check_count(len(labels), name)
        by_rows = whole_split(Concatenated((dataset.train, dataset.test)))
        hashes = np.concatenate([dataset.train_hashes, dataset.test_hashes])
        return RecordSet(by_rows, labels, dataset.names, hashes=hashes)
    images = gather([whole_split(dataset.train), whole_split(dataset.test)])
    return RecordSet(_checked_images(images, labels, name), labels, dataset.names)


def name_dataset(path_or_name: str, name: str, label: str | None = None) -> str:
    """Return the name of a data set: unchanged, or of a folder, list or Parquet file that is given by its path.

    With a `label`, a CSV or Parquet file is a table of features with this label column. A given model takes the numbers
    of a table as they are in the file (`#raw`).

    Raises ValueError, with `name` as the subject, if there is no such data set, or if it has two splits.
    """
    from tasks.datasets import feature_table
    from tasks.datasets.dataset import HUB, TABLE
    from tasks.datasets.options import RAW, split
    from tasks.datasets.places import EMBEDDED, OWN

    if path_or_name.startswith(TABLE):
        plain, table_options = split(path_or_name)
        return f"{plain}{replace(table_options, label=label or table_options.label, is_raw=True)}"
    if label is not None:
        if Path(path_or_name).suffix.lower() not in feature_table.SUFFIXES:
            raise ValueError(f"{name} is {path_or_name!r}; with a label column, it must be a table (.csv or .parquet)")
        return f"{TABLE}{Path(path_or_name).expanduser()}#label={label}#{RAW}"
    if path_or_name.startswith(HUB):
        return path_or_name
    kind = path_or_name.partition(":")[0]
    if kind in OWN or path_or_name.partition("#")[0] in EMBEDDED:
        folder = Path(path_or_name.partition(":")[2].partition("#")[0]).expanduser()
    else:
        path, hash_mark, options = path_or_name.partition("#")
        folder = Path(path).expanduser()
        kinds = {".csv": "list", ".parquet": "list"}
        if folder.is_dir():
            kind = "folder"
        else:
            kind = kinds.get(folder.suffix.lower(), "")
        if not folder.exists() or not kind:
            raise ValueError(
                f"{name} is {path_or_name!r}, which is not a folder, a list (.csv, .parquet) or the name of a data set"
            )
        if kind == "folder" and (folder / "train.parquet").exists():
            kind = "parquet"
        path_or_name = f"{kind}:{folder}{hash_mark}{options}"
    if kind == "folder" and (folder / "train").is_dir() and (folder / "test").is_dir():
        raise ValueError(f"{name} is {path_or_name!r}, which has two parts; pass one part, such as {folder / 'train'}")
    return path_or_name


def _drop_copies(records: RecordSet, name: str) -> RecordSet:
    """Drop records that copy earlier records with the same label."""
    earlier_records: set[tuple[bytes, int]] = set()
    rows = []
    for row, key in enumerate(zip(_identify(records), records.labels.tolist(), strict=True)):
        if key not in earlier_records:
            earlier_records.add(key)
            rows.append(row)
    copies = len(records.labels) - len(rows)
    if not copies:
        return records
    if len(rows) < FEWEST:
        raise ValueError(
            f"{name} has {len(records.labels)} records, of which {len(rows)} differ; expected at least {FEWEST}"
        )
    note = f"{name}: {copies:,} of {len(records.labels):,} records are copies of others and count once"
    return replace(records.select(np.array(rows)), notes=(*records.notes, note))


def _identify(records: RecordSet) -> Iterator[bytes]:
    """Yield bytes for each record that only its copies share: the hash of its file, or of its values."""
    if records.hashes is not None:
        yield from (row.tobytes() for row in records.hashes)
        return
    for _, images in slices(records.images):
        yield from (hashlib.sha256(image.tobytes()).digest() for image in images)


def check_distinct(members: RecordSet, nonmembers: RecordSet) -> None:
    """Raise ValueError if any record is in both sets, whatever its dtype, or if the sets have different shapes.

    Records of two data sets that are read by rows are compared by their files.
    """
    shapes = members.images.shape[1:], nonmembers.images.shape[1:]
    if shapes[0] != shapes[1]:
        raise ValueError(f"members have shape {shapes[0]} and nonmembers {shapes[1]}; expected the same shape")
    if members.hashes is not None and nonmembers.hashes is not None:
        member_files = set(_identify(members))
        shared_count = sum(file in member_files for file in _identify(nonmembers))
    else:
        shared_count = int(_shared_records(members.images, nonmembers.images).sum())
    if shared_count:
        raise ValueError(f"{shared_count} of {len(nonmembers.labels)} nonmembers are also members; leave them out")


def _shared_records(members: Records, nonmembers: Records) -> NDArray[np.bool_]:
    """Return whether each nonmember is also a member: equal in the coarser of the two dtypes, up to float32 rounding.

    Records are sorted by a random projection, whose rounding error is bounded, and compared with their neighbours.
    """
    coarse = max(map(_coarseness, (members, nonmembers)))
    closeness = 4 * float(np.finfo(np.float32).eps)
    weights = np.random.default_rng(0).normal(size=math.prod(members.shape[1:]))
    member_projections = np.concatenate([_rounded(block, coarse) @ weights for _, block in slices(members)])
    order = np.argsort(member_projections)
    sorted_projections = member_projections[order]
    shared = np.zeros(len(nonmembers), bool)
    for part, block in slices(nonmembers):
        values = _rounded(block, coarse)
        projections = values @ weights
        reach = closeness * (np.abs(values) @ np.abs(weights)) + 1e-30
        starts = np.searchsorted(sorted_projections, projections - reach)
        ends = np.searchsorted(sorted_projections, projections + reach, side="right")
        for row in np.flatnonzero(starts < ends):
            near = _rounded(members[order[starts[row] : ends[row]]], coarse)
            is_equal = (np.abs(near - values[row]) <= closeness * np.abs(values[row])).all(axis=1)
            shared[part.start + row] = bool(is_equal.any())
    return shared


SINGLE = 0  # float32
HALF = 1  # float16 and bfloat16
BRAIN = 2  # bfloat16; these are ordered by coarseness of rounding


def _coarseness(images: Records) -> int:
    """Return the coarsest dtype that can represent the numbers.

    bfloat16 arrives as float32 with half of its bits zero.
    """
    dtype = _dtype_of(images)
    if dtype == np.float16:
        return HALF
    if dtype == np.float32 and all(_has_half_zero(block) for _, block in slices(images)):
        return BRAIN
    return SINGLE


def _has_half_zero(images: Array) -> bool:
    return not (np.ascontiguousarray(images).view(np.uint32) & 0xFFFF).any()


def _rounded(images: Array, coarseness: int) -> NDArray[np.float64]:
    """Flatten images and round them to a dtype, half to even."""
    values = images.reshape(len(images), -1).astype(np.float16 if coarseness == HALF else np.float32)
    if coarseness == BRAIN:
        bits = np.ascontiguousarray(values).view(np.uint32)
        values = ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)
    return values.astype(np.float64)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
