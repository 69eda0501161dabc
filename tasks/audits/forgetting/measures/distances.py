"""How far apart are the models' confidences, pair by pair?

    KS(a, b) = sup over x of |F_a(x) - F_b(x)|        KS below = sup over x of F_b(x) - F_a(x)

of a query model a and another model b, both in [0, 1]. The distances among query models are the floor: where
calibration models come as close, rho tells nothing.

Liu & Tsaftaris 2020, "Have you forgotten?", eqs. 2 and 3; see `kolmogorov_smirnov`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tasks.audits.forgetting.confidence_matrix import ConfidenceMatrix, confidence_matrix
from tasks.audits.forgetting.config import Forgetting
from tasks.audits.forgetting.kolmogorov_smirnov import METRIC_PREFIX, Score, ks
from tasks.audits.forgetting.measures import query_confidences
from tasks.audits.forgetting.trainings import Trainings
from tasks.job import Inputs, Job, task
from tasks.measure import Measure, Tables
from tasks.summaries import Row, alone, row

# One row per pair of a query model and another one.
DISTANCES = pa.schema(
    [
        ("query", pa.int32()),  # replicate of the query model
        ("model", pa.string()),  # what the other one is: query, calibration, target
        ("target", pa.int32()),  # its number; null where it is none
        ("replicate", pa.int32()),  # of the other one; a pair of query models is there in either order
        ("ks", pa.float64()),
        ("below", pa.float64()),  # one-sided: how far the other model's confidences lie below the query model's
        ("images", pa.int64()),
    ]
)
COLUMN: Mapping[Score, str] = {"one-sided": "below", "published": "ks"}


@dataclass(frozen=True)
class Distances:
    """All pairs there are; there is nothing to choose."""


@task(version=1, name="forgetting.distances", gathers=True)
def distances(config: Distances, inputs: Inputs) -> pa.Table:  # noqa: ARG001
    """KS of each query model and each other model (DISTANCES), both at the coarser resolution of the two.

    The inputs are tables of CONFIDENCES.
    """
    return pa.Table.from_pylist(list(pairs(confidence_matrix(inputs))), DISTANCES)


def pairs(matrix: ConfidenceMatrix) -> Iterator[dict[str, Any]]:
    """The rows, by the other model and then by query model."""
    numbers = sorted({model.target for model in matrix.models if model.target is not None})
    query, calibration = matrix.replicates("query"), matrix.replicates("calibration")
    targets = (matrix.replicates("target", number) for number in numbers)
    for other in itertools.chain(query, calibration, *targets):
        for one in query:
            if one == other:
                continue
            first, second = matrix.rounded_confidences([one], [other])
            yield {
                "query": one.replicate,
                "model": other.kind,
                "target": other.target,
                "replicate": other.replicate,
                "ks": ks(first[0], second[0]),
                "below": ks(first[0], second[0], "one-sided"),
                "images": matrix.images,
            }


def plan(config: Forgetting, trainings: Trainings) -> Job | tuple[()]:
    asked = query_confidences.plan(config, trainings)
    return Job(distances, Distances(), asked) if asked else ()


def rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    """How far calibration models are from query models, and these from one another: what the audit can tell apart."""
    measured = tables.rows(DISTANCES)
    for score, prefix in METRIC_PREFIX.items():
        column = COLUMN[score]
        by_kind = {
            kind: [pair[column] for pair in measured if pair["model"] == kind] for kind in ("calibration", "query")
        }
        for kind, values in by_kind.items():
            if values:
                mean = alone(sum(values) / len(values), len(values))
                yield row(f"{prefix}KS to query models", {"models": kind}, mean, "pair of trainings")


MEASURE = Measure("distances", DISTANCES, plan, rows)
