"""Scores of one model for members and non-members: of a file, of a recording, or of a model trained here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tasks.audits.membership.config import Membership
from tasks.audits.membership.image_parts import check_raw
from tasks.audits.membership.loss_config import LossAttack, ModelAndSets, Recording, TrainedExample
from tasks.audits.membership.trainings import model_job, model_outputs
from tasks.contract.job import Inputs, Job, task
from tasks.datasets.catalog import load
from tasks.datasets.dataset import is_table
from tasks.datasets.mixtures import BalancedHalf, Part, Share
from tasks.external.split_audit import SCORES, score_table
from tasks.numerics import seeds
from tasks.worker import files

if TYPE_CHECKING:
    from tasks.external.audit_inputs import RecordSet


@dataclass(frozen=True)
class ScoredFile:
    """A model file and its two sets. `seed` determines the halves of the blind control."""

    source: ModelAndSets
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
    """Plan the scores of the model for both sets (SCORES). Raises DatasetError if there are too few images."""
    question = config.question
    assert isinstance(question, LossAttack)
    seed = seeds.derive(config.seed, "loss attack")
    match question.source:
        case Recording() as recording:
            return Job(read_recording, recording)
        case ModelAndSets() as source:
            check_tables(source)
            return Job(score_file, ScoredFile(source, seed))
        case TrainedExample() as example:
            part = Part(example.data, 0, 2 * example.examples)
            members, non_members = (
                BalancedHalf(part, 2, number, seeds.derive(config.seed, "design")) for number in range(2)
            )
            share: Share | BalancedHalf = members
            if example.is_null:
                share = Share(Part(example.data, part.examples, example.examples))
            share.rows(load(example.data))
            model = model_job(config.training, share, config.seed, 0, part)
            return Job(score_example, ScoredExample(members, non_members, seed), (model,))


def check_tables(source: ModelAndSets) -> None:
    """Raise ValueError if the sets are tables that the model cannot take, or tables with different columns."""
    check_raw(source.members, source.non_members)
    if not (is_table(source.members) or is_table(source.non_members)):
        return
    members, others = (load(dataset).features for dataset in (source.members, source.non_members))
    if members != others:
        raise ValueError(
            f"{source.members.name} has the columns {', '.join(members)}, and {source.non_members.name} "
            f"{', '.join(others)}; both must have the same columns in the same order"
        )


@task(version=1, name="membership.loss_of_file")
def score_file(config: ScoredFile, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - nothing is trained
    """Score the images of both sets with the model file and without it (SCORES).

    Raises ValueError if the model cannot be evaluated, or if the sets do not fit each other.
    """
    from tasks.external.audited_model import score_labels
    from tasks.external.loading import load_model
    from tasks.external.outputs import CLASS_ORDER, check_class_order

    source = config.source
    inside, outside = read_file_sets(source)
    model = load_model(source.model, inside.images.shape[1:], source.interface, len(inside.classes) or None)
    answers = [model.answers(records.images).log_p for records in (inside, outside)]
    for count in (2, 1):  # a model that memorises reveals the order of its classes on its members only
        labels = np.concatenate([inside.labels, outside.labels][:count])
        check_class_order(np.concatenate(answers[:count]), labels, f"model {source.model.name}", CLASS_ORDER)
    first, second = (
        score_labels(log_p, records.labels) for log_p, records in zip(answers, (inside, outside), strict=True)
    )
    return score_table((first, second), (inside, outside), config.seed)


def read_file_sets(source: ModelAndSets) -> tuple[RecordSet, RecordSet]:
    """Read both sets, with all images of all splits and without copies.

    Raises ValueError if a set has too few images, if both share an image, or if their classes differ.
    """
    from tasks.external.audit_inputs import compatible_sets, whole_set

    inside = whole_set(load(source.members), "members")
    outside = whole_set(load(source.non_members), "non_members")
    return compatible_sets(inside, outside)


@task(version=1, name="membership.loss_of_example")
def score_example(config: ScoredExample, inputs: Inputs) -> pa.Table:
    """Score both parts with the model that was trained here, and without it (SCORES)."""
    from tasks.external.audit_inputs import RecordSet, compatible_sets
    from tasks.external.audited_model import score_labels
    from tasks.external.outputs import log_softmax

    (model,) = inputs
    sets = []
    for half in (config.members, config.non_members):
        images = load(half.part.data)
        rows = half.rows(images)
        sets.append(RecordSet(images.train_images[rows], images.train_labels[rows], images.names, positions=rows))
    inside, outside = compatible_sets(*sets)
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
    import pyarrow.parquet as pq

    content = files.read(config.recording)
    try:
        table = pq.read_table(pa.BufferReader(content))
    except pa.ArrowInvalid as error:
        raise files.FileError(
            f"{config.recording.path} is not a Parquet file: {' '.join(str(error).split())}"
        ) from None
    if not table.schema.equals(SCORES):
        raise files.FileError(
            f"{config.recording.path} has the columns {', '.join(table.column_names)}; expected a recording by "
            f"engram.audit, with {', '.join(SCORES.names)}"
        )
    return table.replace_schema_metadata(None)
