"""How many observations are memorised by their own p-values, and what these could have shown."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tasks.audits.density.outliers import column
from tasks.summaries import Row, alone, row

LEVEL = 0.05  # of false discoveries


def significance(scores: pa.Table, smallest: float) -> Iterator[Row]:
    """The share of observations that are memorised at 5 % false discoveries; the smallest p-value there could be.

    The share has no interval: its observations were scored by the same trainings.
    """
    p_values = column(scores, "p_adjusted")
    tested = p_values[np.isfinite(p_values)]
    share = alone(float((tested <= LEVEL).mean()) if len(tested) else None, len(tested))
    yield row("observations memorised", {"false discoveries": LEVEL}, share, "observation", null=0.0)
    yield row("smallest possible p-value", {}, alone(smallest), "observation")
    missing = scores.num_rows - len(tested)
    if missing:
        yield row("observations without a score", {}, alone(float(missing), scores.num_rows), "observation")


def models(scores: pa.Table, planned: int) -> Iterator[Row]:
    """How many of the planned models answered for an observation, where some did not."""
    counts = column(scores, "trained_models") + column(scores, "held_out_models")
    fewest = float(counts.min()) if len(counts) else 0.0
    if fewest < planned:
        yield row("models of an observation, at least", {"planned": planned}, alone(fewest, planned), "training")
