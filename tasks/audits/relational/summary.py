"""What the tables say together, in the schema that all audits share."""

from __future__ import annotations

import pyarrow as pa

from tasks.audits.relational.config import About
from tasks.audits.relational.measures import MEASURES
from tasks.job import Inputs, task
from tasks.measure import summarise


@task(version=1, name="relational.summary", gathers=True)
def summary(config: About, inputs: Inputs) -> pa.Table:
    """The rows of SUMMARY, from whichever tables there are, the answer's first."""
    return summarise(MEASURES, inputs, config)
