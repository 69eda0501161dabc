"""The scores of every model: of models trained with the feature, and of control models, trained without it.

A score is useful as an estimator of memory if it distinguishes the two groups. Every estimator gives a statistic, which
rises with memorisation. If the estimator is a test, it also gives a p-value, and a model is called memorised if the
p-value is at most 0.05. The paired rank has no second pair of the same seed as a control; instead, the same pair is
evaluated on a feature that its canary did not carry (`family`).

The detection rate at 5 % false positives compares each canary model, and in the same way its control model, with the
control models of the other canaries: p = (1 + number of the n control models with at least its score) / (n + 1),
detected if p <= 0.05. A threshold based on the judged pair's own control model would depend on the pair's seed.

The curves are the rates of these models at every threshold: the receiver operating characteristic.

    M, M_w                      the published scores
    published t-test            Welch's t of d_u against d_r over the probe images
    random against random       mean d_r of one draw of random patches minus that of another: the floor
    rank of KL                  the feature's rank among its family by mean KL(f(x_c) || f(x_f))
    label-directed rank         by log P of the canary's label (`population.label_directed_scores`), known or unknown
    paired family rank          by log P of the label, canary model minus control model (`population.twin_difference`)

Source. M, M_w and the t-test: Hartley & Tsaftaris 2022, "Unintended memorisation of unique features in neural
networks", section 2. The ranks are ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tasks.audits.unique_feature.design import Design
from tasks.audits.unique_feature.measures.family import family_jobs
from tasks.audits.unique_feature.pairs.canary_scores import CANARY_SCORES, scores_job
from tasks.audits.unique_feature.pairs.units import call_rate, share_seeds
from tasks.audits.unique_feature.population import (
    FAMILY,
    LEVEL,
    family_pairs,
    label_directed_scores,
)
from tasks.audits.unique_feature.scores import Array
from tasks.audits.unique_feature.trainings import Trainings
from tasks.contract.grouping import group_rows
from tasks.contract.job import Inputs, Job, NoSettings, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.summaries import Estimate, Row, row
from tasks.numerics.ranks import rank_p_value
from tasks.numerics.statistics import mcnemar_greater, mean, proportion

LEAST = 20  # canaries; with fewer, control models give no threshold with 5 % false positives

DETECTION = pa.schema(
    [
        ("estimator", pa.string()),
        ("model", pa.string()),  # canary, or twin (control model, trained without the audited feature)
        ("canary", pa.int64()),
        ("seed", pa.int64()),
        ("statistic", pa.float64()),  # larger means more memorised
        ("p_value", pa.float64()),  # null if the estimator is not a test
        ("called", pa.bool_()),  # whether the p-value is at most 0.05; null if there is none
    ]
)


@task(version=5, name="unique_feature.detection", gathers=True)
def detection(config: NoSettings, inputs: Inputs) -> pa.Table:  # noqa: ARG001
    """Compute every estimator's statistic for every model. The inputs are families and canary scores, in any order."""
    rows: list[Row] = []
    for table in inputs:
        if table.schema == FAMILY:
            rows += family_rank_rows(table)
        elif table.schema == CANARY_SCORES:
            rows += score_rows(table)
    rows.sort(key=lambda row: (row["estimator"], row["model"], row["canary"], row["seed"]))
    return pa.Table.from_pylist(rows, DETECTION)


def score_rows(table: pa.Table) -> Iterator[Row]:
    """Yield the published scores, and the floor: the difference between two draws of random patches."""
    pairs = table.to_pylist()
    first = [pair for pair in pairs if pair["evaluation"] == 0]
    second = {(pair["canary"], pair["seed"]): pair for pair in pairs if pair["evaluation"] == 1}
    for pair in first:
        about = {"canary": pair["canary"], "seed": pair["seed"]}
        second_pair = second.get((pair["canary"], pair["seed"]))
        for model, prefix in (("canary", ""), ("twin", "twin_")):
            yield _detection_row("M", model, about, pair[f"{prefix}m"])
            p_value = pair[f"{prefix}m_welch_p"]
            if p_value is not None:
                # By t, because p rounds to 0 for many models.
                t = pair[f"{prefix}m_welch_t"]
                yield _detection_row("published t-test", model, about, -p_value if t is None else t, p_value)
            yield _detection_row("M_w", model, about, pair[f"{prefix}m_w_probe"])
            if second_pair is not None:
                floor = pair[f"{prefix}average_d_r"] - second_pair[f"{prefix}average_d_r"]
                yield _detection_row("random against random", model, about, floor)


def family_rank_rows(table: pa.Table) -> Iterator[Row]:
    """Yield the ranks among the family: of each model alone, and of the canary model against its control model."""
    for pair in family_pairs([table]):
        about = dict(zip(("canary", "seed"), pair.training, strict=True))
        for model, family in (("canary", pair.canary), ("twin", pair.twin)):
            tests = {
                "rank of KL": family.d,
                "label-directed rank": label_directed_scores(family.log_p[None], pair.label),
                "label-directed rank, label unknown": label_directed_scores(family.log_p[None]),
            }
            for estimator, scores in tests.items():
                yield _rank_row(estimator, model, about, scores)
        yield _rank_row("paired family rank", "canary", about, pair.difference)
        if pair.unseen is not None:
            yield _rank_row("paired family rank", "twin", about, pair.unseen)


def _rank_row(estimator: str, model: str, about: Row, scores: Array) -> Row:
    p_value = rank_p_value(scores)
    return _detection_row(estimator, model, about, -p_value, p_value)


def _detection_row(estimator: str, model: str, about: Row, statistic: float, p_value: float | None = None) -> Row:
    return {
        "estimator": estimator,
        "model": model,
        **about,
        "statistic": statistic,
        "p_value": p_value,
        "called": None if p_value is None else p_value <= LEVEL,
    }


def _detection_job(design: Design, trainings: Trainings) -> Job:
    """Return the job that computes every estimator's statistics for these pairs."""
    return Job(detection, NoSettings(), (*family_jobs(design, trainings), scores_job(design, trainings)))


def plan(design: Design, trainings: Trainings) -> tuple[Job, ...]:
    if design.asks_for("family"):
        return (_detection_job(design, trainings),)
    return ()


def rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    detection = tables.rows(DETECTION)
    yield from call_rates(detection)
    yield from detection_rates(detection)


def call_rates(detection: Sequence[Row]) -> Iterator[Row]:
    """Yield the rate at which each test calls a model memorised at its own 5 % level. The null is the rate without
    memory.

    Training runs that share a canary or a seed are not an independent sample, so their rates have no interval and no
    p-value.
    """
    for estimator, rows in group_rows(detection, "estimator").items():
        by_model: dict[str, dict[tuple[int, int], Any]] = {"canary": {}, "twin": {}}
        for outcome in rows:
            by_model[outcome["model"]][outcome["canary"], outcome["seed"]] = outcome["called"]
        shared_keys = [key for key in by_model["canary"] if key in by_model["twin"]]
        canary = [by_model["canary"][key] for key in shared_keys]
        twin = [by_model["twin"][key] for key in shared_keys]
        if shared_keys and None not in canary + twin:
            independent = all(len(set(names)) == len(shared_keys) for names in zip(*shared_keys, strict=True))
            rate = call_rate(canary, independent)
            p_value = mcnemar_greater(canary, twin) if independent else None
            setting = {"estimator": estimator}
            yield row("rate called memorised", setting, rate, "training", sum(twin) / len(shared_keys), p_value)


def detection_rates(detection: Sequence[Row]) -> Iterator[Row]:
    """Yield the share of models detected by thresholds from the control models of other canaries.

    The null is the share of control models detected in the same way. An estimator with fewer than 20 canaries has no
    row, because its control models give no threshold at 5 %. If canaries share training seeds, they are not an
    independent sample, and the rate has no interval.
    """
    for estimator, rows in group_rows(detection, "estimator").items():
        canary = _statistics_by_canary(rows, "canary")
        twin = _statistics_by_canary(rows, "twin")
        shared = [canary_row for canary_row in canary if canary_row in twin]
        if len(shared) < LEAST:
            continue
        detected: list[float] = []
        false_alarms: list[float] = []
        for canary_row in shared:
            unseen: list[float] = []
            for other_row in shared:
                if other_row != canary_row:
                    unseen += twin[other_row]
            detected.append(_detected_share(canary[canary_row], unseen))
            false_alarms.append(_detected_share(twin[canary_row], unseen))
        rate = _mean_share(detected)
        if share_seeds((outcome["canary"], outcome["seed"]) for outcome in rows):
            rate = Estimate(rate.value, None, None, rate.n)
        null = _mean_share(false_alarms).value
        yield row("detection rate at 5 % false positives", {"estimator": estimator}, rate, "canary", null)


def _statistics_by_canary(rows: Sequence[Row], model: str) -> dict[int, list[float]]:
    """Return the statistics of each canary's models of one kind, one per training seed."""
    by_canary: dict[int, list[float]] = {}
    for outcome in rows:
        if outcome["model"] == model:
            by_canary.setdefault(outcome["canary"], []).append(outcome["statistic"])
    return by_canary


def _detected_share(statistics: Sequence[float], unseen: Sequence[float]) -> float:
    """Return the share of a canary's models that score above at least 95 % of others' control models and themselves."""
    detected = 0
    for statistic in statistics:
        rank = 1 + sum(null_value >= statistic for null_value in unseen)
        detected += rank <= LEVEL * (len(unseen) + 1)
    return detected / len(statistics)


def _mean_share(shares: Sequence[float]) -> Estimate:
    """Return the mean over canaries with Wilson's interval.

    If only some of a canary's models are detected, the interval is a t interval.
    """
    if all(value in (0.0, 1.0) for value in shares):
        return proportion(round(sum(shares)), len(shares))
    return mean(shares)


# The receiver operating characteristic

CURVES = pa.schema(
    [
        ("estimator", pa.string()),
        ("false_positive_rate", pa.float64()),  # share of models without the feature at or above the threshold
        ("detection_rate", pa.float64()),  # share of models with the feature at or above the threshold
        ("low", pa.float64()),  # 95 % Wilson interval over the models with the feature
        ("high", pa.float64()),
        ("n", pa.int64()),  # number of models with the feature
    ]
)


@task(version=1, name="unique_feature.curves")
def curves(config: NoSettings, inputs: Inputs) -> pa.Table:  # noqa: ARG001
    """Compute a curve for every estimator (CURVES), from the DETECTION table, which is the only input."""
    points: list[Row] = []
    for estimator, rows in group_rows(inputs[0].to_pylist(), "estimator").items():
        canary = np.array([row["statistic"] for row in rows if row["model"] == "canary"])
        twin = np.array([row["statistic"] for row in rows if row["model"] == "twin"])
        if len(canary) and len(twin):
            points += ({"estimator": estimator} | point for point in curve(canary, twin))
    return pa.Table.from_pylist(points, CURVES)


def curve(with_it: Array, without: Array) -> Iterator[Row]:
    """Yield the receiver operating characteristic, with one point for every statistic without the feature as a
    threshold.

    The curve runs from (0, the share above every model without the feature) to (1, 1). Models at the threshold count as
    detected, so a false positive rate is never higher than stated.
    """
    thresholds = [np.inf, *np.unique(without)[::-1]]
    for threshold in thresholds:
        if np.isinf(threshold):
            above = with_it > without.max()
        else:
            above = with_it >= threshold
        rate = proportion(int(above.sum()), len(with_it))
        yield {
            "false_positive_rate": float((without >= threshold).mean()),
            "detection_rate": rate.value,
            "low": rate.low,
            "high": rate.high,
            "n": rate.n,
        }


def plan_curves(design: Design, trainings: Trainings) -> tuple[Job, ...]:
    if design.asks_for("family"):
        return (Job(curves, NoSettings(), (_detection_job(design, trainings),)),)
    return ()


MEASURE = Measure("detection", DETECTION, plan, rows)
CURVES_MEASURE = Measure("curves", CURVES, plan_curves)
