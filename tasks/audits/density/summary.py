"""What the tables say together, in the schema that all audits share.

Intervals are over repetitions or trainings; shares and correlations of observations, which the same trainings scored,
say so by their unit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from tasks.audits.density.distribution import DISTRIBUTION
from tasks.audits.density.duplicates import DUPLICATES
from tasks.audits.density.estimates import around, distributions, losses, privacies, significance
from tasks.audits.density.kernel import POINTS
from tasks.audits.density.losses import LOSSES
from tasks.audits.density.neighbours import NEIGHBOURS
from tasks.audits.density.outliers import OUTLIERS
from tasks.audits.density.published import numbers
from tasks.audits.density.ratios import RATIOS
from tasks.audits.density.scores import SCORES
from tasks.job import Inputs, task
from tasks.schemas import SUMMARY
from tasks.summaries import Row
from tasks.training.density_config import Privacy

SCHEMAS: Mapping[str, pa.Schema] = {
    "distribution": DISTRIBUTION,
    "scores": SCORES,
    "losses": LOSSES,
    "outliers": OUTLIERS,
    "neighbours": NEIGHBOURS,
    "ratios": RATIOS,
    "points": POINTS,
    "duplicates": DUPLICATES,
}


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


@task(version=1, name="density.summary", gathers=True)
def summary(config: Summary, inputs: Inputs) -> pa.Table:
    """The rows of SUMMARY, from whichever tables there are; each is known by its schema."""
    tables = {name: table for table in inputs for name, schema in SCHEMAS.items() if table.schema.equals(schema)}
    return pa.Table.from_pylist(list(rows(config, tables)), SUMMARY)


def rows(config: Summary, tables: Mapping[str, pa.Table]) -> Iterator[Row]:
    """The summary's rows, the answer's first."""
    if "distribution" in tables:
        yield from distributions.scores(tables["distribution"], numbers(config.published))
    if "scores" in tables:
        yield from significance.significance(tables["scores"], config.smallest)
        yield from significance.models(tables["scores"], config.planned)
        if config.privacy is not None:
            yield from privacies.privacies(tables["scores"], config.privacy)
        yield from around.outliers(tables["scores"])
    if "distribution" in tables:
        yield from distributions.during(tables["distribution"])
    if "losses" in tables:
        yield from losses.losses(tables["losses"])
    if "neighbours" in tables and "scores" in tables:
        yield from around.neighbours(tables["scores"], tables["neighbours"])
    if "ratios" in tables:
        yield from around.ratios(tables["ratios"])
    if "duplicates" in tables:
        yield from around.duplicates(tables["duplicates"])
    if "points" in tables:
        yield from around.points(tables["points"])
