"""Tables with known numbers in them, in place of those of trainings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.density.measures.neighbours import NEIGHBOURS
from tasks.audits.density.measures.scores import SCORES
from tasks.training.density import FITTED


def scores(u: Sequence[float | None], m: Sequence[float | None], rows: Sequence[int] | None = None) -> pa.Table:
    """A SCORES table of these U and M, published and with matched counts alike, with nothing else in it."""
    numbers = range(len(u)) if rows is None else rows
    both = pa.array(m, pa.float64())
    known = {"row": pa.array(numbers), "log_p_trained": pa.array(u, pa.float64()), "m": both, "m_matched": both}
    columns = [known.get(field.name, pa.nulls(len(u), field.type)) for field in SCORES]
    return pa.Table.from_arrays(columns, schema=SCORES)


def neighbours(ratios: Sequence[float | None], rows: Sequence[int] | None = None) -> pa.Table:
    """A NEIGHBOURS table of these ratios, each to a sample at distance 1 unless there is none."""
    return pa.Table.from_pylist(
        [
            {"row": row, "to_validation": ratio or 0.0, "to_sample": float(ratio is not None), "ratio": ratio}
            for row, ratio in zip(range(len(ratios)) if rows is None else rows, ratios, strict=True)
        ],
        NEIGHBOURS,
    )


def fitted(samples: NDArray[Any] | None) -> pa.Table:
    """A FITTED table of two epochs, with these samples after the last."""
    drawn = None if samples is None else samples.astype(np.float32).tobytes()
    rows = [{"seed": 0, "epoch": epoch, "samples": drawn if epoch == 2 else None} for epoch in (1, 2)]
    return pa.Table.from_pylist(rows, FITTED)
