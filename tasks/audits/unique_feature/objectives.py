"""What a search over training choices moves: the effect of the canaries on M_w, and validation accuracy."""

from __future__ import annotations

import json

import pyarrow as pa

from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.verdict import PUSH, ROWS
from tasks.objectives import Objective, Objectives, row_reader
from tasks.summaries import Row, index_rows


def effect(config: UniqueFeature, summary: pa.Table) -> Row | None:
    """The row of the effect on M_w of pairs of trainings; of models that are asked alone that of their push."""
    if not config.asks_models:
        return index_rows(summary).get(ROWS[0])
    return next((row for row in summary.to_pylist() if row["metric"] == PUSH), None)


OBJECTIVES = Objectives(
    memorization=Objective("M_w effect", "nats", "lower", row_reader("M_w effect", json.dumps({"images": "probe"}))),
    utility=Objective(
        "validation accuracy", "share", "higher", row_reader("validation accuracy", json.dumps({"model": "canary"}))
    ),
    allowance=0.01,
)
EFFECT = Objective("effect of the feature", "nats", "lower", effect)
