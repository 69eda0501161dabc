"""The members and the non-members of the loss attack: of two data sets, of one part, or as recorded from memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tasks.audits.membership.loss_config import LossSource, Recording, TrainedExample
from tasks.contract.schemas import make_table
from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import BalancedHalf, Part
from tasks.numerics import seeds
from tasks.worker import files
from tasks.worker.files import File

if TYPE_CHECKING:
    from tasks.datasets.images import Pixels
    from tasks.external.audit_inputs import Array, RecordSet

RECORDED = pa.schema(
    [
        ("member", pa.bool_()),
        ("label", pa.int64()),
        ("height", pa.int64()),
        ("width", pa.int64()),
        ("channels", pa.int64()),
        ("pixels", pa.large_binary()),  # bytes (height, width, channels)
    ]
)


@dataclass(frozen=True)
class DataSetPair:
    """All images of two data sets."""

    members: Dataset
    non_members: Dataset


@dataclass(frozen=True)
class HalfPair:
    """Two halves of a part."""

    members: BalancedHalf
    non_members: BalancedHalf


@dataclass(frozen=True)
class RecordedPair:
    """Both sets of a recording by `engram.audit` (RECORDED)."""

    images: File


RecordPair = DataSetPair | HalfPair | RecordedPair


def pair_of(source: LossSource, seed: int) -> RecordPair:
    """Return both sets of a source. `seed` is the seed of the run."""
    match source:
        case TrainedExample():
            return halves_of(source, seed)
        case Recording(images=images):
            assert images is not None  # otherwise the config has a conflict
            return RecordedPair(images)
        case _:
            return DataSetPair(source.members, source.non_members)


def halves_of(example: TrainedExample, seed: int) -> HalfPair:
    """Return the random halves of the first images of an example."""
    part = Part(example.data, 0, 2 * example.examples)
    design = seeds.derive(seed, "design")
    return HalfPair(BalancedHalf(part, 2, 0, design), BalancedHalf(part, 2, 1, design))


@lru_cache(maxsize=2)  # the trainings of a run read the same sets
def read_pair(pair: RecordPair) -> tuple[RecordSet, RecordSet]:
    """Read both sets as bytes (n, h, w, c), without copies. The order of the records is that of their scores.

    Raises ValueError if a set has too few images, if both share an image, or if their classes differ.
    """
    from tasks.external.audit_inputs import compatible_sets, whole_set

    match pair:
        case DataSetPair():
            inside = whole_set(load(pair.members), "members")
            outside = whole_set(load(pair.non_members), "non_members")
            return compatible_sets(inside, outside)
        case HalfPair():
            return compatible_sets(_read_half(pair.members), _read_half(pair.non_members))
        case RecordedPair():
            return _read_recorded(pair.images)


def _read_half(half: BalancedHalf) -> RecordSet:
    from tasks.external.audit_inputs import RecordSet

    images = load(half.part.data)
    rows = half.rows(images)
    return RecordSet(images.train_images[rows], images.train_labels[rows], images.names, positions=rows)


def record_images(inside: RecordSet, outside: RecordSet) -> pa.Table:
    """Return both sets as images that networks are trained on here (RECORDED).

    Records other than bytes are scaled from [0, 1] or, if they have other values, from the range of both sets.
    """
    pixels = _as_pixels(np.concatenate([inside.images, outside.images]))
    _, height, width, channels = pixels.shape
    encoded = [image.tobytes() for image in pixels]
    return make_table(
        RECORDED,
        member=np.arange(len(pixels)) < len(inside.labels),
        label=np.concatenate([inside.labels, outside.labels]),
        height=height,
        width=width,
        channels=channels,
        pixels=pa.array(encoded, pa.large_binary()),
    )


def _as_pixels(records: Array) -> Pixels:
    """Convert records of any shape to bytes (n, h, w, 1 or 3). Records other than images become one row of pixels."""
    from tasks.external.audit_inputs import BYTE, is_bytes

    if is_bytes(records):
        values = records.astype(np.uint8)
    else:
        low, high = 0.0, 1.0
        if records.min() < 0 or records.max() > 1:
            low, high = float(records.min()), float(records.max())
        shares = (records.astype(np.float64) - low) / ((high - low) or 1.0)
        values = np.rint(BYTE * shares).astype(np.uint8)
    if values.ndim == 3:
        return values[..., None]
    if values.ndim == 4 and values.shape[3] in (1, 3):
        return values
    if values.ndim == 4 and values.shape[1] in (1, 3):
        return np.ascontiguousarray(values.transpose(0, 2, 3, 1))
    return values.reshape(len(values), 1, -1, 1)


def _read_recorded(file: File) -> tuple[RecordSet, RecordSet]:
    """Read the sets of a recording. Raises FileError if it is missing, another file, or not of this form."""
    from tasks.external.audit_inputs import RecordSet

    table = read_recorded_table(file, RECORDED)
    first = table.slice(0, 1).to_pylist()[0]
    shape = first["height"], first["width"], first["channels"]
    pixels = np.frombuffer(b"".join(table["pixels"].to_pylist()), np.uint8).reshape(-1, *shape)
    labels = table["label"].to_numpy()
    is_member = np.asarray(table["member"])
    inside, outside = (RecordSet(pixels[rows], labels[rows]) for rows in (is_member, ~is_member))
    return inside, outside


def read_recorded_table(file: File, schema: pa.Schema) -> pa.Table:
    """Read a table that `engram.audit` recorded. Raises FileError if the file is missing, or another one."""
    import pyarrow.parquet as pq

    content = files.read(file)
    try:
        table = pq.read_table(pa.BufferReader(content))
    except pa.ArrowInvalid as error:
        raise files.FileError(f"{file.path} is not a Parquet file: {' '.join(str(error).split())}") from None
    if not table.schema.equals(schema):
        raise files.FileError(
            f"{file.path} has the columns {', '.join(table.column_names)}; expected a recording by "
            f"engram.audit, with {', '.join(schema.names)}"
        )
    return table.replace_schema_metadata(None)
