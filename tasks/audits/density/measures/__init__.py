"""Measures of the audit, and the summary of their tables in the common schema."""

from __future__ import annotations

import pyarrow as pa

from tasks.audits.density.config import About
from tasks.audits.density.measures import (
    distribution,
    duplicates,
    kernel_density,
    learning,
    losses,
    neighbours,
    outliers,
    scores,
)
from tasks.contract.job import Inputs, task
from tasks.contract.measure import Measure, summarise

# In summary order. The decisive rows come first.
MEASURES: tuple[Measure, ...] = (
    scores.MEASURE,
    learning.MEASURE,
    distribution.MEASURE,
    losses.MEASURE,
    outliers.MEASURE,
    *neighbours.MEASURES,
    duplicates.MEASURE,
    *kernel_density.MEASURES,
    *losses.FITS,
)


@task(version=6, name="density.summary", gathers=True)
def summary(config: About, inputs: Inputs) -> pa.Table:
    """Summarise the existing tables as SUMMARY rows.

    Intervals are over repetitions or trainings, since the same models score all observations.
    """
    return summarise(MEASURES, inputs, config)
