"""The power of the audit by the share of the query set that was trained on, beside all of the calibration set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tasks.audits.forgetting.audited import Audited
from tasks.audits.forgetting.comparison import compared
from tasks.audits.forgetting.distance import SCORES, Score
from tasks.audits.forgetting.power import detections
from tasks.audits.forgetting.ratios import Ratios
from tasks.audits.forgetting.said import Said, said
from tasks.job import Inputs, task

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
class Powers:
    """The targets and how they are decided on: as in the table of ratios."""

    ratios: Ratios


@task(version=1, name="forgetting.power", gathers=True)
def powers(config: Powers, inputs: Inputs) -> pa.Table:
    """The detections at each share (POWER), from tables of CONFIDENCES.

    Of the targets those that trained on all of D_C and a share of D_Q count. One whose models are all missing has no
    row, and without any query model there is none at all.
    """
    answers = said(inputs)
    shares = sorted(
        (target.query or 0.0, number) for number, target in enumerate(config.ratios.targets) if beside_all(target)
    )
    there = [(share, number) for share, number in shares if answers.named("target", number) and answers.named("query")]
    rows = [row(config.ratios, answers, share, number, score) for share, number in there for score in SCORES]
    return pa.Table.from_pylist(rows, POWER)


def row(config: Ratios, answers: Said, share: float, number: int, score: Score) -> dict[str, Any]:
    models = answers.named("target", number)
    how = score, config.margin, config.resamples, config.seed
    found = detections([compared(answers, [model], *how).decision.answer for model in models])
    together = compared(answers, models, *how)
    rho = together.ratio.rho
    return {
        "share": share,
        "score": score,
        "models": found.models,
        "detected": found.detected,
        "power": found.power.value,
        "power_low": found.power.low,
        "power_high": found.power.high,
        "rho": rho.value,
        "low": rho.low,
        "high": rho.high,
        "decision": together.decision.answer,
    }


def beside_all(target: Audited) -> bool:
    """Whether it was trained on all of the calibration set and a known share of the query set, and nothing else."""
    return target.calibration == 1 and target.query is not None and not target.outside
