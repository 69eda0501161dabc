"""How far apart the models' confidences are, pair by pair."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tasks.audits.forgetting import distance
from tasks.audits.forgetting.said import Said, said
from tasks.job import Inputs, task

# One row per pair of a query model and another one.
DISTANCES = pa.schema(
    [
        ("query", pa.int32()),  # replicate of the query model
        ("model", pa.string()),  # what the other one is: query, calibration, target
        ("target", pa.int32()),  # its number; null where it is none
        ("replicate", pa.int32()),  # of the other one; of two query models the later, each pair once
        ("ks", pa.float64()),
        ("images", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Distances:
    """All pairs there are; there is nothing to choose."""


@task(version=1, name="forgetting.distances", gathers=True)
def distances(config: Distances, inputs: Inputs) -> pa.Table:  # noqa: ARG001
    """KS of each query model and each other model (DISTANCES), both at the coarser resolution of the two.

    The inputs are tables of CONFIDENCES.
    """
    return pa.Table.from_pylist(list(rows(said(inputs))), DISTANCES)


def rows(answers: Said) -> Iterator[dict[str, Any]]:
    """The rows, by the other model and then by query model."""
    order = {"query": 0, "calibration": 1, "target": 2}
    others = sorted(
        answers.models, key=lambda name: (order[name.model], -1 if name.target is None else name.target, name.replicate)
    )
    for other in others:
        for query in answers.names("query"):
            if other.model == "query" and query.replicate >= other.replicate:
                continue
            first, second = answers.alike([query], [other])
            yield {
                "query": query.replicate,
                **other._asdict(),
                "ks": distance.ks(first[0], second[0]),
                "images": answers.images,
            }
