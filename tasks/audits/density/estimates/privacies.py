"""Leave-one-out scores beside the epsilon that training promised."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tasks.audits.density.epsilon import Check, check
from tasks.summaries import Row, alone, row
from tasks.training.density_config import Privacy


def privacies(scores: pa.Table, privacy: Privacy) -> Iterator[Row]:
    """The largest score of a row left out, and how many lie above epsilon; nothing where no row has a score."""
    if scores["m"].null_count == scores.num_rows:
        return
    found = checked(scores, privacy)
    promise = {"delta": found.delta, "epsilon": found.epsilon}
    yield row("largest M of a row left out", promise | {"row": found.row}, found.largest, "trial")
    yield row(
        "rows above epsilon", promise, alone(found.above / found.rows, found.rows), "observation", 0.0, found.p_value
    )


def checked(scores: pa.Table, privacy: Privacy) -> Check:
    """The check of a SCORES table whose rows were left out one by one."""
    trained, held_out = (matrix(scores, name) for name in ("trained", "held_out"))
    return check(scores["row"].to_numpy(), trained, held_out, privacy.epsilon, privacy.delta)


def matrix(scores: pa.Table, name: str) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """A column of lists as (rows, trials), NaN where there is none."""
    flat = scores[name].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    values: np.ndarray[tuple[int, int], np.dtype[np.float64]] = flat.astype(np.float64).reshape(scores.num_rows, -1)
    return values
