"""The measures of the audit, and the summary of their tables in the schema that all audits share."""

from __future__ import annotations

import pyarrow as pa

from tasks.audits.text.config import About
from tasks.audits.text.measures import (
    documents,
    epsilon,
    extraction,
    insertions,
    learning,
    other_texts,
    returned,
    secrets,
)
from tasks.contract.job import Inputs, task
from tasks.contract.measure import Measure, summarise

MEASURES: tuple[Measure, ...] = (
    secrets.MEASURE,
    secrets.OF_IDENTIFIERS,
    extraction.MEASURE,
    returned.MEASURE,
    learning.MEASURE,
    documents.MEASURE,
    documents.ESTIMATED,
    insertions.MEASURE,
    insertions.ESTIMATED,
    insertions.CONTROLLED,
    other_texts.MEASURE,
    epsilon.MEASURE,
)


@task(version=3, name="text.summary", gathers=True)
def summary(config: About, inputs: Inputs) -> pa.Table:
    """The rows of SUMMARY, from the tables that are present."""
    return summarise(MEASURES, inputs, config)
