"""Whether single models know the feature: its rank among the other features of its family.

    push = mean over models of O[0, y] - mean over f >= 1 of O[f, y]
    rank = members that score at least as much as the feature            of one on: 1 is the feature alone

with O[f, y] the mean over probe images of log (P / (1 - P)), P = P(y | x_f), in nats; f = 0 is the feature. The rank of
its score among the family gives an exact p-value, however few models there are (`ranks`), and decides. The push has no
interval: beside it stand the pushes of the others, which are its null, and the upper limit that `ranks.push` gives it,
by which a model is cleared. Several models of one owner
are one panel: their standardised scores are averaged, so that it has one p-value. The paper has no null; this is ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from tasks.audits.unique_feature import ranks
from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.evaluation import check_label
from tasks.audits.unique_feature.feature_family import FAMILY, ModelFamily, clean_images, family_rows, model_families
from tasks.audits.unique_feature.single_models import SingleModelConfig, batch_key
from tasks.audits.unique_feature.single_predictors import predictor
from tasks.audits.unique_feature.trainings import Trainings
from tasks.audits.unique_feature.verdict import FOUND, OTHERS, PUSH, RANK, SAME, UPPER, smallest_relevant_push
from tasks.job import Inputs, Job, task
from tasks.measure import Measure, Tables
from tasks.summaries import Row, alone, row


@task(version=2, name="unique_feature.ask_family", batch_key=batch_key)
def ask_family(config: SingleModelConfig, inputs: Inputs) -> pa.Table:
    """The family's scores (FAMILY) of the one model."""
    clean = clean_images(config.relatives, config.shape)
    (members,) = family_rows(config.relatives, clean, [predictor(config, inputs)])
    check_label(config.label, len(members[0]["log_p"]))
    about = {"canary": None, "label": config.label, "seed": config.number, "model": "given"}
    return pa.Table.from_pylist([about | member for member in members], FAMILY)


def plan(config: UniqueFeature, trainings: Trainings) -> tuple[Job, ...]:  # noqa: ARG001
    return tuple(Job(ask_family, single.config, single.inputs) for single in trainings.single_models)


def rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    yield from single_family_rows([model for table in tables.select(FAMILY) for model in model_families(table)])


def single_family_rows(models: Sequence[ModelFamily]) -> Iterator[Row]:
    """The feature's rank with its exact p-value, all models together, its push beside the others', its rank by KL."""
    if not models:
        return
    label = models[0].label
    log_p = np.stack([model.log_p for model in models])
    log_odds = np.stack([model.log_odds for model in models])
    d = np.stack([model.d for model in models])
    members = log_p.shape[1]
    estimate, null = ranks.push(log_p, log_odds, label)
    p_value = ranks.rank_p_value(ranks.label_directed_scores(log_p, label))
    y = ranks.favoured_label(log_p, label)
    asked = {"label": y, "label known": label is not None}
    yield row(PUSH, asked, alone(estimate.value, len(models)), "model", null, p_value)
    yield row(OTHERS, asked, ranks.mean_push_of_others(log_p, log_odds, label), "feature")
    yield row(UPPER, {"confidence": 0.975}, alone(estimate.high, len(models)), "model")
    size = smallest_relevant_push(ranks.separation(log_odds))
    yield row(
        FOUND,
        {"nats": float(f"{size:.3g}")},
        alone(ranks.detectable_share(log_p, log_odds, size, label), len(models)),
        "model",
    )
    yield row(SAME, {"label": y}, alone(ranks.tied_share(log_odds, y), len(models)), "model", 1 / (members - 1))
    yield row(RANK, {}, alone(p_value * members, len(models)), "model", (members + 1) / 2, p_value)
    kl = ranks.standardise(d[..., None]).mean(axis=0)[:, 0]
    above = float((d[:, 0] - d[:, 1:].mean(axis=1)).mean())
    yield row("KL above the family", {}, alone(above, len(models)), "model", 0.0, ranks.rank_p_value(kl))


MEASURE = Measure("family", FAMILY, plan, rows)
