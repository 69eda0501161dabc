"""The records and the non-members of a configuration, as parts of data sets."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tasks.audits.membership.config import Membership
from tasks.audits.membership.given_config import GivenModel, MarkedImages, Records, TwoSets
from tasks.audits.membership.loss_config import LossAttack
from tasks.datasets.catalog import load
from tasks.datasets.copies import first_copies
from tasks.datasets.dataset import Dataset, DatasetError, is_table
from tasks.datasets.mixtures import Part, overlap
from tasks.datasets.options import split


@dataclass(frozen=True)
class AskedImages:
    """The records and the non-members. `seed` determines the order in which an owner receives them."""

    records: Part
    unseen: Part
    seed: int

    @property
    def are_two_sets(self) -> bool:
        """Whether the non-members come from another data set rather than following the records in the same one."""
        return self.unseen.data != self.records.data


def record_part(config: Membership) -> Part:
    """Return the records as a part of a data set's training images."""
    question = config.question
    assert not isinstance(question, LossAttack)
    assert config.data is not None
    records = question.records if isinstance(question, GivenModel) else question
    return Part(config.data, 0, records.examples)


def unseen_part(records: Part, count: int) -> Part:
    """Return the `count` images that follow the records, without exact copies of any record.

    Raises ValueError if all images are records.
    """
    if not records.examples:
        raise ValueError(
            "examples: expected a number below that of all images, got 0 (all). Leave some as non-members."
        )
    part = Part(records.data, records.examples, count)
    images = load(records.data)
    if (first_copies(images)[part.rows(images)] < part.first).any():
        return replace(part, without_copies=True)
    return part


def other_part(records: Part, training_images: Records) -> Part:
    """Return the non-members. Raises DatasetError if there are none, or if the two sets are incompatible."""
    if isinstance(training_images, MarkedImages):
        training_images = training_images.to_pin()
    if isinstance(training_images, TwoSets):
        return _part_of_others(records, training_images.non_members, training_images.non_member_examples)
    return unseen_part(records, training_images.non_member_examples or training_images.examples)


def check_raw(*tables: Dataset) -> None:
    """Raise DatasetError if one of these data sets is a table whose features are standardised.

    A given model was trained on features that were prepared elsewhere, and two tables have two means.
    """
    for table in tables:
        if is_table(table) and not split(table.name)[1].is_raw:
            raise DatasetError(
                f"{table.name} has standardised features, and a given model takes them as it was trained; write its "
                "numbers into the file, and add #raw to the name"
            )


def _part_of_others(records: Part, non_members: Dataset, count: int) -> Part:
    """Return `count` images of the other data set. 0: as many as there are records, or all.

    Raises DatasetError if the shape or the classes differ from the records', or if both sets share an image.
    """
    inside = load(records.data)
    outside = load(non_members)
    names = records.data.name, non_members.name
    for property_name, member_value, non_member_value in (
        ("images of the shape", inside.shape, outside.shape),
        ("the classes", inside.names or inside.classes, outside.names or outside.classes),
        ("the columns", inside.features, outside.features),
    ):
        if member_value != non_member_value:
            raise DatasetError(
                f"given.members {names[0]} has {property_name} {member_value}, given.non_members {names[1]} "
                f"{non_member_value}; they must be equal"
            )
    rows = records.rows(inside)
    part = Part(non_members, 0, count or (len(rows) if len(rows) < len(outside.train) else 0))
    common = overlap(inside, rows, outside, part.rows(outside))
    if common:
        first, second = common[0]
        raise DatasetError(
            f"given.members {names[0]} and given.non_members {names[1]} have {len(common):,} images in common: "
            f"training image {first} is {second}. Remove them from one set"
        )
    return part
