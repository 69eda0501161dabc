"""M and M_w after every epoch of one training run. Epoch 0 is before training.

The scores are defined in `canary_scores` and computed here over the probe images. The curve of the control model shows
M for a model trained without the feature; the paper has no control models. A control model is evaluated for the same
number of epochs as its canary model and keeps the same epoch (`trainings`). The summary contains both scores before
training, after the first epoch and at the kept epoch.

The table `history` contains the losses and the accuracy after each epoch for the models of all pairs.

Source. Hartley & Tsaftaris 2022, "Unintended memorisation of unique features in neural networks", section 3.3 and
Figure 3c.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.unique_feature.design import Design
from tasks.audits.unique_feature.evaluation import MODELS, Evaluation, ModelName, Triples, probe_triples
from tasks.audits.unique_feature.pairs.canary_selection import RankedImage, RankedTraining, canary_row, resolve_canary
from tasks.audits.unique_feature.questions import EpochScores
from tasks.audits.unique_feature.scores import average, black_box_score, divergence, log_probabilities, white_box_score
from tasks.audits.unique_feature.trainings import Pair, Trainings
from tasks.contract.grouping import group_rows
from tasks.contract.job import Inputs, Job, Work, single_table, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.ranges import Ranged
from tasks.contract.summaries import Row, row
from tasks.datasets.catalog import load
from tasks.datasets.features import Feature
from tasks.datasets.picture_rows import whole_split
from tasks.numerics.statistics import mean
from tasks.training import classifier
from tasks.training.classifier import Training

if TYPE_CHECKING:
    from torch import Tensor

    from tasks.datasets.images import PictureSet
    from tasks.models.networks import Architecture, Weights
    from tasks.training.members import Member, Trained


Logits = NDArray[np.floating]

LEARNING_CURVE = pa.schema(
    [
        ("canary", pa.int64()),  # row of the training image that carries the feature
        ("label", pa.int32()),
        ("seed", pa.int64()),  # training seed
        ("model", pa.string()),  # canary, or twin (its control model)
        ("epoch", pa.int32()),  # 0: before training
        ("m", pa.float64()),
        ("m_w_probe", pa.float64()),
        ("average_d_u", pa.float64()),
        ("average_d_r", pa.float64()),
        ("validation_loss", pa.float64()),
        ("validation_accuracy", pa.float64()),
        ("kept", pa.bool_()),  # whether the canary model keeps the weights of this epoch
    ]
)


@dataclass(frozen=True)
class LearningCurve(Ranged):
    """A training run and the evaluation of its network after every epoch.

    The `training` of a canary model burns a feature into the canary's row; that of its control model burns none and has
    no patience. If the canary is named by its rank, its row is unknown. The training then burns no feature, and
    `carried` is the feature that the canary carries.
    """

    training: Training
    evaluation: Evaluation
    model: ModelName
    carried: Feature | None = None

    def conflicts(self) -> Iterator[str]:
        for name in ("data", "examples"):
            evaluated = getattr(self.evaluation, name)
            trained_value = getattr(self.training, name)
            if evaluated != trained_value:
                yield f"evaluation.{name} is {evaluated}; it must be the training's, {trained_value}"
        by_rank = isinstance(self.evaluation.canary, RankedImage)
        carries = self.model == "canary"
        if by_rank and carries and self.carried is None:
            yield "carried is none; it must be the feature of a canary that is named by its rank"
        if self.carried is not None and not (by_rank and carries):
            yield "carried is only for a canary that is named by its rank; for others, training contains the feature"
        rows = [burnt.row for burnt in self.training.burnt]
        expected = [self.evaluation.canary] if carries and not by_rank else []
        if rows != expected:
            yield f"training burns features into rows {rows}; for this {self.model} it must be {expected}"


def batch_key(config: LearningCurve) -> tuple[Training, Evaluation]:
    """Return the settings shared by learning curves computed together: the training and the evaluated images."""
    return classifier.batch_key(config.training), replace(config.evaluation, canary=0)


@dataclass
class TrackedModel:
    """A model in training: its scores after each epoch, or the error that ended it."""

    config: LearningCurve
    canary: int
    label: int
    member: Member
    kept_epoch: int | None = None  # set if it is known from the canary model's learning curve
    points: dict[int, Row] = field(default_factory=dict)  # by epoch
    error: ValueError | None = None

    def record_scores(self, epoch: int, clean: Logits, unique: Logits, random: Logits) -> None:
        """Score the model's logits (images, classes) on the probe images."""
        try:
            self.points[epoch] = _curve_point(clean, unique, random, self.label)
        except ValueError as error:
            self.error = error


def learning_curve_many(
    configs: Sequence[LearningCurve], inputs: Sequence[Inputs]
) -> Iterator[tuple[int, pa.Table | Exception]]:
    """Yield each learning curve's table, or the exception that ended it, as it ends. All must share a batch key."""
    from tasks.training.trainer import train_by_index

    if len({batch_key(config) for config in configs}) > 1:
        raise ValueError("courses that differ in more than model, canary, seed, features and rate cannot share a call")
    images = load(configs[0].training.data)
    network = classifier.architecture(configs[0].training, images)
    probe = probe_triples(configs[0].evaluation)
    courses: dict[int, TrackedModel] = {}
    for index, (config, tables) in enumerate(zip(configs, inputs, strict=True)):
        try:
            courses[index] = begin_curve(config, tables, images, network, probe)
        except ValueError as error:
            yield index, error
    in_training = list(courses.values())

    def watch(epochs: Sequence[tuple[int, int]], tensors: Mapping[str, Tensor]) -> None:
        from tasks.models.networks import model_weights

        answers = _probe_logits(network, [model_weights(tensors, position) for position in range(len(epochs))], probe)
        for position, (member, epoch) in enumerate(epochs):
            in_training[member].record_scores(epoch, *(logits[position] for logits in answers))

    spec = replace(classifier.spec_of(configs[0].training, images), watch=watch)
    for index, outcome in train_by_index(spec, {index: followed.member for index, followed in courses.items()}):
        result = courses[index].error or outcome
        yield index, result if isinstance(result, Exception) else _learning_curve_table(courses[index], result)


def work(config: LearningCurve) -> Work:
    """Return the work of the training. Its evaluation takes a forward pass of three images for each probe image."""
    return classifier.work(config.training)


@task(
    version=2,
    name="unique_feature.course",
    gpus=1.0,
    many=learning_curve_many,
    batch_key=batch_key,
    trains=1,
    work=work,
    spreads=True,
)
def learning_curve(config: LearningCurve, inputs: Inputs) -> pa.Table:
    """Compute M and M_w over the probe images after every epoch (LEARNING_CURVE). Epoch 0 is before training.

    The inputs are the table of selected canaries if the canary is named by its rank and, for a control model, the
    learning curve of its canary model if that has patience.
    """
    return single_table(learning_curve_many, config, inputs)


def begin_curve(
    config: LearningCurve, inputs: Inputs, images: PictureSet, network: Architecture, probe: Triples
) -> TrackedModel:
    """Return the learning curve of an untrained model."""
    canary = canary_row(config.evaluation.canary, inputs)
    training = config.training
    if config.carried is not None and isinstance(config.evaluation.canary, RankedImage):
        training = resolve_canary(RankedTraining(training, config.evaluation.canary, config.carried), inputs)
    member = classifier.member_of(training, images)
    if canary not in member.rows:
        raise ValueError(f"canary is {canary}; it must be one of the {len(member.rows)} rows that are trained on")
    followed = TrackedModel(config, canary, int(images.train.labels[canary]), member)
    for model in (table for table in inputs if table.schema == LEARNING_CURVE):
        (kept_epoch,) = (epoch["epoch"] for epoch in model.select(["epoch", "kept"]).to_pylist() if epoch["kept"])
        until = min(training.epochs, model.num_rows - 1)  # epoch 0 also has a row
        followed = replace(followed, member=replace(member, until=until), kept_epoch=kept_epoch)
    weights = network.initial(training.seed)
    followed.record_scores(0, *(logits[0] for logits in _probe_logits(network, [weights], probe)))
    followed.points[0] |= _validation_scores(network, weights, images)
    return followed


def _probe_logits(network: Architecture, models: Sequence[Weights], probe: Triples) -> tuple[Logits, Logits, Logits]:
    """Return the logits (models, images, classes) on the probe images: clean, with the feature, and with a patch."""
    from tasks.models.inference import logits

    clean = logits(network, models, probe.clean)
    unique = logits(network, models, probe.unique)
    random = logits(network, models, probe.random)
    return clean, unique, random


def _curve_point(clean: Logits, unique: Logits, random: Logits, label: int) -> Row:
    """Score one model's logits (images, classes). Raises ValueError if they are not finite."""
    clean = log_probabilities(clean)
    unique = log_probabilities(unique)
    random = log_probabilities(random)
    # Rounded to float32 as in the table of divergences, so that the same numbers give the same scores.
    d_u = divergence(clean, unique).astype(np.float32)
    d_r = divergence(clean, random).astype(np.float32)
    log_p_u = unique[:, label].astype(np.float32)
    log_p_r = random[:, label].astype(np.float32)
    return {
        "m": black_box_score(d_u, d_r),
        "m_w_probe": white_box_score(log_p_u, log_p_r),
        "average_d_u": average(d_u.astype(np.float64)),
        "average_d_r": average(d_r.astype(np.float64)),
    }


def _validation_scores(network: Architecture, weights: Weights, images: PictureSet) -> Row:
    """Return the mean loss in nats and the accuracy on the test split, which decide when training stops."""
    from tasks.models.inference import logits

    log_p = log_probabilities(logits(network, [weights], whole_split(images.test))[0])
    labels = images.test.labels
    return {
        "validation_loss": float(-log_p[np.arange(len(labels)), labels].mean()),
        "validation_accuracy": float((log_p.argmax(1) == labels).mean()),
    }


def _learning_curve_table(followed: TrackedModel, result: Trained) -> pa.Table:
    """Return the rows of a learning curve whose training has ended (LEARNING_CURVE)."""
    config = followed.config
    fixed = {
        "canary": followed.canary,
        "label": followed.label,
        "seed": config.training.seed,
        "model": config.model,
    }
    measured = {
        epoch.epoch: {"validation_loss": epoch.validation_loss, "validation_accuracy": epoch.validation_accuracy}
        for epoch in result.history
    }
    kept_epoch = followed.kept_epoch or result.best_epoch
    rows = [
        fixed | followed.points[epoch] | measured.get(epoch, {}) | {"epoch": epoch, "kept": epoch == kept_epoch}
        for epoch in sorted(followed.points)
    ]
    return pa.Table.from_pylist(rows, LEARNING_CURVE)


def plan(design: Design, trainings: Trainings) -> tuple[Job, ...]:
    if not isinstance(design.question, EpochScores):
        return ()
    return tuple(job for pair in trainings.pairs for job in _learning_curve_jobs(design, pair))


def _learning_curve_jobs(design: Design, pair: Pair) -> Iterator[Job]:
    """Yield the jobs that train the pair and evaluate it after every epoch."""
    canary = pair.canary
    clean = pair.clean
    assert isinstance(clean, Training)  # no program is followed epoch by epoch
    about = design.evaluation_of(canary, clean)
    if isinstance(canary.image, RankedImage):
        model = Job(learning_curve, LearningCurve(clean, about, "canary", canary.carried_feature), pair.ranking)
    else:
        model = Job(learning_curve, LearningCurve(canary.burn_into(clean), about, "canary"))
    yield model
    canary_course = (model,) if clean.patience else ()
    yield Job(learning_curve, LearningCurve(replace(clean, patience=0), about, "twin"), (*pair.ranking, *canary_course))


def rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    """Yield M before training, after the first epoch and at the kept epoch, with the effects there over pairs."""
    course = tables.rows(LEARNING_CURVE)
    if not course:
        return
    models = []
    for epochs in group_rows(course, "canary", "seed").values():
        models.append(group_rows(epochs, "model"))
    pairs = [pair for pair in models if set(pair) == {"canary", "twin"}]
    moments = {"before training": _epoch_selector(0), "first epoch": _epoch_selector(1), "kept": _kept_epoch}
    for moment, select_epoch in moments.items():
        for metric, name in (("M", "m"), ("M_w", "m_w_probe")):
            canary = [select_epoch(pair["canary"])[name] for pair in pairs]
            twin = [select_epoch(pair["twin"])[name] for pair in pairs]
            yield row(metric, {"epoch": moment}, mean(canary), "training", mean(twin).value)
            effects = [a - b for a, b in zip(canary, twin, strict=True)]
            yield row(f"{metric} effect", {"epoch": moment}, mean(effects), "pair of trainings", 0.0)


def _epoch_selector(epoch: int) -> Callable[[Sequence[Row]], Row]:
    return lambda course: next(row for row in course if row["epoch"] == epoch)


def _kept_epoch(course: Sequence[Row]) -> Row:
    return next(row for row in course if row["kept"])


# The history of every pair

HISTORY = pa.schema(
    [
        ("canary", pa.int64()),
        ("seed", pa.int64()),
        ("model", pa.string()),
        ("epoch", pa.int32()),  # counted from 1
        ("train_loss", pa.float64()),  # mean over the epoch's batches, in nats
        ("validation_loss", pa.float64()),
        ("validation_accuracy", pa.float64()),
        ("kept", pa.bool_()),  # whether the model keeps the weights of this epoch
    ]
)


@dataclass(frozen=True)
class History:
    """The canary of the pair whose history is listed."""

    canary: int | RankedImage


@task(version=1, name="unique_feature.history")
def history(config: History, inputs: Inputs) -> pa.Table:
    """List the epochs of the canary model and of its control model, which are the first two inputs."""
    canary = canary_row(config.canary, inputs)
    rows = []
    for model, table in zip(MODELS, inputs, strict=False):
        for model_row in table.select(["seed", "best_epoch", "history"]).to_pylist():
            for epoch in model_row["history"]:
                rows.append(
                    {
                        "canary": canary,
                        "seed": model_row["seed"],
                        "model": model,
                        "kept": epoch["epoch"] == model_row["best_epoch"],
                    }
                    | epoch
                )
    return pa.Table.from_pylist(rows, HISTORY)


def history_jobs(trainings: Trainings) -> tuple[Job, ...]:
    """Return the jobs that list the history of every pair. The models of a program have none."""
    jobs = []
    for pair in trainings.pairs:
        if isinstance(pair.clean, Training):
            jobs.append(Job(history, History(pair.canary.image), pair.inputs))
    return tuple(jobs)


def _plan_history(design: Design, trainings: Trainings) -> tuple[Job, ...]:
    return history_jobs(trainings) if design.asks_for("scores") else ()


def learning_curves(table: pa.Table) -> dict[str, list[tuple[int, float]]]:
    """Return the losses and the accuracy after each epoch, averaged over the models that reached the epoch."""
    names = ("train_loss", "validation_loss", "validation_accuracy")
    means = table.group_by("epoch").aggregate([(name, "mean") for name in names]).sort_by("epoch").to_pylist()
    curves = {}
    for name in names:
        curves[name] = [(mean["epoch"], mean[f"{name}_mean"]) for mean in means]
    return curves


MEASURE = Measure("course", LEARNING_CURVE, plan, rows)
HISTORY_MEASURE = Measure("history", HISTORY, _plan_history, learning_curves=learning_curves)
