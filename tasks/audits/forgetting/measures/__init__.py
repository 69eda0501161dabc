"""The measures of the audit and their summary."""

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

# In the order of the summary's rows, the answer's first.
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
    """The rows of SUMMARY from the tables that exist, starting with the answer's."""
    return summarise(MEASURES, inputs, config)
