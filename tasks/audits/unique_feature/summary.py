"""The summary of the tables, in the schema that all audits share.

Every interval is over trainings, pairs of trainings or models; where there is but one there is no interval.
"""

from __future__ import annotations

import pyarrow as pa

from tasks.audits.unique_feature.measures import MEASURES
from tasks.audits.unique_feature.published import PublishedCell
from tasks.job import Inputs, task
from tasks.measure import summarise


@task(version=7, name="unique_feature.summary", gathers=True)
def summary(config: PublishedCell, inputs: Inputs) -> pa.Table:
    """The rows of SUMMARY that the measures make from the tables that are present, found by their schemas."""
    return summarise(MEASURES, inputs, config)


@task(version=1, name="unique_feature.summary_of_models", gathers=True)
def summary_of_models(config: PublishedCell, inputs: Inputs) -> pa.Table:
    """The same of models that are asked alone, whose rows are others and have a version of their own."""
    return summarise(MEASURES, inputs, config)
