"""The summary of the linear model."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from tasks.audits.relational import plan
from tasks.audits.relational.config import Linear, PrivateLinear, Relational
from tasks.audits.relational.measures.linear import CURVES_MEASURE, PRIVATE_MEASURE, RECOVERY_MEASURE
from tasks.contract.job import Job
from tasks.contract.measure import Measure, Tables
from tasks.linear_memorization.gradient_flow import CURVES, RECOVERY
from tasks.linear_memorization.private import PRIVATE
from tests.tasks.audits.relational.made_up import NUMERIC

MEASURES = (CURVES_MEASURE, RECOVERY_MEASURE, PRIVATE_MEASURE)


def rows_of(measure: Measure, *tables: pa.Table) -> dict[tuple[str, str], tuple[Any, ...]]:
    names = ("estimate", "low", "high", "n", "null")
    result = {}
    for row in measure.rows(Tables(tables), NUMERIC):
        result[(row["metric"], row["setting"])] = tuple(row[name] for name in names)
    return result


def curve(samples: int, features: int, *memorization: float) -> pa.Table:
    rows = []
    for exponent, value in enumerate(memorization):
        rows.append(
            {
                "samples": samples,
                "features": features,
                "time": 10.0**exponent,
                "n": 5,
                "learning": 0.5 + exponent / 10,
                "learning_low": 0.4,
                "learning_high": 0.9,
                "memorization": value,
                "memorization_low": value - 0.1,
                "memorization_high": value + 0.1,
            }
        )
    return pa.Table.from_pylist(rows, CURVES)


def test_curve_rows_have_peak_and_end() -> None:
    summary_rows = rows_of(CURVES_MEASURE, curve(30, 30, 0.5, 0.75, 0.625), curve(10, 60, 0.5, 0.625, 0.875))
    size = '{"d": 30, "n": 30}'
    other_size = '{"d": 60, "n": 10}'
    assert summary_rows["highest memorization", '{"d": 30, "n": 30, "time": 10.0}'] == (0.75, 0.65, 0.85, 5, 0.5)
    assert summary_rows["memorization at the end", size] == (0.625, 0.525, 0.725, 5, 0.5)
    assert summary_rows["learning at the end", size] == (0.7, 0.4, 0.9, 5, None)
    assert summary_rows["memorization at the end", other_size][0] == 0.875
    assert len(summary_rows) == 6


@pytest.mark.parametrize("error", [1e-9, None])
def test_recovery_rows_have_share_and_error(error: float | None) -> None:
    row = dict.fromkeys(RECOVERY.names) | {"samples": 3, "features": 9, "n": 4, "error_max": error}
    row |= {"recovered": 0.75, "recovered_low": 0.5, "recovered_high": 1.0}
    summary_rows = rows_of(RECOVERY_MEASURE, pa.Table.from_pylist([row], RECOVERY))
    size = '{"d": 9, "n": 3}'
    assert summary_rows["x recovered", size] == (0.75, 0.5, 1.0, 4, 0.0)
    assert summary_rows["largest error of a recovered x", size] == (error, None, None, 4 if error else 0, None)


def private(mechanism: str, epsilon: float | None, query: str, m: float, bound: float | None) -> dict[str, Any]:
    row = dict.fromkeys(PRIVATE.names) | {"mechanism": mechanism, "epsilon": epsilon, "query": query, "m": m}
    return row | {"low": m - 0.05, "high": m + 0.05, "n": 100, "bound": bound, "success_bound": 0.9}


def test_better_query_is_compared_with_bounds() -> None:
    rows = [
        private("randomised_response", 1.0, "raw", 0.1, 1.4),
        private("randomised_response", 1.0, "ratio", 0.3, 1.4),
        private("noisy_descent", 1.0, "raw", 0.2, None),
        private("none", None, "raw", 0.8, None),
    ]
    summary_rows = rows_of(PRIVATE_MEASURE, pa.Table.from_pylist(rows, PRIVATE))
    measured = {
        json.loads(setting_text)["mechanism"]: value[0]
        for (name, setting_text), value in summary_rows.items()
        if name[0] == "m"
    }
    assert measured == {"randomised_response": 0.3, "noisy_descent": 0.2, "none": 0.8}
    setting_text = '{"epsilon": 1.0}'
    bounds = {}
    for name, value in summary_rows.items():
        if name[0][0] != "m":
            bounds[name] = value[0]
    # for pure epsilon only
    assert bounds == {("epsilon / H(X)", setting_text): 1.4, ("bound on m by success", setting_text): 0.9}


@pytest.mark.parametrize("measure", MEASURES)
def test_measure_without_table_has_no_rows(measure: Measure) -> None:
    assert rows_of(measure) == {}


def test_curves_and_recovery_use_the_same_samples() -> None:
    linear = Linear(((3, 9), (5, 5)), 2)
    plan_roots = plan(Relational(linear))
    for curves, recovery in zip(plan_roots["linear_curves"], plan_roots["linear_recovery"], strict=True):
        samples = [(job.config.samples, job.config.features, job.config.seed) for job in (curves, recovery)]
        assert samples[0] == samples[1]


def test_private_model_uses_epsilons_of_question() -> None:
    job = plan(Relational(PrivateLinear((8.0, 1.0), 3)))["linear_private"]
    assert isinstance(job, Job)
    assert job.config.epsilons == (8.0, 1.0)
    assert job.config.trainings == 3
