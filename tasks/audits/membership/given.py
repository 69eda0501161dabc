"""Scores of a third-party model, from its file or a table, for the records and for images that it never saw.

How both are known is in `given_config`; of two sets, images are drawn at random within classes.

If the model stays with its owner, records and images that follow them are handed out in one set, in an order that
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

from tasks.audits.membership.config import Membership
from tasks.audits.membership.given_config import AskedFile, GivenModel, ReturnedTable, Source
from tasks.audits.membership.image_parts import AskedImages, other_part, record_part
from tasks.audits.membership.trainings import log_odds
from tasks.contract.job import Inputs, task
from tasks.contract.schemas import make_table, nan_as_null
from tasks.datasets.catalog import load
from tasks.datasets.copies import distinct_rows
from tasks.datasets.mixtures import Part
from tasks.external.blinding import HandedOut, blind_images
from tasks.numerics import seeds
from tasks.worker.files import FileError

if TYPE_CHECKING:
    from tasks.datasets.images import Images, Labels, Pixels
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
class Ask(AskedImages):
    """The images, and how the given model is asked about them."""

    source: Source


def question_about(config: Membership) -> Ask:
    """What is handed out, and what the given model is asked.

    Raises ValueError if the question is about no given model, and DatasetError if there are no other images, or if two
    sets do not fit.
    """
    question = config.question
    if not isinstance(question, GivenModel):
        raise ValueError("images are handed out for a given model; write question=given")
    records = record_part(config)
    unseen = other_part(records, question.records)
    return Ask(records, unseen, seeds.derive(config.seed, "handed out"), question.source)


@task(version=3, name="membership.ask_given")
def ask_given(config: Ask, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - nothing is trained
    """What the given model says of each record and of each image that follows (SCORES)."""
    rows, images, labels = pictures(config)
    said = _ask_source(config, images, labels)
    return make_table(
        SCORES,
        row=rows,
        record=np.arange(len(rows)) < len(asked_rows(config.records)),
        score=said.scores,
        again=nan_as_null(said.again),
        kind=said.kind,
        resolution=said.resolution,
        right=said.right,
    )


def pictures(config: AskedImages) -> tuple[NDArray[np.int64], Pixels, Labels]:
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


def handout_order(config: AskedImages) -> HandedOut:
    """The records and the images that follow in the order in which an owner gets them."""
    count = len(asked_rows(config.records)) + len(asked_rows(config.unseen))
    spans = [[part.first, part.examples] for part in (config.records, config.unseen)]
    others = [config.unseen.data.identity()] if config.are_two_sets else []
    return blind_images([config.records.data.identity(), spans, config.seed, *others], count, config.seed)


def check_table(config: Ask) -> None:
    """Raise ValueError if there is no table of outputs, or one that cannot be used, before anything is trained.

    A table that has gone since it was pinned passes, so that stored results can still be inspected.
    """
    if isinstance(config.source, AskedFile):
        return
    if config.source.outputs is None:
        raise ValueError(
            "question is given and no model is named: give its file as given.model=FILE, or what its owner returns for "
            "the images of `engram probes` as given.outputs=FILE"
        )
    with suppress(FileError):
        read_table(config, config.source, pictures(config)[2])


@dataclass(frozen=True, eq=False)
class Said:
    """What the given model says of each image, (images,) each: columns of SCORES."""

    scores: Floats
    again: Floats
    kind: str
    resolution: float = 0.0
    right: NDArray[np.bool_] | None = None


def _ask_source(config: Ask, images: Pixels, labels: Labels) -> Said:
    """The given model's scores of these images, by its file or by its owner's table."""
    if isinstance(config.source, AskedFile):
        return ask_file(config.source, load(config.records.data), images, labels)
    return read_table(config, config.source, labels)


def ask_file(source: AskedFile, data: Images, images: Pixels, labels: Labels) -> Said:
    from tasks.external.loading import load_model
    from tasks.external.outputs import CLASS_ORDER, check_class_order

    model = load_model(source.model, data.shape, source.interface, data.classes)
    log_p = model.answers(images).log_p
    check_class_order(log_p, labels, f"model {source.model.name}", CLASS_ORDER)
    right = log_p[np.arange(len(labels)), labels] == log_p.max(axis=1)
    return Said(log_odds(log_p, labels), np.full(len(labels), np.nan), "log-odds", right=right)


def read_table(config: AskedImages, source: ReturnedTable, labels: Labels) -> Said:
    """What the owner's table says. Raises ValueError, in one line, if it does not tell of every picture."""
    from tasks.external import confidences
    from tasks.external.sent_table import read_sent

    assert source.outputs is not None
    handed = handout_order(config)
    repeats = handed.repeats
    twice = list(repeats)
    ids, true = [*handed.ids, *repeats.values()], np.concatenate([labels, labels[twice]])
    table = read_sent(source.outputs)
    if not source.columns and PREDICTED in table.columns:
        classes = load(config.records.data).classes
        scores, kind, resolution = read_predictions(table, ids, true, classes), "label", 0.0
        right: NDArray[np.bool_] | None = scores > 0
    else:
        said = confidences.read(source.outputs, ids, true, source.columns, source.interface.gives)
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
