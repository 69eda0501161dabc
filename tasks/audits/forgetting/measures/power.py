"""How little of the query set in training is found? Detections of single models, by the share that they trained on.

    power(share) = models that are called "not forgotten", each audited alone / models of the share

beside all of the calibration set, with its Wilson interval. At share 0 it is the rate of false alarms. The smallest
share detected is the one from which on, for it and all greater ones, all models of the share together are called "not
forgotten".

The shares of D_Q beside D_C are those of Liu & Tsaftaris 2020, "Have you forgotten?", tables 1 and 2; detections are
ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tasks.audits.forgetting.comparison import compared
from tasks.audits.forgetting.confidence_matrix import ConfidenceMatrix, confidence_matrix
from tasks.audits.forgetting.config import Forgetting
from tasks.audits.forgetting.decision import Forgot
from tasks.audits.forgetting.kolmogorov_smirnov import METRIC_PREFIX, SCORES, Score
from tasks.audits.forgetting.measures import query_confidences
from tasks.audits.forgetting.measures.ratios import Ratios, ratios_config
from tasks.audits.forgetting.trainings import Trainings
from tasks.job import Inputs, Job, task
from tasks.measure import Measure, Tables
from tasks.statistics import Estimate, proportion
from tasks.summaries import Row, alone, row

# One row per share and score, shares in rising order.
POWER = pa.schema(
    [
        ("share", pa.float64()),  # of D_Q in training, beside all of D_C; 0: none, which counts false alarms
        ("score", pa.string()),  # of the distances: published, one-sided
        ("models", pa.int32()),
        ("detected", pa.int32()),  # of them "not forgotten", each audited alone
        ("power", pa.float64()),  # detected / models, with its Wilson interval
        ("power_low", pa.float64()),
        ("power_high", pa.float64()),
        ("rho", pa.float64()),  # of all models of the share together, with its 95 % interval
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("decision", pa.string()),  # on all models of the share together
    ]
)


@dataclass(frozen=True)
class Power:
    """The targets and how they are decided on: as in the table of ratios."""

    ratios: Ratios


@task(version=1, name="forgetting.power", gathers=True)
def power(config: Power, inputs: Inputs) -> pa.Table:
    """The detections at each share (POWER), from tables of CONFIDENCES.

    Of the targets those that trained on all of D_C and a share of D_Q count. One whose models are all missing has no
    row, and without any query model there is none at all.
    """
    matrix = confidence_matrix(inputs)
    if not matrix.replicates("query"):
        return POWER.empty_table()
    shares = sorted(
        (target.query or 0.0, number)
        for number, target in enumerate(config.ratios.targets)
        if target.is_beside_all and matrix.replicates("target", number)
    )
    powers = [at_share(config.ratios, matrix, share, number, score) for share, number in shares for score in SCORES]
    return pa.Table.from_pylist(powers, POWER)


def at_share(config: Ratios, matrix: ConfidenceMatrix, share: float, number: int, score: Score) -> dict[str, Any]:
    """The row of POWER of the target of this number."""
    models = matrix.replicates("target", number)
    how = score, config.margin, config.resamples, config.seed
    detected = detections([compared(matrix, [model], *how).decision.answer for model in models])
    rate = proportion(detected, len(models))
    together = compared(matrix, models, *how)
    rho = together.ratio.rho
    return {
        "share": share,
        "score": score,
        "models": len(models),
        "detected": detected,
        "power": rate.value,
        "power_low": rate.low,
        "power_high": rate.high,
        "rho": rho.value,
        "low": rho.low,
        "high": rho.high,
        "decision": together.decision.answer,
    }


def detections(answers: Sequence[Forgot]) -> int:
    """How many models are found not to have forgotten, of decisions on single models."""
    return sum(answer == "not forgotten" for answer in answers)


def smallest_detected(decisions: Mapping[float, Forgot]) -> float | None:
    """The smallest share above 0 from which on, for it and all greater ones, the decision is "not forgotten".

    `decisions` are those on all models of a share together. None where there is no such share.
    """
    smallest = None
    for share in sorted((share for share in decisions if share > 0), reverse=True):
        if decisions[share] != "not forgotten":
            break
        smallest = share
    return smallest


def plan(config: Forgetting, trainings: Trainings) -> Job | tuple[()]:
    """None where no target trained on all of D_C and some of D_Q."""
    if not any(target.is_beside_all and target.remembers for target in trainings.targets):
        return ()
    return Job(power, Power(ratios_config(config, trainings)), query_confidences.plan(config, trainings))


def rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    """Power at each share of the query set, and the smallest share from which on all are found."""
    shares = tables.rows(POWER)
    for share in shares:
        rate = Estimate(share["power"], share["power_low"], share["power_high"], share["models"])
        yield row("power", {"score": share["score"], "share": share["share"]}, rate, "training")
    for score in METRIC_PREFIX:
        decisions = {share["share"]: share["decision"] for share in shares if share["score"] == score}
        if decisions:
            smallest = alone(smallest_detected(decisions), len(decisions))
            yield row("smallest share detected", {"score": score}, smallest, "share of the query set")


MEASURE = Measure("power", POWER, plan, rows)
