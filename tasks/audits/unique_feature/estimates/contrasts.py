"""How much the feature changes a picture, beside what a random patch does."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from tasks.statistics import mean, paired_greater
from tasks.summaries import Row, row


def contrast(table: pa.Table) -> Iterator[Row]:
    """The mean distance of a probe image from itself with the feature; null: with a random patch."""
    unique, random = (table[name].to_numpy().astype(np.float64) for name in ("unique", "random"))
    p_value = paired_greater(unique, random).p_value
    yield row("change of a probe image", {"by": "feature"}, mean(unique), "probe image", mean(random).value, p_value)
    yield row("change of a probe image", {"by": "random patch"}, mean(random), "probe image")
