"""What does differential privacy leave of a linear model's memorization?

m of the attack on a small linear model, trained with a pure epsilon or with (epsilon, delta), beside what the theory
allows: theorem 3.6 and corollary 3.7 bound mem = H(X) m by a pure epsilon in nats, so m by epsilon / H(X); an exact
bound on the success of any attack holds with a delta, too.

Bombari et al. 2022, section 3.2; the mechanisms and the exact bound are those of `tasks.linear_memorization.private`.
"""

from __future__ import annotations

from collections.abc import Iterator

from tasks import seeds
from tasks.audits.relational.config import About, Relational
from tasks.audits.relational.trainings import Trainings
from tasks.job import Job
from tasks.linear_memorization.private import PRIVATE, Private, private
from tasks.measure import Measure, Tables
from tasks.statistics import Estimate
from tasks.summaries import Row, alone, row

PURE = "randomised_response"  # whose bounds are those of every mechanism with a pure epsilon


def plan(config: Relational, trainings: Trainings) -> Job | tuple[()]:  # noqa: ARG001 - it has its own
    if "private" not in config.measures:
        return ()
    seed, linear = seeds.derive(config.seed, "private linear"), config.linear
    return Job(private, Private(epsilons=linear.epsilons, seed=seed, trainings=linear.private_trainings))


def rows(tables: Tables, about: About) -> Iterator[Row]:  # noqa: ARG001 - the table says all
    """m of each mechanism at each epsilon by the better query, and the bounds on it by epsilon."""
    best: dict[tuple[str, float | None], Row] = {}
    for found in tables.rows(PRIVATE):
        setting = found["mechanism"], found["epsilon"]
        if setting not in best or found["m"] > best[setting]["m"]:
            best[setting] = found
    for found in best.values():
        about_it = {"mechanism": found["mechanism"], "query": found["query"]}
        about_it |= {} if found["epsilon"] is None else {"epsilon": found["epsilon"]}
        m = Estimate(found["m"], found["low"], found["high"], found["n"])
        yield row("m of a private linear model", about_it, m, "training", 0.0)
    for found in best.values():
        if found["bound"] is not None and found["mechanism"] == PURE:
            epsilon = {"epsilon": found["epsilon"]}
            yield row("epsilon / H(X)", epsilon, alone(found["bound"], found["n"]), "training")
            yield row("bound on m by success", epsilon, alone(found["success_bound"], found["n"]), "training")


MEASURE = Measure("linear_private", PRIVATE, plan, rows)
