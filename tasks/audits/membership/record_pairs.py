"""The members and the non-members of the loss attack: of two data sets, of one part, or as recorded from memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from tasks.audits.membership.loss_config import LossSource, Recording, TrainedExample
from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tasks.datasets.large_images import LargeImages
from tasks.datasets.mixtures import BalancedHalf, Part
from tasks.datasets.picture_rows import Selected, gather
from tasks.external.recorded_sets import read_recorded_sets
from tasks.numerics import seeds
from tasks.worker.files import File

if TYPE_CHECKING:
    from tasks.external.audit_inputs import RecordSet


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
    """Both sets of a recording by `engram.audit` (`tasks.external.recorded_sets`)."""

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
    """Read both sets as bytes (n, h, w, c), by rows if they are large, without copies.

    The order of the records is that of their scores.

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
            return read_recorded_sets(pair.images)


def _read_half(half: BalancedHalf) -> RecordSet:
    from tasks.external.audit_inputs import RecordSet

    images = load(half.part.data)
    rows = half.rows(images)
    labels = images.train.labels[rows]
    selected = Selected(images.train, rows)
    if isinstance(images, LargeImages):
        return RecordSet(selected, labels, images.names, positions=rows, hashes=images.train_hashes[rows])
    return RecordSet(gather([selected]), labels, images.names, positions=rows)
