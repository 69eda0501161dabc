"""What the tables say together, in the schema that all audits share."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tasks.audits.forgetting.measures import MEASURES
from tasks.audits.forgetting.target import NamedTarget
from tasks.job import Inputs, task
from tasks.measure import summarised


@dataclass(frozen=True)
class About:
    """What the tables do not say of the run: which targets there should be, and the paper's table that it repeats."""

    targets: tuple[NamedTarget, ...]
    published: str = ""


@task(version=2, name="forgetting.summary", gathers=True)
def summary(config: About, inputs: Inputs) -> pa.Table:
    """The rows of SUMMARY, from whichever tables there are, the answer's first."""
    return summarised(MEASURES, inputs, config)
