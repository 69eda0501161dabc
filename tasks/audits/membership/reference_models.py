"""Reference models for the loss of one model, each trained on a random half of the members and non-members together.

Half of the models are trained on each record, in pairs of records with opposite halves (`draw_balanced_members`). The
design depends on the seed alone, so members and non-members have the same role: if both sets are samples of one source,
exchanging a member and a non-member changes no distribution. This holds whatever the examined model was trained on.

Planning does not import torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.membership.config import Membership
from tasks.audits.membership.loss_config import LossAttack
from tasks.audits.membership.record_pairs import DataSetPair, RecordedPair, RecordPair, pair_of, read_pair
from tasks.audits.membership.trainings import Mask, check_network, log_odds
from tasks.contract.job import Inputs, Job, Work, single_table, task
from tasks.contract.schemas import make_table
from tasks.datasets.catalog import load
from tasks.datasets.images import Images, InMemory, Opened, PictureRows, Splits, is_table
from tasks.datasets.mixtures import draw_balanced_members
from tasks.datasets.picture_rows import Concatenated, Selected, Subset, gather, whole_split
from tasks.models.estimators import Estimator
from tasks.numerics import seeds
from tasks.training.chains import Linked, train_chains, without_length
from tasks.training.classifier import classifier_work
from tasks.training.classifier_config import ClassifierTraining
from tasks.training.described_steps import ClassifierStep
from tasks.training.estimators import values_of
from tasks.training.members import Member, Spec, minibatches

if TYPE_CHECKING:
    from tasks.external.audit_inputs import RecordSet
    from tasks.training.trainer import Outcome

REFERENCE = pa.schema(
    [
        ("inside", pa.bool_()),  # whether the model was trained on the record; members first, then non-members
        ("log_odds", pa.float64()),  # of the label, in nats
        ("correct", pa.bool_()),
    ]
)


@dataclass(frozen=True)
class Reference:
    """One reference model: number `number` of `models`, in the design with the seed `design`."""

    records: RecordPair
    models: int
    number: int
    design: int
    training: ClassifierTraining
    seed: int


def reference_jobs(config: Membership) -> tuple[Job, ...]:
    """Plan the reference models. Empty without references."""
    question = config.question
    if not isinstance(question, LossAttack) or not question.references:
        return ()
    records = pair_of(question.source, config.seed)
    if not isinstance(records, RecordedPair):
        data = records.members if isinstance(records, DataSetPair) else records.members.part.data
        check_network(config.recipe, data, load(data))
    train_one = fit_reference if config.recipe.network.is_estimator else train_reference
    design = seeds.derive(config.seed, "reference design")
    jobs = []
    for number in range(question.references):
        seed = seeds.derive(config.seed, "reference training", number)
        reference = Reference(records, question.references, number, design, config.recipe, seed)
        jobs.append(Job(train_one, reference))
    return tuple(jobs)


def batch_key(config: Reference) -> Reference:
    """Return the settings that trainings in one call must share: all except number, seed and learning rate."""
    training = dataclasses.replace(config.training, learning_rate=1.0)
    return dataclasses.replace(config, number=0, seed=0, training=training)


def work(config: Reference) -> Work:
    """Return the work of the training."""
    images = read_images(config.records)
    training = config.training
    way = "train" if training.privacy is None else "privately train"
    examples = len(images.train) // 2
    step = ClassifierStep(
        str(training.network),
        images.shape,
        images.classes,
        batch=training.batch,
        augmentation=training.augmentation,
        is_private=training.privacy is not None,
        precision=training.precision,
    )
    return classifier_work(training.network.name, images.shape, training.recipe, examples, 1, way=way, step=step)


@lru_cache(maxsize=2)  # the trainings of a run use the same images, and devices keep copies while they live
def read_images(records: RecordPair) -> Splits:
    """Return the images of both sets as one training split, members first. Features of tables are standardised.

    The test split is the first image: a validation loss does not change the training. Images of a large data set are
    read by rows.
    """
    sets = read_pair(records)
    if any(isinstance(part.images, Selected) for part in sets):
        train = Concatenated([_as_split(part) for part in sets])
        classes = max(int(train.labels.max()) + 1, *(len(part.classes) for part in sets))
        return Opened(train, Subset(train, np.zeros(1, np.int64)), classes)
    pixels = gather([part.images for part in sets])
    if is_table(pixels):
        deviation = pixels.std(axis=0)
        pixels = (pixels - pixels.mean(axis=0)) / np.where(deviation > 0, deviation, 1)
    labels = np.concatenate([part.labels for part in sets])
    classes = max(int(labels.max()) + 1, *(len(part.classes) for part in sets))
    return Images(pixels, labels, pixels[:1], labels[:1], classes)


def _as_split(records: RecordSet) -> PictureRows:
    if isinstance(records.images, Selected):
        return Subset(records.images.split, records.images.rows)
    return InMemory(gather([records.images]), records.labels)


def train_many(
    configs: Sequence[Reference],
    inputs: Sequence[Inputs],  # noqa: ARG001 - a training reads no tables
) -> Iterator[tuple[int, pa.Table | Exception]]:
    """Yield each model's REFERENCE table, or its exception, when it ends. All must have the same batch key."""
    if len({batch_key(config) for config in configs}) > 1:
        raise ValueError("references that differ in more than number, seed and learning rate cannot share a call")
    from tasks.models.inference import logits
    from tasks.models.networks import Architecture
    from tasks.training.cross_entropy import CrossEntropy

    training = configs[0].training
    images = read_images(configs[0].records)
    architecture = Architecture(str(training.network), images.shape, images.classes)
    spec = Spec(CrossEntropy(architecture, training.augmentation), training.recipe, images)
    members = {}
    for index, config in enumerate(configs):
        rows = np.flatnonzero(_is_inside(config, images))
        members[index] = Member(config.seed, rows, learning_rate=config.training.learning_rate)
    for index, outcome in _train_members(spec, members, configs):
        if isinstance(outcome, Exception):
            yield index, outcome
        else:
            weights = {name: values.astype(np.float32) for name, values in outcome.weights.items()}
            outputs = logits(architecture, [weights], whole_split(images.train))[0]
            yield index, score_records(outputs, images, _is_inside(configs[index], images))


def _is_inside(config: Reference, images: Splits) -> Mask:
    """Return whether the model is trained on each record, (records,)."""
    halves = draw_balanced_members(len(images.train), config.models, config.design)
    is_inside: Mask = halves[config.number]
    return is_inside


def _train_members(spec: Spec, members: dict[int, Member], configs: Sequence[Reference]) -> Iterator[Outcome]:
    """Yield each member's outcome, keyed by the position of its config. Trainings with privacy have no chains."""
    privacy = configs[0].training.privacy
    if privacy is None:
        linked = {}
        for index, config in enumerate(configs):
            comparable = dataclasses.replace(config, training=without_length(config.training))
            linked[index] = Linked(str(comparable), config.training.epochs)
        return train_chains(spec, members, linked)
    from tasks.training import dp_sgd

    steps = {}
    for index, member in members.items():
        steps[index] = minibatches(len(member.rows), configs[0].training.batch)
    return dp_sgd.train_by_index(spec, members, privacy, steps)


def score_records(outputs: NDArray[np.floating], images: Splits, is_inside: Mask) -> pa.Table:
    """Score all records by the outputs (records, classes) of a reference in evaluation mode (REFERENCE)."""
    labels = images.train.labels
    return make_table(
        REFERENCE,
        inside=is_inside,
        log_odds=log_odds(outputs, labels),
        correct=outputs.argmax(axis=1) == labels,
    )


@task(
    version=1,
    name="membership.reference",
    gpus=1.0,
    many=train_many,
    batch_key=batch_key,
    trains=1,
    work=work,
    spreads=True,
)
def train_reference(config: Reference, inputs: Inputs) -> pa.Table:
    """Train a reference model and score all records with it (REFERENCE)."""
    return single_table(train_many, config, inputs)


def fitting_work(config: Reference) -> Work:
    """Return the work of fitting an estimator: the values of its records."""
    images = read_images(config.records)
    values = len(images.train) // 2 * int(np.prod(images.shape))
    return Work({f"fit {config.training.network.name}": float(values)})


@task(version=1, name="membership.estimator_reference", trains=1, work=fitting_work)
def fit_reference(config: Reference, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - a training reads no tables
    """Fit an estimator of scikit-learn as a reference model and score all records with it (REFERENCE)."""
    images = read_images(config.records)
    is_inside = _is_inside(config, images)
    values = values_of(images, np.arange(len(images.train)))
    labels = images.train.labels[is_inside]
    estimator = Estimator(
        str(config.training.network), images.shape, values[is_inside], labels, images.classes, config.seed
    )
    return score_records(estimator.log_p(values), images, is_inside)
