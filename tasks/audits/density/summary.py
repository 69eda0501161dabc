"""The summary of the tables, in the schema that all audits share.

Intervals are over repetitions or trainings, since the same models score all observations.
"""

from __future__ import annotations

import pyarrow as pa

from tasks.audits.density.about import About
from tasks.audits.density.measures import MEASURES
from tasks.job import Inputs, task
from tasks.measure import summarise


@task(version=5, name="density.summary", gathers=True)
def summary(config: About, inputs: Inputs) -> pa.Table:
    """The rows of SUMMARY, the answer's first, from the tables that are present."""
    return summarise(MEASURES, inputs, config)
