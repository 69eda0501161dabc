"""Measures of the audit, and the summary of their tables."""

from __future__ import annotations

import pyarrow as pa

from tasks.audits.deja_vu.config import About
from tasks.audits.deja_vu.measures import (
    agreement,
    encoders,
    inferences,
    neighbours,
    probe,
    reconstruction,
    references,
    retrieval,
    scores,
)
from tasks.contract.job import Inputs, task
from tasks.contract.measure import summarise

# In summary order. The decisive row comes first.
MEASURES = (
    scores.MEASURE,
    references.MEASURE,
    agreement.MEASURE,
    encoders.MEASURE,
    scores.CATEGORIES_MEASURE,
    probe.MEASURE,
    reconstruction.MEASURE,
    neighbours.CROPS_MEASURE,
    retrieval.MEASURE,
    reconstruction.DRAWN_MEASURE,
    inferences.MEASURE,
    neighbours.MEASURE,
)


@task(version=3, name="deja_vu.summary", gathers=True)
def summary(config: About, inputs: Inputs) -> pa.Table:
    """Summarise the existing tables as SUMMARY rows, the decisive row first."""
    return summarise(MEASURES, inputs, config)
