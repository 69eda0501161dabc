"""The records of a configuration, and the images that no model was trained on, as parts of data sets."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tasks.audits.membership.config import Membership
from tasks.audits.membership.given_config import GivenModel, MarkedImages, Records, TwoSets
from tasks.datasets.catalog import load
from tasks.datasets.copies import first_copies
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.mixtures import Part, overlap


@dataclass(frozen=True)
class AskedImages:
    """The records and images that a given model was not trained on; `seed` is that of their order for an owner."""

    records: Part
    unseen: Part
    seed: int

    @property
    def are_two_sets(self) -> bool:
        """Whether the other images are of another data set and do not follow the records."""
        return self.unseen.data != self.records.data


def record_part(config: Membership) -> Part:
    """The records: a part of the training images of a data set."""
    question = config.question
    known = question.records if isinstance(question, GivenModel) else question
    return Part(config.data, 0, known.examples)


def unseen_part(records: Part, count: int) -> Part:
    """`count` images that follow the records, without exact copies of any record.

    Raises ValueError if all images are records.
    """
    if not records.examples:
        raise ValueError("examples is 0; some images must be left that no model was trained on")
    part, images = Part(records.data, records.examples, count), load(records.data)
    if (first_copies(images)[part.rows(images)] < part.first).any():
        return replace(part, without_copies=True)
    return part


def other_part(records: Part, known: Records) -> Part:
    """The images that the given model was not trained on. Raises DatasetError if there are none, or sets do not fit."""
    if isinstance(known, MarkedImages):
        known = known.to_pin()
    if isinstance(known, TwoSets):
        return _part_of_others(records, known.others, known.controls)
    return unseen_part(records, known.controls or known.examples)


def _part_of_others(records: Part, others: Dataset, count: int) -> Part:
    """`count` images of the other data set; 0: the number of records, or all.

    Raises DatasetError if images or classes differ from the records', or if an image is in both.
    """
    inside, outside = load(records.data), load(others)
    names = records.data.name, others.name
    for what, ours, theirs in (
        ("images of the shape", inside.shape, outside.shape),
        ("the classes", inside.names or inside.classes, outside.names or outside.classes),
    ):
        if ours != theirs:
            raise DatasetError(
                f"given.members {names[0]} has {what} {ours}, given.others {names[1]} {theirs}; they must be the same"
            )
    rows = records.rows(inside)
    part = Part(others, 0, count or (len(rows) if len(rows) < len(outside.train_images) else 0))
    common = overlap(inside, rows, outside, part.rows(outside))
    if common:
        first, second = common[0]
        raise DatasetError(
            f"given.members {names[0]} and given.others {names[1]} have {len(common):,} images in common: training "
            f"image {first} is {second}; leave them out of one"
        )
    return part
