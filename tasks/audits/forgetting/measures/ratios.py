"""The published score: each target's rho with an interval, the published rule, and the distances between models.

    rho = mean over i, j of KS(q_i, t_j) / mean over i, k of KS(q_i, c_k)

for query models q, calibration models c and the target's models t. A rho of about 1 means that the target is like
models that never saw D_Q. A rho near the floor over the denominator means that it is like models trained on D_Q. The
published rule, rho >= 1 of a single triple, is counted. Neither decides: see `decisions`.

The published score compares unrounded confidences; our one-sided score rounds them to `decimals` places.

Distances are the KS between each query model and each other model, as published and one-sided, both in [0, 1].
Distances among query models are the floor: if calibration models are as close, rho has no meaning.

Liu & Tsaftaris 2020, "Have you forgotten?", eqs. 2 to 4 and algorithm 1. For the interval see `rho`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tasks.audits.forgetting.confidence_matrix import ConfidenceMatrix, confidence_matrix
from tasks.audits.forgetting.config import About
from tasks.audits.forgetting.data_sets import DataSets
from tasks.audits.forgetting.presets import PublishedNumbers, numbers_by_name
from tasks.audits.forgetting.rho import METRIC_PREFIX, SCORES, Ratio, Score, compare_target, ks
from tasks.audits.forgetting.scoring import Scoring
from tasks.audits.forgetting.target import NamedTarget
from tasks.audits.forgetting.trainings import ModelId
from tasks.contract.job import Inputs, Job, NoSettings, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.summaries import Estimate, Row, alone, column_estimate, interval_columns, interval_fields, row
from tasks.numerics import statistics

# One row per target with answers and score.
RATIOS = pa.schema(
    [
        ("target", pa.int32()),
        ("name", pa.string()),
        ("score", pa.string()),  # kind of distance: published, one-sided
        ("source", pa.string()),  # training, model, outputs
        ("query", pa.float64()),  # shares in training; null if unknown
        ("calibration", pa.float64()),
        ("outside", pa.float64()),
        ("models", pa.int32()),  # replicates of the target
        *interval_fields("ks"),  # A, the mean KS to the query models, with its 95 % interval
        ("rho", pa.float64()),  # null if undefined
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("rule_forgotten", pa.int32()),  # triples that the published rule calls forgotten: rho >= 1
        ("rule_triples", pa.int32()),  # triples of a query, calibration and target model with a rho
        *interval_fields("ks_calibration"),  # B, at the target's resolution, with its 95 % interval
        ("floor", pa.float64()),  # mean KS between query models at the same resolution
        ("images", pa.int64()),
    ]
)
# One row per pair of a query model and another model.
DISTANCES = pa.schema(
    [
        ("query", pa.int32()),  # replicate of the query model
        ("model", pa.string()),  # kind of the other model: query, calibration, target
        ("target", pa.int32()),  # target index; null if the model is not a target
        ("replicate", pa.int32()),  # of the other model; each pair of query models occurs in both orders
        ("ks", pa.float64()),
        ("below", pa.float64()),  # one-sided: how far the other model's confidences lie below
        ("images", pa.int64()),
    ]
)
COLUMN: Mapping[Score, str] = {"one-sided": "below", "published": "ks"}


@dataclass(frozen=True)
class Ratios:
    """The targets, in order."""

    targets: tuple[NamedTarget, ...]


@task(version=4, name="forgetting.ratios", gathers=True)
def ratios(config: Ratios, inputs: Inputs) -> pa.Table:
    """Compute rho of each target (RATIOS) from tables of CONFIDENCES, in target order.

    A target without answers has no rows. Without a query model the table is empty.
    """
    matrix = confidence_matrix(inputs)
    if not matrix.replicates("query"):
        return RATIOS.empty_table()
    judged = []
    for number, target in enumerate(config.targets):
        if matrix.replicates("target", number):
            for score in SCORES:
                judged.append(target_row(matrix, number, target, score))
    return pa.Table.from_pylist(judged, RATIOS)


def target_row(matrix: ConfidenceMatrix, number: int, target: NamedTarget, score: Score) -> dict[str, Any]:
    models = matrix.replicates("target", number)
    comparison = compare_target(matrix, models, score)
    forgotten, triples = _published_rule(comparison.ratio, matrix, models, is_given=target.source != "training")
    rho = comparison.ratio.rho
    return {
        "target": number,
        "name": target.name,
        "score": score,
        "source": target.source,
        "query": target.query,
        "calibration": target.calibration,
        "outside": target.outside,
        "models": len(models),
        **interval_columns("ks", comparison.ratio.target),
        "rho": rho.value,
        "low": rho.low,
        "high": rho.high,
        "rule_forgotten": forgotten,
        "rule_triples": triples,
        **interval_columns("ks_calibration", comparison.ratio.calibration),
        "floor": comparison.floor,
        "images": matrix.images,
    }


def _published_rule(
    ratio: Ratio, matrix: ConfidenceMatrix, models: Sequence[ModelId], is_given: bool
) -> tuple[int, int]:
    """Count the triples (q_r, c_r, t_r) with rho >= 1, and the triples with a rho.

    A triple has no rho if a training is missing or KS(q_r, c_r) is 0. A given model is in every triple.
    """
    query = {model.replicate: index for index, model in enumerate(matrix.replicates("query"))}
    calibration = {}
    for index, model in enumerate(matrix.replicates("calibration")):
        calibration[model.replicate] = index
    target = {model.replicate: index for index, model in enumerate(models)}
    rhos = []
    for replicate in query.keys() & calibration.keys():
        if not is_given and replicate not in target:
            continue
        i = query[replicate]
        k = calibration[replicate]
        j = 0 if is_given else target[replicate]
        if ratio.to_calibration[i, k]:
            rhos.append(ratio.to_target[i, j] / ratio.to_calibration[i, k])
    return sum(rho >= 1 for rho in rhos), len(rhos)


def plan(_data: DataSets, scoring: Scoring) -> Job:
    return Job(ratios, Ratios(scoring.targets), scoring.answers)


def rows(tables: Tables, about: About) -> Iterator[Row]:
    """Yield rho and both distances of each target, and the answers of the published rule.

    A target without answers has a row without a value.
    """
    table = tables.one(RATIOS)
    if table is None:
        return
    judged = table.to_pylist()
    printed = numbers_by_name(about.published)
    answered = {target["name"] for target in judged}
    unanswered = [target.name for target in about.targets if target.name not in answered]
    for score in METRIC_PREFIX:
        of_score = [target for target in judged if target["score"] == score]
        yield from score_rows(score, of_score, unanswered, printed if score == "published" else {})
    for target in judged:
        if target["score"] == "published":
            rule = statistics.proportion(target["rule_forgotten"], target["rule_triples"])
            yield row("published rule says forgotten", {"target": target["name"]}, rule, "triple of trainings")


def score_rows(
    score: Score, judged: Sequence[Row], unanswered: Sequence[str], printed: Mapping[str, PublishedNumbers]
) -> Iterator[Row]:
    """Yield rho and KS of each target, with the paper's numbers for the same run."""
    prefix = METRIC_PREFIX[score]
    for target in judged:
        rho = Estimate(target["rho"], target["low"], target["high"], target["models"])
        paper = printed.get(target["name"])
        yield row(f"{prefix}rho", {"target": target["name"]}, rho, "training", 1.0, published=paper and paper.rho)
    for name in unanswered:
        yield row(f"{prefix}rho", {"target": name}, Estimate(None, None, None, 0), "training", 1.0)
    for target in judged:
        ks = column_estimate(target, "ks", target["models"])
        null = target["ks_calibration"]
        paper = printed.get(target["name"])
        yield row(f"{prefix}KS", {"target": target["name"]}, ks, "training", null, published=paper and paper.ks)


@task(version=2, name="forgetting.distances", gathers=True)
def distances(config: NoSettings, inputs: Inputs) -> pa.Table:  # noqa: ARG001
    """Compute KS between each query model and each other model (DISTANCES) from tables of CONFIDENCES.

    The published distance uses unrounded confidences, the one-sided distance rounded ones.
    """
    return pa.Table.from_pylist(list(pairs(confidence_matrix(inputs))), DISTANCES)


def pairs(matrix: ConfidenceMatrix) -> Iterator[dict[str, Any]]:
    """Yield the rows, ordered by the other model and then by query model."""
    numbers = sorted({model.target for model in matrix.models if model.target is not None})
    query = matrix.replicates("query")
    calibration = matrix.replicates("calibration")
    targets = (matrix.replicates("target", number) for number in numbers)
    for other_model in itertools.chain(query, calibration, *targets):
        for first_model in query:
            if first_model == other_model:
                continue
            first, second = matrix.published_confidences([first_model], [other_model])
            first_rounded, second_rounded = matrix.rounded_confidences([first_model], [other_model])
            yield {
                "query": first_model.replicate,
                "model": other_model.kind,
                "target": other_model.target,
                "replicate": other_model.replicate,
                "ks": ks(first[0], second[0]),
                "below": ks(first_rounded[0], second_rounded[0], "one-sided"),
                "images": matrix.images,
            }


def _plan_distances(_data: DataSets, scoring: Scoring) -> Job:
    return Job(distances, NoSettings(), scoring.answers)


def _distance_rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    """Yield the mean distance of calibration models, and of other query models, from query models."""
    measured = tables.rows(DISTANCES)
    for score, prefix in METRIC_PREFIX.items():
        column = COLUMN[score]
        for kind in ("calibration", "query"):
            values = [pair[column] for pair in measured if pair["model"] == kind]
            if values:
                mean = alone(sum(values) / len(values), len(values))
                yield row(f"{prefix}KS to query models", {"models": kind}, mean, "pair of trainings")


MEASURE = Measure("ratios", RATIOS, plan, rows)
DISTANCES_MEASURE = Measure("distances", DISTANCES, _plan_distances, _distance_rows)
