"""Scores of one model for members and non-members: of a file, a table, a recording, or a model trained here."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tasks.audits.membership.config import Membership
from tasks.audits.membership.image_parts import check_raw
from tasks.audits.membership.loss_config import LossAttack, ModelAndSets, OutputsAndSets, Recording, TrainedExample
from tasks.audits.membership.record_pairs import DataSetPair, HalfPair, halves_of, read_pair
from tasks.audits.membership.trainings import model_job, model_outputs
from tasks.contract.job import Inputs, Job, task
from tasks.datasets.catalog import load
from tasks.datasets.dataset import is_table
from tasks.datasets.mixtures import BalancedHalf, Part, Share
from tasks.external.recorded_sets import read_recorded_table
from tasks.external.split_audit import SCORES, score_table
from tasks.numerics import seeds
from tasks.worker.files import FileError


@dataclass(frozen=True)
class ScoredFile:
    """A model file and its two sets. `seed` determines the halves of the blind control."""

    source: ModelAndSets
    seed: int


@dataclass(frozen=True)
class ScoredOutputs:
    """A table of outputs and its two sets. `seed` determines the halves of the blind control."""

    source: OutputsAndSets
    seed: int


@dataclass(frozen=True)
class ScoredExample:
    """The members and the non-members of a model trained here, which are the halves of a part.

    `seed` determines the halves of the blind control.
    """

    members: BalancedHalf
    non_members: BalancedHalf
    seed: int


def score_job(config: Membership) -> Job:
    """Plan the scores of the model for both sets (SCORES). Raises DatasetError if there are too few images.

    Raises ValueError if a table of outputs lacks an image.
    """
    question = config.question
    assert isinstance(question, LossAttack)
    seed = seeds.derive(config.seed, "loss attack")
    match question.source:
        case Recording() as recording:
            return Job(read_recording, recording)
        case ModelAndSets() as source:
            check_raw(source.members, source.non_members)
            check_columns(source)
            return Job(score_file, ScoredFile(source, seed))
        case OutputsAndSets() as source:
            check_columns(source)
            check_outputs(source)
            return Job(score_outputs, ScoredOutputs(source, seed))
        case TrainedExample() as example:
            halves = halves_of(example, config.seed)
            part = halves.members.part
            share: Share | BalancedHalf = halves.members
            if example.is_null:
                share = Share(Part(example.data, part.examples, example.examples))
            share.rows(load(example.data))
            model = model_job(config.recipe, share, config.seed, 0, part)
            return Job(score_example, ScoredExample(halves.members, halves.non_members, seed), (model,))


def check_columns(source: ModelAndSets | OutputsAndSets) -> None:
    """Raise ValueError if the sets are tables with different columns."""
    if not (is_table(source.members) or is_table(source.non_members)):
        return
    members, others = (load(dataset).features for dataset in (source.members, source.non_members))
    if members != others:
        raise ValueError(
            f"{source.members.name} has the columns {', '.join(members)}, and {source.non_members.name} "
            f"{', '.join(others)}; both must have the same columns in the same order"
        )


@task(version=2, name="membership.loss_of_file")
def score_file(config: ScoredFile, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - nothing is trained
    """Score the images of both sets with the model file and without it (SCORES).

    Raises ValueError if the model cannot be evaluated, or if the sets do not fit each other.
    """
    from tasks.external.audited_model import check_and_score
    from tasks.external.loading import load_model
    from tasks.external.outputs import CLASS_ORDER

    source = config.source
    sets = read_pair(DataSetPair(source.members, source.non_members))
    _, height, width, channels = sets[0].images.shape
    model = load_model(source.model, (height, width, channels), source.interface, len(sets[0].classes) or None)
    answers = [model.answers(records.images).log_p for records in sets]
    scores = check_and_score(answers, sets, f"model {source.model.name}", CLASS_ORDER)
    return score_table(scores, sets, config.seed)


def check_outputs(source: OutputsAndSets) -> None:
    """Raise ValueError before the run if the table of outputs is unusable or lacks an image.

    A table that was removed after the run pinned it passes, so that stored results stay readable.
    """
    from tasks.external.loss_table import read_scores

    sets = read_pair(DataSetPair(source.members, source.non_members))
    with suppress(FileError):
        read_scores(source.outputs, (source.members, source.non_members), sets)


@task(version=2, name="membership.loss_of_outputs")
def score_outputs(config: ScoredOutputs, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - nothing is trained
    """Read the scores of both sets from a table of outputs, and score them without the model (SCORES).

    Raises ValueError if the table lacks an image, or if the sets do not fit each other.
    """
    from tasks.external.loss_table import read_scores

    source = config.source
    sets = read_pair(DataSetPair(source.members, source.non_members))
    scores = read_scores(source.outputs, (source.members, source.non_members), sets)
    return score_table(scores, sets, config.seed)


@task(version=2, name="membership.loss_of_example")
def score_example(config: ScoredExample, inputs: Inputs) -> pa.Table:
    """Score both parts with the model that was trained here, and without it (SCORES)."""
    from tasks.external.audited_model import score_labels
    from tasks.external.outputs import log_softmax

    (model,) = inputs
    inside, outside = read_pair(HalfPair(config.members, config.non_members))
    answers = []
    images = load(config.members.part.data)
    for records in (inside, outside):
        outputs = model_outputs(model, images, records.rows()).astype(np.float64)
        answers.append(score_labels(log_softmax(outputs), records.labels))
    first, second = answers
    return score_table((first, second), (inside, outside), config.seed)


@task(version=1, name="membership.loss_recording")
def read_recording(config: Recording, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - nothing is trained
    """Read the scores that `engram.audit` recorded (SCORES). Raises FileError if the file is missing or another one."""
    return read_recorded_table(config.recording, SCORES)
