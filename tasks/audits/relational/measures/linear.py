"""What do linear models memorise: over time, of every x, and under differential privacy?

Curves. Learning is 1 - L(w(t)) of the exact gradient flow, memorization 1 less the error of the raw query [0, y_i]. A
model that answers 0 has a memorization of 1/2. Near n = d memorization rises and falls back; for d above n it stays.

Recovery, for d of at least n:

    x_i = w*.[0, y_i] / (1 - w*.e1)

w* = e1 + v / |v|^2 with v = [-1, Y^+ X], where the paper's eqs. 25 and 26 have a sign slip. For d below n training ends
in e1, and nothing can be recovered.

Privacy. m of the attack on a small linear model, trained with a pure epsilon or with (epsilon, delta), beside what the
theory allows: theorem 3.6 and corollary 3.7 bound mem = H(X) m by a pure epsilon in nats, so m by epsilon / H(X); an
exact bound on the success of any attack holds with a delta, too.

Bombari et al. 2022, sections 3.2 and 5, eq. 17, appendix B.3, and figures 1 and 5; computed by
`tasks.linear_memorization`.
"""

from __future__ import annotations

from collections.abc import Iterator

from tasks.audits.relational.config import About, Linear, PrivateLinear, Relational
from tasks.contract.job import Job
from tasks.contract.measure import Measure, Tables
from tasks.contract.summaries import Estimate, Row, alone, column_estimate, row
from tasks.linear_memorization.gradient_flow import CURVES, RECOVERY, Flow, Recovery, curves, recovery
from tasks.linear_memorization.private import PRIVATE, private
from tasks.linear_memorization.private_config import Private
from tasks.numerics import seeds

NULL = 0.5  # of memorization: on average over x of variance 1, where every answer is 0
PURE = "randomised_response"  # whose bounds are those of every mechanism with a pure epsilon


def plan_curves(config: Relational, linear: Linear) -> tuple[Job, ...]:
    seed = seeds.derive(config.seed, "linear")
    return tuple(
        Job(curves, Flow(samples, features, seed, linear.trainings, per_decade=linear.per_decade))
        for samples, features in linear.sizes
    )


def curve_rows(tables: Tables, about: About) -> Iterator[Row]:  # noqa: ARG001 - the tables say all
    """Memorization where it is highest and at the end, and learning at the end, of each size."""
    for table in tables.select(CURVES):
        points = table.to_pylist()
        highest = max(points, key=lambda point: point["memorization"])
        size = {"n": highest["samples"], "d": highest["features"]}
        at, n = {**size, "time": round(highest["time"], 4)}, highest["n"]
        yield row("highest memorization", at, column_estimate(highest, "memorization", n), "training", NULL)
        yield row("memorization at the end", size, column_estimate(points[-1], "memorization", n), "training", NULL)
        yield row("learning at the end", size, column_estimate(points[-1], "learning", n), "training")


def _plan_recovery(config: Relational, linear: Linear) -> tuple[Job, ...]:
    seed = seeds.derive(config.seed, "linear")
    return tuple(
        Job(recovery, Recovery(samples, features, seed, linear.trainings)) for samples, features in linear.sizes
    )


def _recovery_rows(tables: Tables, about: About) -> Iterator[Row]:  # noqa: ARG001 - the tables say all
    """The share of x that is recovered within 1e-6 of its standard deviation, and the largest error."""
    for found in tables.rows(RECOVERY):
        size = {"n": found["samples"], "d": found["features"]}
        recovered = column_estimate(found, "recovered", found["n"])
        yield row("x recovered", size, recovered, "training", 0.0)
        yield row("largest error of a recovered x", size, alone(found["error_max"], found["n"]), "training")


def _plan_private(config: Relational, linear: PrivateLinear) -> Job:
    seed = seeds.derive(config.seed, "private linear")
    return Job(private, Private(epsilons=linear.epsilons, seed=seed, trainings=linear.trainings))


def _private_rows(tables: Tables, about: About) -> Iterator[Row]:  # noqa: ARG001 - the table says all
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


CURVES_MEASURE = Measure("linear_curves", CURVES, plan_curves, curve_rows)
RECOVERY_MEASURE = Measure("linear_recovery", RECOVERY, _plan_recovery, _recovery_rows)
PRIVATE_MEASURE = Measure("linear_private", PRIVATE, _plan_private, _private_rows)
