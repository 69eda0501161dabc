"""How many models are needed: the rates at which panels of models, each tested as one, are called memorised.

A panel's score of a member is the mean of its models' standardised scores (`ranks.standardise`), and its p-value the
feature's rank by it. Panels share no model (`panel_rates`); panels of as many twins are the null. The paper has one
model a canary; this is ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tasks import seeds
from tasks.audits.unique_feature import ranks
from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.feature_family import model_families
from tasks.audits.unique_feature.measures.family import family_jobs
from tasks.audits.unique_feature.panel_rates import LEAST, RATE, rate_columns, rate_row
from tasks.audits.unique_feature.ranks import Array
from tasks.audits.unique_feature.trainings import Trainings
from tasks.job import Inputs, Job, task
from tasks.measure import Measure, Tables
from tasks.summaries import Row

SIZES = (1, 2, 3, 5, 10, 20)

PANELS = pa.schema(
    [
        ("estimator", pa.string()),
        ("model", pa.string()),  # canary, or twin: what the estimator says where nothing was memorised
        ("models", pa.int32()),  # in a panel
        *RATE,
    ]
)


@dataclass(frozen=True)
class Panels:
    """`seed` draws who is in a panel with whom."""

    seed: int


@dataclass(frozen=True, eq=False)
class PairOutputs:
    """What the models of a canary, trained with a seed, say of the family."""

    training: tuple[int, int]  # canary, seed
    label: int
    canary: Array  # log_p (members, classes)
    twin: Array
    unseen: Array | None  # difference (members,) where both are asked about a feature that the canary did not carry


@task(version=5, name="unique_feature.panels", gathers=True)
def panels(config: Panels, inputs: Inputs) -> pa.Table:
    """The rate at which panels of a size call the feature memorised (PANELS). The inputs are families, in any order.

    Panels are drawn without replacement, so that they are independent. With the label unknown the models of a panel
    have canaries of one label, as the models of one owner have.
    """
    pairs = [pair for table in inputs for pair in family_pairs(table)]
    order = seeds.generator(config.seed, "panels").permutation(len(pairs))
    shuffled = [pairs[index] for index in order]
    trainings = [pair.training for pair in pairs]
    found = [
        {"estimator": estimator, "model": model, "models": size} | rate_columns(p_values, trainings)
        for size in SIZES
        for estimator, model, p_values in panel_p_values(shuffled, size)
        if len(p_values) >= LEAST
    ]
    return pa.Table.from_pylist(found, PANELS)


def family_pairs(table: pa.Table) -> Iterator[PairOutputs]:
    models = {model.about["model"]: model for model in model_families(table)}
    if set(models) == {"canary", "twin"}:
        canary, twin = models["canary"], models["twin"]
        unseen = None
        if canary.null is not None and twin.null is not None:
            unseen = ranks.twin_difference(canary.null.log_p, twin.null.log_p, canary.label)
        training = canary.about["canary"], canary.about["seed"]
        yield PairOutputs(training, canary.label, canary.log_p, twin.log_p, unseen)


def panel_p_values(pairs: Sequence[PairOutputs], size: int) -> Iterator[tuple[str, str, list[float]]]:
    """The p-values of the panels of this size, by estimator and model."""
    mixed = split_panels(pairs, size)
    by_label = [
        group
        for label in sorted({pair.label for pair in pairs})
        for group in split_panels([pair for pair in pairs if pair.label == label], size)
    ]
    for model in ("canary", "twin"):
        yield "label-directed rank", model, [known_label_p_value(group, model) for group in mixed]
        yield "label-directed rank, label unknown", model, [unknown_label_p_value(group, model) for group in by_label]
        asked = [group for group in mixed if model == "canary" or all(pair.unseen is not None for pair in group)]
        yield "paired family rank", model, [paired_p_value(group, model) for group in asked]


def split_panels(pairs: Sequence[PairOutputs], size: int) -> list[Sequence[PairOutputs]]:
    return [pairs[first : first + size] for first in range(0, len(pairs) - size + 1, size)]


def known_label_p_value(group: Sequence[PairOutputs], model: str) -> float:
    """The rank of the mean of the models' scores, each towards its own canary's label."""
    scores = [ranks.standardise(getattr(pair, model))[:, pair.label] for pair in group]
    return ranks.rank_p_value(np.mean(scores, axis=0))


def unknown_label_p_value(group: Sequence[PairOutputs], model: str) -> float:
    return ranks.rank_p_value(ranks.label_directed_scores(np.stack([getattr(pair, model) for pair in group])))


def paired_p_value(group: Sequence[PairOutputs], model: str) -> float:
    """The rank of the mean of the standardised differences; the twins' is that of a feature that no canary carried."""
    if model == "canary":
        scores = [ranks.twin_difference(pair.canary, pair.twin, pair.label) for pair in group]
    else:
        scores = [pair.unseen for pair in group if pair.unseen is not None]
    members = min(len(score) for score in scores)  # others that look like the feature were left out
    return ranks.rank_p_value(np.mean([ranks.standardise(s[:members, None])[:, 0] for s in scores], axis=0))


def plan(config: UniqueFeature, trainings: Trainings) -> tuple[Job, ...]:
    if not config.asks_for("family"):
        return ()
    return (Job(panels, Panels(seeds.derive(config.seed, "panels")), family_jobs(config, trainings)),)


def rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    yield from panel_rate_rows(tables.rows(PANELS))


def panel_rate_rows(panels: Sequence[Row]) -> Iterator[Row]:
    """The detection rate of panels of several models; null: that of as many models without the feature."""
    nulls = {(p["estimator"], p["models"]): p["detection_rate"] for p in panels if p["model"] == "twin"}
    for panel in panels:
        if panel["model"] == "canary":
            yield rate_row(panel["estimator"], panel, nulls.get((panel["estimator"], panel["models"])))


MEASURE = Measure("panels", PANELS, plan, rows)
