"""How far apart the models' confidences are, pair by pair."""

from __future__ import annotations

import itertools
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
        ("replicate", pa.int32()),  # of the other one; a pair of query models is there in either order
        ("ks", pa.float64()),
        ("below", pa.float64()),  # one-sided: how far the other model's confidences lie below the query model's
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
    targets = sorted({model.target for model in answers.models if model.target is not None})
    parts = [answers.named("query"), answers.named("calibration"), *(answers.named("target", each) for each in targets)]
    for other in itertools.chain(*parts):
        for query in parts[0]:
            if query == other:
                continue
            first, second = answers.alike([query], [other])
            yield {
                "query": query.replicate,
                "model": other.kind,
                "target": other.target,
                "replicate": other.replicate,
                "ks": distance.ks(first[0], second[0]),
                "below": distance.ks(first[0], second[0], "one-sided"),
                "images": answers.images,
            }
