"""Power: the detection rate of models trained on a known share of D_Q.

    power(share) = models that the randomisation test accuses, each audited alone / models of the share

The models are also trained on all of D_C. Each rate has a Wilson interval. At share 0, where each calibration model is
compared with the others, it is the false alarm rate. The smallest detected share is the smallest one such that it and
all larger shares reach REQUIRED_POWER. For each share, the number of models that would be cleared is also reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tasks.audits.forgetting.confidence_matrix import confidence_matrix
from tasks.audits.forgetting.data_sets import DataSets
from tasks.audits.forgetting.model_effects import Decisions, ModelEffects, SingleAudit
from tasks.audits.forgetting.scoring import Scoring
from tasks.audits.forgetting.target_evidence import LEVEL
from tasks.contract.grouping import group_by
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.summaries import Row, alone, column_estimate, interval_columns, interval_fields, row
from tasks.numerics.statistics import mean, proportion

REQUIRED_POWER = 0.8
# One row per share, in ascending order.
POWER = pa.schema(
    [
        ("share", pa.float64()),  # share of D_Q in training, with all of D_C; 0: false alarms
        ("models", pa.int32()),
        ("detected", pa.int32()),  # models accused if audited alone
        *interval_fields("power"),  # detected / models, with its Wilson interval
        ("effect", pa.float64()),  # mean effect, with a 95 % interval over trainings
        ("low", pa.float64()),
        ("high", pa.float64()),
        ("cleared", pa.int32()),  # models with a negligible upper limit that are not accused
    ]
)


@dataclass(frozen=True)
class Power:
    """Configuration of the decisions, as in the table of decisions."""

    decisions: Decisions


@task(version=2, name="forgetting.power", gathers=True)
def power(config: Power, inputs: Inputs) -> pa.Table:
    """Count the detections at each share (POWER) from tables of CONFIDENCES. Empty without a control set.

    Models without answers are omitted, as are shares without models.
    """
    model_effects = ModelEffects(config.decisions, confidence_matrix(inputs))
    if not model_effects.is_controlled:
        return POWER.empty_table()
    by_share = group_by(model_effects.single_audits(), lambda single: single.share)
    rows = []
    for share in sorted(by_share):
        rows.append(_power_row(share, by_share[share], config.decisions.negligible))
    return pa.Table.from_pylist(rows, POWER)


def _power_row(share: float, models: Sequence[SingleAudit], negligible: float) -> dict[str, Any]:
    detected = sum(single.p <= LEVEL for single in models)
    rate = proportion(detected, len(models))
    effect = mean([single.effect for single in models])
    return {
        "share": share,
        "models": len(models),
        "detected": detected,
        **interval_columns("power", rate),
        "effect": effect.value,
        "low": effect.low,
        "high": effect.high,
        "cleared": sum(single.high <= negligible and single.p > LEVEL for single in models),
    }


def smallest_detected_share(powers: Mapping[float, float]) -> float | None:
    """Return the smallest positive share at and above which power reaches REQUIRED_POWER. None if there is none."""
    smallest = None
    for share in sorted((share for share in powers if share > 0), reverse=True):
        if powers[share] < REQUIRED_POWER:
            break
        smallest = share
    return smallest


def plan(data: DataSets, scoring: Scoring) -> Job | tuple[()]:
    """Plan the power. Plans nothing without a control set or without a model of a known share."""
    has_known_target = any(target.is_beside_all and target.remembers for target in scoring.targets)
    if not data.query.is_controlled or not (scoring.decisions.partial or has_known_target):
        return ()
    return Job(power, Power(scoring.decisions), scoring.answers)


def rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    """Yield the power at each share of D_Q, and the smallest detected share."""
    shares = tables.rows(POWER)
    for share in shares:
        rate = column_estimate(share, "power", share["models"])
        yield row("power", {"share": share["share"]}, rate, "training")
    if shares:
        smallest = alone(smallest_detected_share({share["share"]: share["power"] for share in shares}), len(shares))
        yield row("smallest share found", {}, smallest, "share of D_Q")


MEASURE = Measure("power", POWER, plan, rows)
