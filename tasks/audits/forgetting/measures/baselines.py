"""U-LiRA, forgetting quality and PrivLeak: published measures of unlearning for each target.

They compare the target's models with the calibration models, which serve as the retrained ones, on D_Q and, for
PrivLeak, the control set. They decide nothing here. U-LiRA and forgetting quality need several models of one target,
which an owner does not provide. All three mistake any difference from retrained models, such as other data or another
design, for memorisation. The formulas and their sources are in `unlearning_scores`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tasks.audits.forgetting.confidence_matrix import ConfidenceMatrix, confidence_matrix
from tasks.audits.forgetting.data_sets import DataSets
from tasks.audits.forgetting.exchangeability import log_odds
from tasks.audits.forgetting.scoring import Scoring
from tasks.audits.forgetting.target import NamedTarget
from tasks.audits.forgetting.unlearning_scores import (
    FEWEST_MODELS,
    forgetting_quality,
    permutation_test,
    privleak,
    u_lira_accuracy,
)
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.summaries import Estimate, Row, column_estimate, interval_columns, interval_fields, row
from tasks.external.confidences import round_confidences

# One row per target with answers. Estimates have 95 % intervals over models, or null if there is no interval.
BASELINES = pa.schema(
    [
        ("target", pa.int32()),
        ("name", pa.string()),
        ("models", pa.int32()),  # target models
        ("retrained", pa.int32()),  # calibration models
        ("images", pa.int64()),  # images in D_Q
        ("control", pa.int64()),  # control images
        *interval_fields("u_lira"),  # accuracy; 1/2 after retraining
        ("u_lira_pairs", pa.int32()),  # compared models of each kind
        *interval_fields("quality"),  # forgetting quality; `quality_null` is its value after retraining
        ("quality_pairs", pa.int32()),
        ("quality_null", pa.float64()),
        ("quality_p", pa.float64()),  # p-value of the quality under the hypothesis that the target is retrained
        *interval_fields("privleak"),  # 0 after retraining; near -1: more certain about D_Q
        ("missing", pa.string()),  # which measures are null, and why; null if none is
    ]
)


@dataclass(frozen=True)
class Baselines:
    """The targets, in order."""

    targets: tuple[NamedTarget, ...]


@task(version=2, name="forgetting.baselines", gathers=True)
def baselines(config: Baselines, inputs: Inputs) -> pa.Table:
    """Compute the measures of each target (BASELINES) from tables of CONFIDENCES, in target order.

    A target without answers has no row.
    """
    matrix = confidence_matrix(inputs)
    rows = []
    for number, target in enumerate(config.targets):
        if matrix.replicates("target", number):
            rows.append(target_row(matrix, number, target))
    return pa.Table.from_pylist(rows, BASELINES)


def target_row(matrix: ConfidenceMatrix, number: int, target: NamedTarget) -> dict[str, Any]:
    """Build the target's BASELINES row, with all confidences at the target's printed precision."""
    models = matrix.replicates("target", number)
    calibration = matrix.replicates("calibration")
    printed = max(matrix.models[model].printed for model in models)
    target_confidences = round_confidences(matrix.confidences(models), printed)
    calibration_confidences = round_confidences(matrix.confidences(calibration), printed)
    is_query = ~matrix.is_control
    kinds = log_odds(target_confidences[:, is_query], printed), log_odds(calibration_confidences[:, is_query], printed)
    likelihood = u_lira_accuracy(*kinds)
    quality = forgetting_quality(*kinds)
    chance = permutation_test(*kinds)
    leak = privleak(target_confidences, calibration_confidences, matrix.is_control)
    return {
        "target": number,
        "name": target.name,
        "models": len(models),
        "retrained": len(calibration),
        "images": int(is_query.sum()),
        "control": int(matrix.is_control.sum()),
        **interval_columns("u_lira", likelihood),
        "u_lira_pairs": likelihood.n,
        **interval_columns("quality", quality),
        "quality_pairs": quality.n,
        "quality_null": None if chance is None else chance[0],
        "quality_p": None if chance is None else chance[1],
        **interval_columns("privleak", leak),
        "missing": describe_missing(len(models), len(calibration), bool(matrix.is_control.any())),
    }


def describe_missing(models: int, retrained: int, control: bool) -> str | None:
    """Name the measures that are undefined for these numbers of models, with the reason."""
    reasons = []
    if min(models, retrained) < FEWEST_MODELS:
        reasons.append(
            f"U-LiRA and forgetting quality need {FEWEST_MODELS} models of the target and {FEWEST_MODELS} calibration "
            f"models; there are {models} and {retrained}"
        )
    if not control:
        reasons.append("PrivLeak needs a control set")
    return "; ".join(reasons) or None


def plan(_data: DataSets, scoring: Scoring) -> Job:
    return Job(baselines, Baselines(scoring.targets), scoring.answers)


def rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    """Yield the three measures of each target. An undefined measure has no value, and n is 0."""
    target_rows = tables.rows(BASELINES)
    for target in target_rows:
        yield row(
            "U-LiRA accuracy", {"target": target["name"]}, _read_estimate(target, "u_lira"), "pair of trainings", 0.5
        )
    for target in target_rows:
        null = target["quality_null"]
        p = target["quality_p"]
        value = _read_estimate(target, "quality")
        yield row("forgetting quality", {"target": target["name"]}, value, "pair of trainings", null, p)
    for target in target_rows:
        yield row("PrivLeak", {"target": target["name"]}, _read_estimate(target, "privleak"), "training", 0.0)


def _read_estimate(target: Row, name: str) -> Estimate:
    pairs = f"{name}_pairs"
    if pairs in target:
        n = target[pairs]
    elif target[name] is None:
        n = 0
    else:
        n = target["models"]
    return column_estimate(target, name, int(n))


MEASURE = Measure("baselines", BASELINES, plan, rows)
