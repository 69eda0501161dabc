"""Train each model on one half of the records, or with canaries, and score all records with it.

Canaries are records that a fair coin adds to a model's training data or leaves out. All other records are always used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.membership.config import Canaries, Halves, Membership, ModelPairs
from tasks.audits.membership.image_parts import record_part, unseen_part
from tasks.audits.membership.loss_config import LossAttack
from tasks.contract.job import Inputs, Job, task
from tasks.contract.schemas import make_table
from tasks.datasets.catalog import load
from tasks.datasets.copies import distinct_rows
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import BalancedHalf, CoinedCanaries, CoinHalf, Part, Share
from tasks.datasets.picture_rows import Selected
from tasks.models.custom import is_own
from tasks.models.estimators import check_estimator
from tasks.numerics import seeds
from tasks.numerics.ranks import check_finite
from tasks.programs import row_training
from tasks.programs.config import Program
from tasks.programs.returned import Scored
from tasks.training import estimators
from tasks.training.classifier_config import ClassifierTraining
from tasks.training.mixed import Mixture, logits, train

if TYPE_CHECKING:
    from tasks.datasets.images import PictureSet

TABLE_NETWORK = "mlp1"  # the built-in network that takes rows of a table
Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

ANSWERS = pa.schema(
    [
        ("row", pa.int64()),  # row of the training split
        ("member", pa.bool_()),  # trained on by the model or, in a control run, assigned to its half
        ("log_odds", pa.float64()),  # for the true label, in nats
        ("correct", pa.bool_()),  # null if the model returned only a number per record
    ]
)

CANARIES = pa.schema(
    [
        ("model", pa.int64()),
        ("row", pa.int64()),  # row of the training split
        ("label", pa.int64()),  # label used if a model trains on the canary
        ("inside", pa.bool_()),  # whether the model is trained on it
        ("log_odds", pa.float64()),  # for that label, in nats
        ("spent", pa.float64()),  # the accountant's epsilon; null without private training
    ]
)


def trainings(config: Membership) -> tuple[Job, ...]:
    """Plan the answers of each model trained on a half of the records.

    Empty with canaries (`canary_jobs`), for pairs (`coin_pairs`) and for the loss of one model (`loss_scores`).

    Raises DatasetError if the data set has too few images.
    """
    question = config.question
    if isinstance(question, Canaries | ModelPairs | LossAttack):
        return ()
    records = record_part(config)
    if isinstance(question, Halves) and question.is_null:
        return ask_models(config, unseen_part(records, question.examples))
    return ask_models(config, records)


def ask_models(config: Membership, part: Part) -> tuple[Job, ...]:
    """Plan each model's answers on other images, halved like the records. Raises DatasetError if there are too few."""
    part.rows(load(part.data))
    records = record_part(config)
    design = seeds.derive(config.seed, "design")
    jobs = []
    assert not isinstance(config.question, ModelPairs | LossAttack)
    models = config.question.models
    for number in range(models):
        half_of_records = BalancedHalf(records, models, number, design)
        model = model_job(config.training, half_of_records, config.seed, number, part)
        half = BalancedHalf(part, models, number, design)
        jobs.append(Job(answers, half, (model,)))
    return tuple(jobs)


def model_job(
    recipe: ClassifierTraining | Program,
    share: Share | BalancedHalf | CoinHalf | CoinedCanaries,
    seed: int,
    number: int,
    scored: Part,
) -> Job:
    """Plan the training of model `number` of a run with this seed on a share of the records.

    Its outputs are needed for the `scored` part.

    Raises ValueError if the network cannot be trained on these data.
    """
    if isinstance(recipe, Program):
        return row_training.training_job(recipe, share, scored, seeds.derive(seed, "training", number))
    images = load(share.part.data)
    check_network(recipe, share.part.data, images)
    if not recipe.network.is_estimator:
        return Job(train, mixture(recipe, share, seed, number))
    config = estimators.EstimatorTraining(
        share, scored, images.classes, recipe.network, seeds.derive(seed, "training", number)
    )
    return Job(estimators.train, config)


def check_network(recipe: ClassifierTraining, data: Dataset, images: PictureSet) -> None:
    """Raise ValueError if the network, or its augmentation, takes images only and the data are a table."""
    network = recipe.network
    row_training.check_held(data)
    if network.is_estimator:
        check_estimator(network.name)
    if not images.is_table:
        return
    if not (network.is_estimator or is_own(network.name) or network.name == TABLE_NETWORK):
        raise ValueError(
            f"network is {network}, which takes images, and {data.named().name} is a table; it must be "
            f"{TABLE_NETWORK}, your own, or sklearn:sklearn.ensemble.RandomForestClassifier"
        )
    if recipe.augmentation:
        raise ValueError(
            f"augmentation is on, and {data.named().name} is a table; it must be off, since it is for images"
        )


def model_outputs(model: pa.Table, images: PictureSet, rows: NDArray[np.int64]) -> NDArray[np.floating]:
    """Return the logits (rows, classes) of a trained model for these training rows."""
    from tasks.models.networks import architecture_of, weights_of_model

    if estimators.is_estimated(model):
        return estimators.outputs_of(model, rows)
    return logits(architecture_of(model), weights_of_model(model), Selected(images.train, rows))


def score_rows(model: pa.Table, images: PictureSet, rows: NDArray[np.int64]) -> Scored:
    """Return the log-odds of the labels of these training rows, and whether the model classifies them correctly."""
    if row_training.is_programmed(model):
        return row_training.scores_of(model, rows)
    labels = images.train.labels[rows]
    outputs = model_outputs(model, images, rows)
    return Scored(log_odds(outputs, labels), outputs.argmax(axis=1) == labels)


def mixture(
    recipe: ClassifierTraining, share: Share | BalancedHalf | CoinHalf | CoinedCanaries, seed: int, number: int
) -> Mixture:
    """Return the training of a network as model `number` of a run with this seed on a share of the records."""
    data = share.part.data
    return Mixture(
        shares=(share,),
        validation=data,
        classes=load(data).classes,
        network=recipe.network,
        augmentation=recipe.augmentation,
        seed=seeds.derive(seed, "training", number),
        epochs=recipe.epochs,
        optimiser=recipe.optimiser,
        learning_rate=recipe.learning_rate,
        batch=recipe.batch,
        privacy=recipe.privacy,
        precision=recipe.precision,
    )


def canary_jobs(config: Membership, question: Canaries) -> tuple[Job, ...]:
    """Plan each model's answers on its canaries. Raises ValueError if there are too few records or no glyph fits."""
    part = record_part(config)
    seed = seeds.derive(config.seed, "canaries")
    models = [
        CoinedCanaries(part, question.canaries, number, seed, question.mislabelled, question.canary_images)
        for number in range(question.models)
    ]
    all_images = load(part.data)
    if all_images.is_table and question.canary_images != "own":
        raise ValueError(
            f"canary_images is {question.canary_images}, and {part.data.named().name} is a table; it must be own"
        )
    canary_rows = models[0].canary_rows(all_images)  # the same for all models
    if question.canary_images != "own":
        models[0].draw_images(np.zeros((len(canary_rows), *all_images.shape), np.uint8))  # raises if no glyph fits
    jobs = []
    for coined in models:
        model = model_job(config.training, coined, config.seed, coined.number, part)
        jobs.append(Job(canary_answers, coined, (model,)))
    return tuple(jobs)


@task(version=2, name="membership.answers")
def answers(config: BalancedHalf, inputs: Inputs) -> pa.Table:
    """Score every record in evaluation mode, and mark the records the model was trained on (ANSWERS).

    Exact copies count once.
    """
    images = load(config.part.data)
    rows = distinct_rows(images, config.part.rows(images))
    scored = score_rows(inputs[0], images, rows)
    return make_table(
        ANSWERS,
        row=rows,
        member=np.isin(rows, config.rows(images)),
        log_odds=scored.score,
        correct=scored.correct,
    )


@task(version=2, name="membership.canaries")
def canary_answers(config: CoinedCanaries, inputs: Inputs) -> pa.Table:
    """Score each canary in evaluation mode, and mark the canaries in the training data (CANARIES)."""
    (model,) = inputs
    images = config.alter_canaries(load(config.part.data))
    rows = config.canary_rows(images)
    spent = model["epsilons"][0].as_py() if "epsilons" in model.column_names else []
    return make_table(
        CANARIES,
        model=config.number,
        row=rows,
        label=images.train.labels[rows],
        inside=config.is_inside(),
        log_odds=score_rows(model, images, rows).score,
        spent=max(spent, default=None),
    )


def log_odds(scores: NDArray[np.floating], labels: NDArray[np.int64]) -> Array:
    """Compute log p_y - log sum over y' != y of p_y' from logits (records, classes), in float64 nats, (records,)."""
    logit = scores.astype(np.float64)
    true_logit = np.take_along_axis(logit, labels[:, None].astype(np.int64), axis=1)[:, 0]
    other_logits = logit.copy()
    np.put_along_axis(other_logits, labels[:, None].astype(np.int64), -np.inf, axis=1)
    odds: Array = true_logit - np.logaddexp.reduce(other_logits, axis=1)
    return odds


@dataclass(frozen=True, eq=False)
class Answers:
    """Answers of all models, (models, records) each. `rows` index the training split.

    `correct` is None if the models returned only a number per record.
    """

    rows: NDArray[np.int64]
    member: Mask
    phi: Array
    correct: Mask | None

    @property
    def right(self) -> Array:
        """1 for correct answers, 0 for others, and NaN if it is unknown."""
        if self.correct is None:
            return np.full(self.phi.shape, np.nan)
        return self.correct.astype(np.float64)

    def of_records(self, block: slice) -> Answers:
        """Return the answers for a block of records."""
        correct = None if self.correct is None else self.correct[:, block]
        return Answers(self.rows[block], self.member[:, block], self.phi[:, block], correct)


def stack_answers(tables: Sequence[pa.Table]) -> Answers:
    """Stack the answers of all models. Raises ValueError for NaN or infinite log-odds."""
    phi = np.stack([read_column(table["log_odds"]) for table in tables])
    check_finite(phi, "log-odds of the models")
    correct = stack_marks(tables, "correct") if has_labels(tables) else None
    return Answers(tables[0]["row"].to_numpy(), stack_marks(tables, "member"), phi, correct)


def has_labels(tables: Sequence[pa.Table]) -> bool:
    """Return whether all models say which answers are correct, and not only a number per record."""
    return not any(table["correct"].null_count for table in tables)


def read_column(column: pa.ChunkedArray) -> Array:
    """Return a column without null values, without a copy if it is in one piece."""
    values: Array = column.chunk(0).to_numpy() if column.num_chunks == 1 else column.to_numpy()
    return values


def stack_marks(tables: Sequence[pa.Table], column: str) -> Mask:
    """Return a Boolean column of all tables, (tables, rows)."""
    marks = np.empty((len(tables), tables[0].num_rows), dtype=bool)
    for row, table in zip(marks, tables, strict=True):
        row[:] = table[column].to_numpy()
    return marks
