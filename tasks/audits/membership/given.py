"""Scores of a third-party model for the records and the non-members, from its file or from a table.

`given_config` defines both sets. If they are two data sets, images are drawn at random within classes.

If the model stays with its owner, the owner receives records and non-members as one set in random order, some of them
twice. The owner returns one of three tables: outputs (`tasks.external.outputs`), confidences
(`tasks.external.confidences`), or only labels, with the columns `image` and `predicted` (the class index).
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
from tasks.audits.membership.image_parts import AskedImages, check_raw, other_part, record_part
from tasks.audits.membership.trainings import log_odds
from tasks.contract.job import Inputs, task
from tasks.contract.schemas import make_table, nan_as_null
from tasks.datasets.catalog import load
from tasks.datasets.copies import distinct_rows
from tasks.datasets.dataset import is_table
from tasks.datasets.mixtures import Part
from tasks.datasets.picture_rows import Concatenated, Selected, Sliceable
from tasks.external.blinding import HandedOut, blind_images
from tasks.numerics import seeds
from tasks.worker.files import FileError

if TYPE_CHECKING:
    from tasks.datasets.images import Labels, PictureSet
    from tasks.external.sent_table import Sent

Floats = NDArray[np.float64]
PREDICTED = "predicted"  # label column of a table that contains only labels
SCORES = pa.schema(
    [
        ("row", pa.int64()),  # row in the training split of the image's data set
        ("record", pa.bool_()),  # false: a non-member
        ("score", pa.float64()),  # score of this `kind`
        ("again", pa.float64()),  # score of the repeated image; null if it is not repeated
        ("kind", pa.string()),  # log-odds of the true label, its confidence, or label (1 if correct, else 0)
        ("resolution", pa.float64()),  # unit of the last printed digit of confidences; 0: float32, or a label
        ("right", pa.bool_()),  # whether the true class has the highest score; null if unknown
    ]
)


@dataclass(frozen=True)
class Ask(AskedImages):
    """The images, and the source of the given model's outputs."""

    source: Source


def question_about(config: Membership) -> Ask:
    """Return the images to score, and the source of their scores.

    Raises ValueError if no model is given, and DatasetError if there are no non-members or the two sets are
    incompatible.
    """
    question = config.question
    if not isinstance(question, GivenModel):
        raise ValueError("question: expected given to hand out images. Set question=given.")
    records = record_part(config)
    check_raw(records.data)
    if is_table(records.data) and isinstance(question.source, ReturnedTable):
        raise ValueError(
            f"{records.data.named().name} is a table, and only images are handed out to an owner. Give the model as a "
            "file: given.model=FILE"
        )
    unseen = other_part(records, question.records)
    check_raw(unseen.data)
    return Ask(records, unseen, seeds.derive(config.seed, "handed out"), question.source)


@task(version=3, name="membership.ask_given")
def ask_given(config: Ask, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - nothing is trained
    """Score the records and the non-members with the given model (SCORES)."""
    rows, images, labels = pictures(config)
    source_scores = _ask_source(config, images, labels)
    return make_table(
        SCORES,
        row=rows,
        record=np.arange(len(rows)) < len(asked_rows(config.records)),
        score=source_scores.scores,
        again=nan_as_null(source_scores.repeat_scores),
        kind=source_scores.kind,
        resolution=source_scores.resolution,
        right=source_scores.right,
    )


def pictures(config: AskedImages) -> tuple[NDArray[np.int64], Selected, Labels]:
    """Return rows, images and labels, of the records first and then of the non-members."""
    records = asked_rows(config.records)
    unseen = asked_rows(config.unseen)
    both = Concatenated([load(part.data).train for part in (config.records, config.unseen)])
    rows_of_both = np.concatenate([records, unseen + both.begins[1]])
    return np.concatenate([records, unseen]), Selected(both, rows_of_both), both.labels[rows_of_both]


def asked_rows(part: Part) -> NDArray[np.int64]:
    """Return the rows of a part without exact copies."""
    images = load(part.data)
    return distinct_rows(images, part.rows(images))


def handout_order(config: AskedImages) -> HandedOut:
    """Return the order in which an owner receives the records and the non-members."""
    count = len(asked_rows(config.records)) + len(asked_rows(config.unseen))
    spans = [[part.first, part.examples] for part in (config.records, config.unseen)]
    second_set = []
    if config.are_two_sets:
        second_set = [config.unseen.data.identity()]
    return blind_images([config.records.data.identity(), spans, config.seed, *second_set], count, config.seed)


def check_table(config: Ask) -> None:
    """Raise ValueError before any training if the table of outputs is missing or unusable.

    A table that was removed after the run pinned it passes, so that stored results stay readable.
    """
    if isinstance(config.source, AskedFile):
        return
    if config.source.outputs is None:
        raise ValueError(
            "question=given: expected given.model=FILE or given.outputs=FILE, got neither. Pass the model's file, or "
            "the table that its owner returns for the images of `engram probes`."
        )
    with suppress(FileError):
        read_table(config, config.source, pictures(config)[2])


@dataclass(frozen=True, eq=False)
class Said:
    """Scores from the given model, (images,) each, as columns of SCORES."""

    scores: Floats
    repeat_scores: Floats
    kind: str
    resolution: float = 0.0
    right: NDArray[np.bool_] | None = None


def _ask_source(config: Ask, images: Selected, labels: Labels) -> Said:
    """Score the images with the model file, or read the owner's table."""
    if isinstance(config.source, AskedFile):
        return ask_file(config.source, load(config.records.data), images, labels)
    return read_table(config, config.source, labels)


def ask_file(source: AskedFile, data: PictureSet, images: Sliceable, labels: Labels) -> Said:
    from tasks.external.loading import load_model
    from tasks.external.outputs import CLASS_ORDER, check_class_order

    model = load_model(source.model, data.shape, source.interface, data.classes)
    log_p = model.answers(images).log_p
    check_class_order(log_p, labels, f"model {source.model.name}", CLASS_ORDER)
    right = log_p[np.arange(len(labels)), labels] == log_p.max(axis=1)
    return Said(log_odds(log_p, labels), np.full(len(labels), np.nan), "log-odds", right=right)


def read_table(config: AskedImages, source: ReturnedTable, labels: Labels) -> Said:
    """Read the owner's table. Raises ValueError if it lacks an image."""
    from tasks.external import confidences
    from tasks.external.sent_table import read_sent

    assert source.outputs is not None
    handout = handout_order(config)
    repeats = handout.repeats
    twice = list(repeats)
    ids = [*handout.ids, *repeats.values()]
    true = np.concatenate([labels, labels[twice]])
    table = read_sent(source.outputs)
    if not source.columns and PREDICTED in table.columns:
        classes = load(config.records.data).classes
        scores = read_predictions(table, ids, true, classes)
        kind = "label"
        resolution = 0.0
        right: NDArray[np.bool_] | None = scores > 0
    else:
        table_confidences = confidences.read(source.outputs, ids, true, source.columns, source.interface.gives)
        scores = table_confidences.values
        kind = "confidence"
        resolution = table_confidences.resolution
        right = table_confidences.right
    repeat_scores = np.full(len(labels), np.nan)
    repeat_scores[twice] = scores[len(labels) :]
    return Said(scores[: len(labels)], repeat_scores, kind, resolution, None if right is None else right[: len(labels)])


def read_predictions(table: Sent, ids: Sequence[str], labels: Labels, classes: int) -> Floats:
    """Return 1 for each correct label, else 0. Raises ValueError if a label is not a class index."""
    numbers = table.numbers(PREDICTED)
    invalid = np.flatnonzero(~np.isin(numbers, np.arange(classes)))
    if len(invalid):
        raise ValueError(
            f"{table.name}: expected {PREDICTED} to be the number of a class, 0 to {classes - 1}; got "
            f"{numbers[invalid[0]]:.6g} for image {table.ids[invalid[0]]!r} ({len(invalid)} of {len(numbers)} are "
            "wrong)"
        )
    right: Floats = (numbers[table.rows(ids)] == labels).astype(np.float64)
    return right
