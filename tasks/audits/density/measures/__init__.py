"""The measures of the audit, in the order of their rows in the summary: the answer's first."""

from __future__ import annotations

from tasks.audits.density.measures import (
    distribution,
    duplicates,
    fits,
    kernel_density,
    losses,
    nearest_neighbours,
    outliers,
    ratios,
    scores,
)
from tasks.measure import Measure

MEASURES: tuple[Measure, ...] = (
    scores.MEASURE,
    distribution.MEASURE,
    losses.MEASURE,
    outliers.MEASURE,
    nearest_neighbours.MEASURE,
    ratios.MEASURE,
    duplicates.MEASURE,
    *kernel_density.MEASURES,
    *fits.MEASURES,
)
