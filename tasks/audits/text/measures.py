"""The measures of the audit, and the summary of their tables in the common schema."""

from __future__ import annotations

import pyarrow as pa

from tasks.audits.text import learning
from tasks.audits.text.config import About
from tasks.audits.text.documents import insertions
from tasks.audits.text.documents import ranks as documents
from tasks.audits.text.given import comparison, returned
from tasks.audits.text.secrets import epsilon, extraction
from tasks.audits.text.secrets import ranks as secrets
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
    comparison.MEASURE,
    epsilon.MEASURE,
)


@task(version=4, name="text.summary", gathers=True)
def summary(config: About, inputs: Inputs) -> pa.Table:
    """Summarise the available tables (SUMMARY)."""
    return summarise(MEASURES, inputs, config)
