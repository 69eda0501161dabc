"""How often each estimator detects the feature at every rate of false positives: its receiver operating characteristic.

These are the rates of the models at hand. Where one threshold is taken from some models and judged on others, at 5 %,
is in `detection`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.measures.detection import detection_job
from tasks.audits.unique_feature.ranks import Array
from tasks.audits.unique_feature.trainings import Trainings
from tasks.job import Inputs, Job, task
from tasks.measure import Measure
from tasks.statistics import proportion
from tasks.summaries import Row

CURVES = pa.schema(
    [
        ("estimator", pa.string()),
        ("false_positive_rate", pa.float64()),  # share of models without the feature at or above the threshold
        ("detection_rate", pa.float64()),  # share of models with it
        ("low", pa.float64()),  # 95 % Wilson interval over the models with it
        ("high", pa.float64()),
        ("n", pa.int64()),  # models with it
    ]
)


@dataclass(frozen=True)
class Curves:
    """Nothing but its input bears on the table."""


@task(version=1, name="unique_feature.curves")
def curves(config: Curves, inputs: Inputs) -> pa.Table:  # noqa: ARG001
    """A curve for every estimator (CURVES), from the table of DETECTION (the one input)."""
    statistics: dict[str, dict[str, list[float]]] = {}
    for word in inputs[0].to_pylist():
        statistics.setdefault(word["estimator"], {"canary": [], "twin": []})[word["model"]].append(word["statistic"])
    points = [
        {"estimator": estimator} | point
        for estimator, models in statistics.items()
        if models["canary"] and models["twin"]
        for point in curve(np.array(models["canary"]), np.array(models["twin"]))
    ]
    return pa.Table.from_pylist(points, CURVES)


def curve(with_it: Array, without: Array) -> Iterator[Row]:
    """The receiver operating characteristic: a point for every threshold that a statistic without the feature is.

    Between (0, the share above every model without it) and (1, 1); models at the threshold count as detected, so a
    false positive rate is never more than it says.
    """
    thresholds = [np.inf, *np.unique(without)[::-1]]
    for threshold in thresholds:
        above = with_it > without.max() if np.isinf(threshold) else with_it >= threshold
        rate = proportion(int(above.sum()), len(with_it))
        yield {
            "false_positive_rate": float((without >= threshold).mean()),
            "detection_rate": rate.value,
            "low": rate.low,
            "high": rate.high,
            "n": rate.n,
        }


def plan(config: UniqueFeature, trainings: Trainings) -> tuple[Job, ...]:
    return (Job(curves, Curves(), (detection_job(config, trainings),)),) if config.asks_for("family") else ()


MEASURE = Measure("curves", CURVES, plan)
