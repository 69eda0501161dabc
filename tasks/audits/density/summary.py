"""What the tables say together, in the schema that all audits share.

Intervals are over repetitions or trainings; shares and correlations of observations, which the same trainings scored,
say so by their unit.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tasks.audits.density.config import Density
from tasks.audits.density.measures import MEASURES
from tasks.audits.density.published import repeats
from tasks.audits.density.reassignment import smallest_p_value
from tasks.job import Inputs, task
from tasks.measure import summarised
from tasks.training.density_config import Privacy


@dataclass(frozen=True)
class Summary:
    """What the tables do not say of the run.

    How many models were `planned` to answer for an observation; the `smallest` p-value that it can have; the cell of
    the paper that the run repeats, if it repeats one; what `privacy` promised of models that left out a single row.
    """

    planned: int
    smallest: float
    published: str = ""
    privacy: Privacy | None = None


def about(config: Density) -> Summary:
    pair = config.estimator == "loo"
    models = 2 if pair else config.folds
    return Summary(
        planned=config.repetitions * models,
        smallest=smallest_p_value(config.repetitions, models, config.permutations),
        published=repeats(config),
        privacy=config.privacy if pair else None,
    )


@task(version=2, name="density.summary", gathers=True)
def summary(config: Summary, inputs: Inputs) -> pa.Table:
    """The rows of SUMMARY, the answer's first, from whichever tables there are."""
    return summarised(MEASURES, inputs, config)
