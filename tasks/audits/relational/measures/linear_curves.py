"""How do learning and memorization of a linear model go on over time?

By the exact gradient flow; learning is 1 - L(w(t)), memorization 1 less the error of the raw query [0, y_i]. A model
that answers 0 has a memorization of 1/2. Near n = d memorization rises and falls back; for d above n it stays.

Bombari et al. 2022, section 5, eq. 17, and figures 1 and 5; computed by `tasks.linear_memorization.gradient_flow`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tasks import seeds
from tasks.audits.relational.config import About, Relational
from tasks.audits.relational.trainings import Trainings
from tasks.job import Job
from tasks.linear_memorization.gradient_flow import CURVES, Flow, curves
from tasks.measure import Measure, Tables
from tasks.statistics import Estimate
from tasks.summaries import Row, row

NULL = 0.5  # of memorization: on average over x of variance 1, where every answer is 0


def plan(config: Relational, trainings: Trainings) -> tuple[Job, ...]:  # noqa: ARG001 - they have their own
    if "linear" not in config.measures:
        return ()
    seed = seeds.derive(config.seed, "linear")
    return tuple(
        Job(curves, Flow(samples, features, seed, config.linear.trainings, per_decade=config.linear.per_decade))
        for samples, features in config.linear.sizes
    )


def rows(tables: Tables, about: About) -> Iterator[Row]:  # noqa: ARG001 - the tables say all
    """Memorization where it is highest and at the end, and learning at the end, of each size."""
    for table in tables.select(CURVES):
        points = table.to_pylist()
        highest = max(points, key=lambda point: point["memorization"])
        size = {"n": highest["samples"], "d": highest["features"]}
        at = {**size, "time": round(highest["time"], 4)}
        yield row("highest memorization", at, read_estimate(highest, "memorization"), "training", NULL)
        yield row("memorization at the end", size, read_estimate(points[-1], "memorization"), "training", NULL)
        yield row("learning at the end", size, read_estimate(points[-1], "learning"), "training")


def read_estimate(point: dict[str, Any], name: str) -> Estimate:
    return Estimate(point[name], point[f"{name}_low"], point[f"{name}_high"], point["n"])


MEASURE = Measure("linear_curves", CURVES, plan, rows)
