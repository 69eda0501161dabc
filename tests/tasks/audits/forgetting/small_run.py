"""A small run: what its made-up models say of the query set, and the table of one that prints two decimals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tasks.audits.forgetting.kolmogorov_smirnov import Score
from tasks.audits.forgetting.measures.ratios import Ratios
from tasks.audits.forgetting.target import NamedTarget
from tests.tasks.audits.forgetting.made_up import models, table, tables

QUERY, CALIBRATION, NULL = models(np.random.default_rng(0), 3, 3, 400)
REMEMBERED = NULL.copy()
REMEMBERED[:, 100:] = QUERY[:, 100:]
TARGETS = (
    NamedTarget("D_C", "training", 0.0, 1.0, 0.0),
    NamedTarget("D_C + 0.75 D_Q", "training", 0.75, 1.0, 0.0),
    NamedTarget("theirs", "outputs"),
)
CONFIG = Ratios(TARGETS, resamples=50)
THEIRS = table("target", 2, 0, REMEMBERED[0].round(2), resolution=0.01)
INPUTS = [*tables(QUERY, CALIBRATION, NULL, REMEMBERED), THEIRS]


def by(score: Score, table: pa.Table) -> list[dict[str, Any]]:
    """The rows of this score."""
    return [row for row in table.to_pylist() if row["score"] == score]
