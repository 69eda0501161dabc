"""A third-party model: its file, or a table of what it says, about the records and about images that it never saw.

The records are images of `given.members`, on which it was trained, and the images that it never saw are of
`given.others`; both are drawn at random within classes. Of a published data set they may be the first images and those
that follow.

Where the model stays with its owner, records and images that follow them are handed out in one set, in an order that
says nothing, some of them twice. The owner returns a table of outputs (`tasks.external.outputs`), of confidences
(`tasks.external.confidences`), or of the labels alone: columns `image` and `predicted`, the number of the class.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.membership.config import GivenModel, Membership, is_own, say_members
from tasks.audits.membership.trainings import log_odds, record_part, unseen_part
from tasks.contract.job import Inputs, task
from tasks.datasets.catalog import load
from tasks.datasets.copies import distinct_rows
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.mixtures import Part, overlap
from tasks.external.blinding import HandedOut, blind_images
from tasks.numerics import seeds
from tasks.worker.files import FileError

if TYPE_CHECKING:
    from tasks.datasets.images import Labels, Pixels
    from tasks.external.sent_table import Sent

Floats = NDArray[np.float64]
PREDICTED = "predicted"  # the column of labels in a table that gives nothing else
SCORES = pa.schema(
    [
        ("row", pa.int64()),  # of the training split; of an image of `given.others` of that data set's
        ("record", pa.bool_()),  # else it is an image that no model was trained on
        ("score", pa.float64()),  # what is compared: by `kind`
        ("again", pa.float64()),  # that of the same picture handed out a second time; null where it was not
        ("kind", pa.string()),  # log-odds; confidence, of the true label; or label: 1 where it is right, else 0
        ("resolution", pa.float64()),  # the last place of a confidence that was printed; 0: float32, or a label
        ("right", pa.bool_()),  # whether no class is likelier than the true one; null if a table does not say it
    ]
)


@dataclass(frozen=True)
class Ask:
    """The given model, the records, and the images that follow them; `seed` is of the order in which they go out."""

    given: GivenModel
    records: Part
    unseen: Part
    seed: int


def question(config: Membership) -> Ask:
    """What the given model of a config is asked; a DatasetError where no images are left that follow the records."""
    records, seed = record_part(config), seeds.derive(config.seed, "handed out")
    if config.given.others is not None:
        return Ask(config.given, records, part_of_others(records, config.given.others, config.given.controls), seed)
    if is_own(config.data):
        raise DatasetError(say_members(config.data))
    if not config.examples:
        raise DatasetError("examples is 0; some images must be left that the given model was not trained on")
    return Ask(config.given, records, unseen_part(config, config.given.controls or config.examples), seed)


def part_of_others(records: Part, others: Dataset, count: int) -> Part:
    """So many images of the other data set (0: as many as there are records, or as it has).

    Raises DatasetError if its images or classes differ from those of the records, or if an image is in both.
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


@task(version=3, name="membership.ask_given")
def ask_given(config: Ask, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - nothing is trained
    """What the given model says of each record and of each image that follows (SCORES)."""
    rows, images, labels = pictures(config)
    said = read_table(config, labels) if config.given.outputs is not None else ask_file(config, images, labels)
    record = np.arange(len(rows)) < len(asked_rows(config.records))
    again = pa.array(said.again, from_pandas=True)
    kind, resolution = pa.repeat(said.kind, len(rows)), pa.repeat(said.resolution, len(rows))
    right = pa.nulls(len(rows), pa.bool_()) if said.right is None else pa.array(said.right)
    return pa.table([rows, record, said.scores, again, kind, resolution, right], schema=SCORES)


def pictures(config: Ask) -> tuple[NDArray[np.int64], Pixels, Labels]:
    """The rows of the records and then of the images that follow, with the images and their labels."""
    rows = [asked_rows(part) for part in (config.records, config.unseen)]
    sets = [load(part.data) for part in (config.records, config.unseen)]
    return (
        np.concatenate(rows),
        np.concatenate([images.train_images[chosen] for images, chosen in zip(sets, rows, strict=True)]),
        np.concatenate([images.train_labels[chosen] for images, chosen in zip(sets, rows, strict=True)]),
    )


def asked_rows(part: Part) -> NDArray[np.int64]:
    """The rows of a part that models are asked about: of exact copies the first."""
    images = load(part.data)
    return distinct_rows(images, part.rows(images))


def handout_order(config: Ask) -> HandedOut:
    """The records and the images that follow in the order in which an owner gets them."""
    count = len(asked_rows(config.records)) + len(asked_rows(config.unseen))
    spans = [[part.first, part.examples] for part in (config.records, config.unseen)]
    others = [] if config.given.others is None else [config.unseen.data.identity()]
    return blind_images([config.records.data.identity(), spans, config.seed, *others], count, config.seed)


def check_table(config: Ask) -> None:
    """ValueError where the table of outputs cannot be used: before anything is trained to be compared with it.

    One that has gone since it was pinned passes, since what is stored of the run can still be looked at.
    """
    if config.given.outputs is not None:
        with suppress(FileError):
            read_table(config, pictures(config)[2])


@dataclass(frozen=True, eq=False)
class Said:
    """What the given model says of each image, (images,) each: columns of SCORES."""

    scores: Floats
    again: Floats
    kind: str
    resolution: float = 0.0
    right: NDArray[np.bool_] | None = None


def ask_file(config: Ask, images: Pixels, labels: Labels) -> Said:
    from tasks.external.loading import load_model
    from tasks.external.outputs import CLASS_ORDER, check_class_order

    data, given = load(config.records.data), config.given
    assert given.model is not None
    model = load_model(given.model, data.shape, given.interface, data.classes)
    log_p = model.answers(images).log_p
    check_class_order(log_p, labels, f"model {given.model.name}", CLASS_ORDER)
    right = log_p[np.arange(len(labels)), labels] == log_p.max(axis=1)
    return Said(log_odds(log_p, labels), np.full(len(labels), np.nan), "log-odds", right=right)


def read_table(config: Ask, labels: Labels) -> Said:
    """What the owner's table says; ValueError, in one line, where it does not tell of every picture."""
    from tasks.external import confidences
    from tasks.external.sent_table import read_sent

    assert config.given.outputs is not None
    handed = handout_order(config)
    repeats = handed.repeats
    twice = list(repeats)
    ids, true = [*handed.ids, *repeats.values()], np.concatenate([labels, labels[twice]])
    table = read_sent(config.given.outputs)
    if not config.given.columns and PREDICTED in table.columns:
        classes = load(config.records.data).classes
        scores, kind, resolution = read_predictions(table, ids, true, classes), "label", 0.0
        right: NDArray[np.bool_] | None = scores > 0
    else:
        said = confidences.read(config.given.outputs, ids, true, config.given.columns, config.given.interface.gives)
        scores, kind, resolution, right = said.values, "confidence", said.resolution, said.right
    again = np.full(len(labels), np.nan)
    again[twice] = scores[len(labels) :]
    return Said(scores[: len(labels)], again, kind, resolution, None if right is None else right[: len(labels)])


def read_predictions(table: Sent, ids: Sequence[str], labels: Labels, classes: int) -> Floats:
    """Whether each predicted label is the true one, as 1 or 0; ValueError where one is no class."""
    numbers = table.numbers(PREDICTED)
    wrong = np.flatnonzero(~np.isin(numbers, np.arange(classes)))
    if len(wrong):
        raise ValueError(
            f"{table.name}: {PREDICTED} of image {table.ids[wrong[0]]!r} is {numbers[wrong[0]]:.6g}; it must be the "
            f"number of a class, 0 to {classes - 1}; {len(wrong)} of {len(numbers)} are not"
        )
    right: Floats = (numbers[table.rows(ids)] == labels).astype(np.float64)
    return right
