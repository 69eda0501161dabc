"""How well do labels alone distinguish members from non-members, if shifted copies of a record are also scored?

A model trained on a record labels its copies correctly more often. The copies are the record itself and the 4 d images
shifted by d pixels, |rows| + |columns| = d, with repeated edges. Choquette-Choo et al. 2021, "Label-only membership
inference attacks", the attack by data augmentation. The paper trains a classifier on vectors of a shadow model's label
correctness; here the log ratios of `label_ratio` are averaged over copies. Copies of one record are not independent,
which does not matter for a score, since its thresholds come from the other models, as for every attack.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tasks.audits.membership.attacks import label_ratio
from tasks.audits.membership.config import About, Halves, Membership
from tasks.audits.membership.left_out import Targets, for_each, pair_models
from tasks.audits.membership.measures.attacks import SCORES, Matching, attack_rows, measure_attack
from tasks.audits.membership.target_scores import balanced_part
from tasks.audits.membership.trainings import stack_marks
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.schemas import make_table
from tasks.contract.summaries import Row
from tasks.datasets.catalog import load
from tasks.datasets.copies import distinct_rows
from tasks.datasets.dataset import DatasetError
from tasks.datasets.mixtures import BalancedHalf
from tasks.datasets.picture_rows import Selected, slices
from tasks.numerics import seeds
from tasks.numerics.exact_test import Array, Mask
from tasks.training.mixed import logits

if TYPE_CHECKING:
    from tasks.datasets.images import Pixels

SHIFTED_ANSWERS = pa.schema(
    [
        ("row", pa.int64()),  # row of the training split
        ("member", pa.bool_()),  # as in ANSWERS
        ("correct", pa.list_(pa.bool_())),  # for each copy, the record itself first
    ]
)
SHIFTED_SCORES = pa.schema([*SCORES, ("copies", pa.int64())])
SHIFTED = "label only, shifted copies"


@dataclass(frozen=True)
class Copies:
    """Records, and the shift of their copies in pixels."""

    half: BalancedHalf
    pixels: int


def offsets(pixels: int) -> list[tuple[int, int]]:
    """Return the shifts of the copies in rows and columns, the record itself first."""
    span = range(-pixels, pixels + 1)
    return [(0, 0), *((down, right) for down in span for right in span if abs(down) + abs(right) == pixels)]


def shift_images(images: Pixels, down: int, right: int) -> Pixels:
    """Shift images (images, height, width, channels), repeating their edges."""
    height, width = images.shape[1:3]
    rows = np.clip(np.arange(height) - down, 0, height - 1)
    columns = np.clip(np.arange(width) - right, 0, width - 1)
    return images[:, rows][:, :, columns]


def plan(config: Membership, trainings: tuple[Job, ...]) -> Job | tuple[()]:
    """Plan the attack. Raises DatasetError if images are too small for the shift."""
    question = config.question
    if not isinstance(question, Halves) or not question.shift_pixels:
        return ()
    images = load(question.data)
    if images.is_table or config.recipe.network.is_estimator:
        reason = "the data are a table" if images.is_table else "the network is a scikit-learn estimator"
        raise ValueError(f"shift_pixels is {question.shift_pixels}, and {reason}; it must be 0")
    height, width, _ = images.shape
    if question.shift_pixels >= min(height, width):
        raise DatasetError(
            f"shift_pixels: expected less than {min(height, width)} for images of {height} x {width} "
            f"({question.data.name}), got {question.shift_pixels}"
        )
    answer_jobs = tuple(
        Job(shifted_answers, Copies(job.config, question.shift_pixels), job.inputs) for job in trainings
    )
    return Job(shifted_labels, Matching(seeds.derive(config.seed, "matching")), answer_jobs)


@task(version=2, name="membership.shifted_answers")
def shifted_answers(config: Copies, inputs: Inputs) -> pa.Table:
    """Classify each copy of each record in evaluation mode, and compare with the true label (SHIFTED_ANSWERS)."""
    from tasks.models.networks import architecture_of, weights_of_model

    images = load(config.half.part.data)
    rows = distinct_rows(images, config.half.part.rows(images))
    network = architecture_of(inputs[0])
    weights = weights_of_model(inputs[0])
    labels = images.train.labels[rows]
    correct = np.empty((len(rows), len(offsets(config.pixels))), bool)
    for part, pixels in slices(Selected(images.train, rows)):
        for number, offset in enumerate(offsets(config.pixels)):
            predicted = logits(network, weights, shift_images(pixels, *offset)).argmax(axis=1)
            correct[part, number] = predicted == labels[part]
    member = np.isin(rows, config.half.rows(images))
    return make_table(SHIFTED_ANSWERS, row=rows, member=member, correct=list(correct))


@task(version=2, name="membership.shifted_labels", gathers=True)
def shifted_labels(config: Matching, inputs: Inputs) -> pa.Table:
    """Run the attack on each target (SHIFTED_SCORES). Empty as in `attacks`."""
    member = stack_marks(inputs, "member")
    part = balanced_part(member)
    if part is None:
        return SHIFTED_SCORES.empty_table()
    models, half = part
    correct = np.stack([_copies(table)[half] for table in inputs[:models]])
    member = member[:models, half]
    targets = Targets(member, (), None, None, pair_models(member, config.seed))
    lines = measure_attack(SHIFTED, score_copies(correct, targets), targets)
    return pa.Table.from_pylist([line | {"copies": correct.shape[2]} for line in lines], SHIFTED_SCORES)


def _copies(table: pa.Table) -> Mask:
    """Return whether the model labels each copy correctly, (records, copies)."""
    lists = table["correct"].combine_chunks()
    correct: Mask = lists.flatten().to_numpy(zero_copy_only=False).reshape(len(lists), -1)
    return correct


def score_copies(correct: Mask, targets: Targets) -> Array:
    """Average `label_ratio` over copies, (models, records). `correct` is (models, records, copies)."""
    scores: Array = np.zeros(targets.member.shape)
    copies = correct.shape[2]

    def add_block(block: slice) -> None:
        for copy in range(copies):
            right = correct[:, block, copy].astype(np.float64)
            scores[:, block] += label_ratio(targets.block(block, right))

    for_each(add_block, targets.blocks())
    scores /= copies
    return scores


def rows(tables: Tables, about: About) -> Iterator[Row]:  # noqa: ARG001
    """Yield the means over targets."""
    table = tables.one(SHIFTED_SCORES)
    if table is not None and table.num_rows:
        yield from attack_rows({SHIFTED: table})


MEASURE = Measure("shifted_labels", SHIFTED_SCORES, plan, rows)
