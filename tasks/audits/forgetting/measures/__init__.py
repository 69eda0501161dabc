"""Measures of the audit and their summary."""

from __future__ import annotations

import pyarrow as pa

from tasks.audits.forgetting.config import About
from tasks.audits.forgetting.measures import (
    baselines,
    decisions,
    examples,
    fits,
    power,
    query_confidences,
    ratios,
    recognition,
)
from tasks.contract.job import Inputs, task
from tasks.contract.measure import summarise

# In summary order, the answer's rows first.
MEASURES = (
    decisions.MEASURE,
    ratios.MEASURE,
    ratios.DISTANCES_MEASURE,
    power.MEASURE,
    recognition.MEASURE,
    baselines.MEASURE,
    fits.MEASURE,
    examples.MEASURE,
    query_confidences.MEASURE,
    query_confidences.COMMITMENT_MEASURE,
)


@task(version=7, name="forgetting.summary", gathers=True)
def summary(config: About, inputs: Inputs) -> pa.Table:
    """Summarise the existing tables as SUMMARY rows, the answer's first."""
    return summarise(MEASURES, inputs, config)
