"""What each score says of every model, of those that saw the feature and of those that never did.

A score is an estimator of memory only as far as it tells the two apart. Every estimator gives a statistic, the larger
the more memorised, and where it is a test a p-value; a model is called memorised where that is at most 0.05.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tasks.audits.unique_feature import ranks
from tasks.audits.unique_feature.canaries import CANARY_SCORES
from tasks.audits.unique_feature.ranks import Array
from tasks.audits.unique_feature.relatives import FAMILY, by_model
from tasks.job import Inputs, task

LEVEL = 0.05

Row = dict[str, Any]
Models = Mapping[str, tuple[Array, Array]]  # canary and twin: d (members,) and log_p (members, classes)

DETECTION = pa.schema(
    [
        ("estimator", pa.string()),
        ("model", pa.string()),  # canary, or twin: one that never saw what it is asked about
        ("canary", pa.int64()),
        ("seed", pa.int64()),
        ("statistic", pa.float64()),  # larger: more memorised
        ("p_value", pa.float64()),  # null where the estimator is no test
        ("called", pa.bool_()),  # p-value at most 0.05; null where there is none
    ]
)


@dataclass(frozen=True)
class Detection:
    """Nothing but its inputs bears on the table."""


@task(version=4, name="unique_feature.detection", gathers=True)
def detection(config: Detection, inputs: Inputs) -> pa.Table:  # noqa: ARG001
    """Every estimator's word on every model. The inputs are families and canary scores, in any order and number."""
    rows: list[Row] = []
    for table in inputs:
        if table.schema == FAMILY:
            rows += of_families(table)
        elif table.schema == CANARY_SCORES:
            rows += of_scores(table)
    rows.sort(key=lambda row: (row["estimator"], row["model"], row["canary"], row["seed"]))
    return pa.Table.from_pylist(rows, DETECTION)


def of_scores(table: pa.Table) -> Iterator[Row]:
    """The published scores, and the floor: how much one drawing of random patches differs from another."""
    pairs = table.to_pylist()
    first = [pair for pair in pairs if pair["evaluation"] == 0]
    second = {(pair["canary"], pair["seed"]): pair for pair in pairs if pair["evaluation"] == 1}
    for pair in first:
        about = {"canary": pair["canary"], "seed": pair["seed"]}
        again = second.get((pair["canary"], pair["seed"]))
        for model, prefix in (("canary", ""), ("twin", "twin_")):
            yield row("M", model, about, pair[f"{prefix}m"])
            p_value = pair[f"{prefix}m_welch_p"]
            if p_value is not None:
                # By t, since p rounds to 0 for many a model.
                t = pair[f"{prefix}m_welch_t"]
                yield row("published t-test", model, about, -p_value if t is None else t, p_value)
            yield row("M_w", model, about, pair[f"{prefix}m_w_probe"])
            if again is not None:
                floor = pair[f"{prefix}average_d_r"] - again[f"{prefix}average_d_r"]
                yield row("random against random", model, about, floor)


def of_families(table: pa.Table) -> Iterator[Row]:
    """The ranks among the family: of a model alone, and of a model against its twin."""
    found = {said.about["model"]: said for said in by_model(table)}
    if set(found) != {"canary", "twin"}:
        return
    about = {name: found["canary"].about[name] for name in ("canary", "seed")}
    label = found["canary"].label
    for model, said in found.items():
        tests = {
            "rank of KL": said.d,
            "label-directed rank": ranks.label_directed(said.log_p[None], label),
            "label-directed rank, label unknown": ranks.label_directed(said.log_p[None]),
        }
        for estimator, scores in tests.items():
            yield ranked(estimator, model, about, scores)
    differences = ranks.paired(found["canary"].log_p, found["twin"].log_p, label)
    yield ranked("paired family rank", "canary", about, differences)
    # No second model of that seed never saw it; but of the family's others neither model saw any.
    yield ranked("paired family rank", "twin", about, ranks.untrained(differences, about["seed"]))


def ranked(estimator: str, model: str, about: Row, scores: Array) -> Row:
    p_value = ranks.rank_p_value(scores)
    return row(estimator, model, about, -p_value, p_value)


def row(estimator: str, model: str, about: Row, statistic: float, p_value: float | None = None) -> Row:
    return {
        "estimator": estimator,
        "model": model,
        **about,
        "statistic": statistic,
        "p_value": p_value,
        "called": None if p_value is None else p_value <= LEVEL,
    }
