"""How exactly is every x recovered from a trained linear model and its y?

    x_i = w*.[0, y_i] / (1 - w*.e1)

for d of at least n; w* = e1 + v / |v|^2 with v = [-1, Y^+ X], where the paper's eqs. 25 and 26 have a sign slip. For d
below n training ends in e1, and nothing can be recovered.

Bombari et al. 2022, section 5 and appendix B.3; computed by `tasks.linear_memorization.recovery`.
"""

from __future__ import annotations

from collections.abc import Iterator

from tasks import seeds
from tasks.audits.relational.config import About, Relational
from tasks.audits.relational.trainings import Trainings
from tasks.job import Job
from tasks.linear_memorization.recovery import RECOVERY, Recovery, recovery
from tasks.measure import Measure, Tables
from tasks.statistics import Estimate
from tasks.summaries import Row, alone, row


def plan(config: Relational, trainings: Trainings) -> tuple[Job, ...]:  # noqa: ARG001 - they have their own
    if "linear" not in config.measures:
        return ()
    seed = seeds.derive(config.seed, "linear")
    return tuple(
        Job(recovery, Recovery(samples, features, seed, config.linear.trainings))
        for samples, features in config.linear.sizes
    )


def rows(tables: Tables, about: About) -> Iterator[Row]:  # noqa: ARG001 - the tables say all
    """The share of x that is recovered within 1e-6 of its standard deviation, and the largest error."""
    for found in tables.rows(RECOVERY):
        size = {"n": found["samples"], "d": found["features"]}
        recovered = Estimate(found["recovered"], found["recovered_low"], found["recovered_high"], found["n"])
        yield row("x recovered", size, recovered, "training", 0.0)
        yield row("largest error of a recovered x", size, alone(found["error_max"], found["n"]), "training")


MEASURE = Measure("linear_recovery", RECOVERY, plan, rows)
