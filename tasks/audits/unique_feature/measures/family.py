"""Does a model know the feature? Outputs for the feature and its family: one row per model and member.

The family provides the null distribution for a single model: features of the same kind, ink and position that it was
not trained on. `detection`, `panels` and `canary_verdicts` rank the feature in this family by the outputs of a canary
model and its control model. Each pair is also evaluated on a feature that its canary did not carry: the audited feature
if canaries carry features drawn from its family, otherwise a drawn one. It is ranked in the same way and gives the
false alarm rate. For a drawn feature, this rate is 5 % for any model because of the draw. It then checks the code, but
not whether a chosen feature resembles its family. To measure that, let canaries carry drawn features (`drawn`).

For single models, the summary contains

    push = mean over models of O[0, y] - mean over f >= 1 of O[f, y]
    rank = number of members that score at least as much as the feature     from 1: only the feature itself does

where O[f, y] is the mean over probe images of log (P / (1 - P)), P = P(y | x_f), in nats; f = 0 is the feature. The
rank of its score in the family gives an exact p-value for any number of models (`population`), which decides. The push
has no interval. The summary also contains the pushes of the other features, which are its null, and its upper limit
(`push`), which decides *not detected*. If one owner has several models, they form one panel: their standardised scores
are averaged, which gives one p-value. The paper has no null; this one is ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tasks.audits.unique_feature.config import ProbeSplit
from tasks.audits.unique_feature.design import Design, uncarried_feature
from tasks.audits.unique_feature.evaluation import MODELS, check_label, network_predictor
from tasks.audits.unique_feature.pairs.canary_selection import RankedImage, canary_row
from tasks.audits.unique_feature.population import (
    FAMILY,
    LEVEL,
    ModelFamily,
    Relatives,
    clean_images,
    family_rows,
    favoured_label,
    highest_standing,
    label_directed_scores,
    model_families,
    standardise,
)
from tasks.audits.unique_feature.presets import PublishedCell
from tasks.audits.unique_feature.scores import Array
from tasks.audits.unique_feature.single_models.models import SingleModelConfig, predictor, single_batch_key
from tasks.audits.unique_feature.trainings import Trainings
from tasks.contract.job import Inputs, Job, Work, format_shape, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.operations import InputStep
from tasks.contract.power import SMALLEST
from tasks.contract.summaries import Estimate, Row, alone, row
from tasks.contract.ties import tied_row
from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Feature
from tasks.numerics.ranks import rank_p_value, share_tied
from tasks.training.classifier import VALIDATED
from tasks.training.kept_accuracy import KEPT_ACCURACY, accuracy_jobs, accuracy_rows

SEPARATION = 0.02  # smallest relevant push if logits are small, as a share of the distance between labels


@dataclass(frozen=True)
class PairFamily:
    """The canary of the evaluated pair, named by its row or rank in the training images of `data`.

    `uncarried` is a feature that the canary did not carry, or None if the family has no second one.
    """

    data: Dataset
    canary: int | RankedImage
    relatives: Relatives
    uncarried: Feature | None = None


def batch_key(config: PairFamily) -> tuple[Dataset, Dataset, ProbeSplit, int, int]:
    """Return the settings shared by evaluations with similar run times."""
    relatives = config.relatives
    return config.data, relatives.probe, relatives.probe_split, relatives.probes, relatives.family.count


def work(config: PairFamily) -> Work:
    """Return the number of evaluated images: the probe images, with and without every member of the family."""
    relatives = config.relatives
    images = load(relatives.probe)
    probes = relatives.probes or len(images.test)
    unit = f"ask a pair about {format_shape(load(config.data).shape)}"
    # Both models, of which the first input states the training step, compute a forward pass.
    return Work(
        besides={unit: probes * (relatives.family.count + 2)},
        operations={unit: InputStep(2 * VALIDATED)},
    )


@task(version=3, name="unique_feature.family", batch_key=batch_key, work=work)
def pair_family(config: PairFamily, inputs: Inputs) -> pa.Table:
    """Compute the family's scores (FAMILY) by the canary model and its control model, the first two inputs."""
    data = load(config.data)
    canary = canary_row(config.canary, inputs)
    about = {"canary": canary, "label": int(data.train.labels[canary])}
    clean = clean_images(config.relatives, data.shape)
    pair = list(zip(MODELS, inputs, strict=False))
    answered = family_rows(config.relatives, clean, [network_predictor(table) for _, table in pair], config.uncarried)
    rows = [
        about | {"seed": table["seed"][0].as_py(), "model": model} | row
        for (model, table), members in zip(pair, answered, strict=True)
        for row in members
    ]
    return pa.Table.from_pylist(rows, FAMILY)


def family_jobs(design: Design, trainings: Trainings) -> tuple[Job, ...]:
    """Return the jobs that evaluate every pair on its family."""
    return tuple(
        Job(
            pair_family,
            PairFamily(
                pair.clean.data,
                pair.canary.image,
                design.relatives_of(pair.canary),
                uncarried_feature(design, pair.canary, trainings.shape),
            ),
            pair.inputs,
        )
        for pair in trainings.pairs
    )


def plan(design: Design, trainings: Trainings) -> tuple[Job, ...]:
    if design.asks_for("family"):
        return family_jobs(design, trainings)
    return ()


# Single models

RANK = "rank among the family"
PUSH = "push towards a label"
OTHERS = "push of the other features"  # with the range of the central 95 %; n is the number of features
UPPER = "upper limit of the push"
FOUND = "share of pushes that would be found"


@task(version=2, name="unique_feature.ask_family", batch_key=single_batch_key)
def ask_family(config: SingleModelConfig, inputs: Inputs) -> pa.Table:
    """Compute the family's scores (FAMILY) by a single model."""
    clean = clean_images(config.relatives, config.shape)
    (members,) = family_rows(config.relatives, clean, [predictor(config, inputs)])
    check_label(config.label, len(members[0]["log_p"]))
    about = {"canary": None, "label": config.label, "seed": config.number, "model": "given"}
    return pa.Table.from_pylist([about | member for member in members], FAMILY)


def plan_single(design: Design, trainings: Trainings) -> tuple[Job, ...]:  # noqa: ARG001
    return tuple(Job(ask_family, single.config, single.inputs) for single in trainings.single_models)


def single_rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    yield from single_family_rows([model for table in tables.select(FAMILY) for model in model_families(table)])


def single_family_rows(models: Sequence[ModelFamily]) -> Iterator[Row]:
    """Yield the feature's rank with its exact p-value for all models together, the pushes, and the rank by KL."""
    if not models:
        return
    label = models[0].label
    log_p = np.stack([model.log_p for model in models])
    log_odds = np.stack([model.log_odds for model in models])
    d = np.stack([model.d for model in models])
    members = log_p.shape[1]
    estimate, null = push(log_p, log_odds, label)
    p_value = rank_p_value(label_directed_scores(log_p, label))
    y = favoured_label(log_p, label)
    setting = {"label": y, "label known": label is not None}
    yield row(PUSH, setting, alone(estimate.value, len(models)), "model", null, p_value)
    yield row(OTHERS, setting, mean_push_of_others(log_p, log_odds, label), "feature")
    yield row(UPPER, {"confidence": 0.975}, alone(estimate.high, len(models)), "model")
    size = smallest_relevant_push(separation(log_odds))
    yield row(
        FOUND,
        {"nats": float(f"{size:.3g}")},
        alone(detectable_share(log_p, log_odds, size, label), len(models)),
        "model",
    )
    yield tied_row(most_tied_share(log_odds, y), len(models), "model")
    yield row(RANK, {}, alone(p_value * members, len(models)), "model", (members + 1) / 2, p_value)
    kl = standardise(d[..., None]).mean(axis=0)[:, 0]
    above = float((d[:, 0] - d[:, 1:].mean(axis=1)).mean())
    yield row("KL above the family", {}, alone(above, len(models)), "model", 0.0, rank_p_value(kl))


def plan_accuracies(design: Design, trainings: Trainings) -> tuple[Job, ...]:  # noqa: ARG001
    """Plan the accuracies of single models trained by the audit. The task of a third-party model is unknown."""
    return accuracy_jobs(training for single in trainings.single_models for training in single.inputs)


def accuracies(tables: Tables, about: PublishedCell) -> Iterator[Row]:
    """Yield the accuracy of single models trained by the audit on held-out images."""
    yield from accuracy_rows(tables, about.chance)


MEASURE = Measure("family", FAMILY, plan)
ACCURACY_MEASURE = Measure("accuracies", KEPT_ACCURACY, plan_accuracies, accuracies)
SINGLE_MEASURE = Measure("family", FAMILY, plan_single, single_rows)


def push(log_p: Array, log_odds: Array, label: int | None = None) -> tuple[Estimate, float]:
    """Return the push of the feature: its excess over its family in the log odds of a label. Also return its null.

    e = mean over models of O[m, 0, y] - mean over f >= 1 of O[m, f, y], where O is the mean log P / (1 - P) over probe
    images, in nats. Both arrays have shape (models, members, classes). The interval contains the shifts that are
    consistent with the family: e minus the 97.5th and the 2.5th percentile of the others' deviations. The p-th
    percentile of n others is the (n + 1) p-th in order, so that an untrained feature is below it with probability p.
    With fewer than 39 others, it is the first or the last, and the interval covers (n - 1) / (n + 1).

    If the label is unknown, y is the favoured label (by log P), and each of the others may choose its label in the same
    way. The second returned number is the mean deviation of the others, each in the label that it favours: the effect
    of this choice without memorisation. It is 0 for a known label. Because the label is chosen to rank the feature
    high, the lower end uses the larger of two 97.5th percentiles: that of the others in their favoured labels, and that
    of the others in label y, which is correct if the push is so large that no other label competes. The upper end uses
    the 2.5th percentile of the others in label y. The interval of an untrained feature is above 0 in at most 2.5 % of
    cases.
    """
    y = favoured_label(log_p, label)
    mean = log_odds.mean(axis=0)  # (members, classes)
    effect = float(mean[0, y] - mean[1:, y].mean())
    low, high = central_range(_pushes_of_others(log_p, log_odds, y))
    null = 0.0
    if label is None:
        favoured_pushes = _pushes_of_others(log_p, log_odds)
        null = float(favoured_pushes.mean())
        high = max(high, central_range(favoured_pushes)[1])
    return Estimate(effect, effect - high, effect - low, len(log_p)), null


def mean_push_of_others(log_p: Array, log_odds: Array, label: int | None = None) -> Estimate:
    """Return the mean push of the other features with their central 95 %: the push of an untrained feature.

    Percentiles are computed as in `push`.
    """
    pushes = _pushes_of_others(log_p, log_odds, label)
    return Estimate(float(pushes.mean()), *central_range(pushes), len(pushes))


def central_range(values: Array) -> tuple[float, float]:
    """Return the 2.5th and the 97.5th percentile. The p-th percentile is the (n + 1) p-th of n values in order."""
    low, high = np.quantile(values, (0.025, 0.975), method="weibull")
    return float(low), float(high)


def _pushes_of_others(log_p: Array, log_odds: Array, label: int | None = None) -> Array:
    """Return how far each of the others deviates from their mean log odds of the label, shape (members - 1,), in nats.

    If the label is unknown, each uses the label that it favours.
    """
    mean = log_odds.mean(axis=0)[1:]
    deviations = mean - mean.mean(axis=0)
    if label is not None:
        return np.asarray(deviations[:, label])
    return np.asarray(deviations[np.arange(len(mean)), highest_standing(standardise(log_p).mean(axis=0))[1][1:]])


def separation(log_odds: Array) -> float:
    """Return the distance between labels in nats: the standard deviation over classes of the family's mean log odds.

    Log odds have shape (models, members, classes); the result is the smallest value over models. It is proportional to
    a model's logits, as pushes are, so their quotient does not depend on a temperature.
    """
    return float(log_odds.mean(axis=1).std(axis=1).min())


def smallest_relevant_push(separation: float) -> float:
    """Return the smallest relevant push, in nats, for a model whose labels have this distance (`separation`).

    It is SMALLEST or, if this is less, SEPARATION times the distance. Otherwise, an owner could obtain *not detected*
    by dividing the logits by a temperature.
    """
    return min(SMALLEST, SEPARATION * separation)


def most_tied_share(log_odds: Array, y: int) -> float:
    """Return the share of member pairs with exactly equal outputs for label y. For several models, return the largest
    share.

    If it is large, there is hardly any null distribution, for example because outputs are rounded or constant.
    """
    return max(float(share_tied(model[:, y])) for model in log_odds)


def detectable_share(log_p: Array, log_odds: Array, size: float, label: int | None = None) -> float:
    """Return the share of the others that would be detected at 5 % if they were pushed `size` nats towards the label.

    `size` must be above 0. Each of the others in turn is compared with the remaining ones by its log odds in label y
    (if y is unknown: each in the label that it favours). This is the power of `push`, independent of its result.
    """
    pushes = _pushes_of_others(log_p, log_odds, label)
    above = (pushes[None] >= pushes[:, None] + size).sum(axis=1)
    return float(np.mean((1 + above) / (len(pushes) + 1) <= LEVEL))
