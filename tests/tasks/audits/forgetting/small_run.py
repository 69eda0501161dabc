"""A small run: confidences of synthetic models in the query set, and the table of a model with two decimals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.forgetting.measures.ratios import Ratios
from tasks.audits.forgetting.model_effects import Decisions
from tasks.audits.forgetting.rho import Score
from tasks.audits.forgetting.target import NamedTarget
from tests.tasks.audits.forgetting.made_up import audit, models, table, tables

QUERY, CALIBRATION, NULL = models(np.random.default_rng(0), 3, 3, 400)
REMEMBERED = NULL.copy()
REMEMBERED[:, 100:] = QUERY[:, 100:]
TARGETS = (
    NamedTarget("D_C", "training", 0.0, 1.0, 0.0),
    NamedTarget("D_C + 0.75 D_Q", "training", 0.75, 1.0, 0.0),
    NamedTarget("theirs", "outputs"),
)
CONFIG = Ratios(TARGETS)
RETURNED_TABLE = table("target", 2, 0, REMEMBERED[0].round(2), resolution=0.01)
INPUTS = [*tables(QUERY, CALIBRATION, NULL, REMEMBERED), RETURNED_TABLE]


def rows_of_score(score: Score, table: pa.Table) -> list[dict[str, Any]]:
    """The rows of this score."""
    return [row for row in table.to_pylist() if row["score"] == score]


# The same with a control set: calibration models, a target without D_Q, one with half of it, one with only a table,
# and models of two known shares.
SHARES = (0.1, 0.25)
REFERENCES, *TARGET_MODELS = audit(np.random.default_rng(4), (0.0, 0.5, 0.0, *SHARES), replicates=4, images=300)
CONTROLS = REFERENCES.shape[1] // 2
ABOUT = Decisions(
    (
        NamedTarget("D_C", "training", 0.0, 1.0, 0.0),
        NamedTarget("D_C + 0.5 D_Q", "training", 0.5, 1.0, 0.0),
        TARGETS[2],
    ),
    SHARES,
    permutations=199,
)


def tables_with_control(kind: str, number: int | None, values: NDArray[np.float64]) -> list[pa.Table]:
    result = []
    for replicate, confidence in enumerate(values):
        result.append(table(kind, number, replicate, confidence, control=CONTROLS))
    return result


CONTROLLED_INPUTS = [
    *tables_with_control("query", None, REFERENCES),
    *tables_with_control("calibration", None, REFERENCES),
    *tables_with_control("target", 0, TARGET_MODELS[0]),
    *tables_with_control("target", 1, TARGET_MODELS[1]),
    *tables_with_control("target", 2, TARGET_MODELS[2][:1]),
    *tables_with_control("partial", 0, TARGET_MODELS[3]),
    *tables_with_control("partial", 1, TARGET_MODELS[4]),
]
