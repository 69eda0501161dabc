"""Measures of the audit, and the summary of their tables."""

from __future__ import annotations

import pyarrow as pa

from tasks.audits.membership.config import About
from tasks.audits.membership.measures import attacks, calibrated, curves, epsilon, given, loss, pairs, records, shifted
from tasks.contract.job import Inputs, task
from tasks.contract.measure import Measure, summarise

# In summary order. The rows of the answer come first.
MEASURES: tuple[Measure, ...] = (
    *given.MEASURES,
    *calibrated.MEASURES,
    *loss.MEASURES,
    *pairs.MEASURES,
    *records.MEASURES,
    attacks.MEASURE,
    shifted.MEASURE,
    *curves.MEASURES,
    epsilon.MEASURE,
    epsilon.ACCURACY_MEASURE,
)


@task(version=3, name="membership.summary", gathers=True)
def summary(config: About, inputs: Inputs) -> pa.Table:
    """Summarise the available tables (SUMMARY)."""
    return summarise(MEASURES, inputs, config)
