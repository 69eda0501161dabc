"""What do linear models memorise: over time, for every x, and under differential privacy?

Curves. Learning is 1 - L(w(t)) of the exact gradient flow, memorization 1 minus the error of the raw query [0, y_i]. A
model that always answers 0 has a memorization of 1/2. If n is close to d, memorization rises and falls again; if d > n,
it persists.

Recovery, for d >= n:

    x_i = w*.[0, y_i] / (1 - w*.e1)

w* = e1 + v / |v|^2 with v = [-1, Y^+ X]; eqs. 25 and 26 of the paper have a sign error. If d < n, training converges to
e1, and nothing can be recovered.

Privacy. m of the attack on a small linear model that is trained with a pure epsilon or with (epsilon, delta), and its
theoretical bounds. Theorem 3.6 and corollary 3.7 bound mem = H(X) m by a pure epsilon in nats, and so m by epsilon /
H(X). An exact bound on the success of any attack also holds with a delta.

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

NULL = 0.5  # memorization of a model that always answers 0, averaged over x of variance 1
PURE = "randomised_response"  # its bounds apply to every mechanism with a pure epsilon


def plan_curves(config: Relational, linear: Linear) -> tuple[Job, ...]:
    seed = seeds.derive(config.seed, "linear")
    return tuple(
        Job(curves, Flow(samples, features, seed, linear.trainings, per_decade=linear.per_decade))
        for samples, features in linear.sizes
    )


def curve_rows(tables: Tables, about: About) -> Iterator[Row]:  # noqa: ARG001
    """Yield, for each size, the peak memorization and the final memorization and learning."""
    for table in tables.select(CURVES):
        points = table.to_pylist()
        highest = max(points, key=lambda point: point["memorization"])
        size = {"n": highest["samples"], "d": highest["features"]}
        peak_setting = {**size, "time": round(highest["time"], 4)}
        n = highest["n"]
        yield row("highest memorization", peak_setting, column_estimate(highest, "memorization", n), "training", NULL)
        yield row("memorization at the end", size, column_estimate(points[-1], "memorization", n), "training", NULL)
        yield row("learning at the end", size, column_estimate(points[-1], "learning", n), "training")


def _plan_recovery(config: Relational, linear: Linear) -> tuple[Job, ...]:
    seed = seeds.derive(config.seed, "linear")
    return tuple(
        Job(recovery, Recovery(samples, features, seed, linear.trainings)) for samples, features in linear.sizes
    )


def _recovery_rows(tables: Tables, about: About) -> Iterator[Row]:  # noqa: ARG001
    """Yield the share of x recovered to within 1e-6 of its standard deviation, and the largest error."""
    for table_row in tables.rows(RECOVERY):
        size = {"n": table_row["samples"], "d": table_row["features"]}
        recovered = column_estimate(table_row, "recovered", table_row["n"])
        yield row("x recovered", size, recovered, "training", 0.0)
        yield row("largest error of a recovered x", size, alone(table_row["error_max"], table_row["n"]), "training")


def _plan_private(config: Relational, linear: PrivateLinear) -> Job:
    seed = seeds.derive(config.seed, "private linear")
    return Job(private, Private(epsilons=linear.epsilons, seed=seed, trainings=linear.trainings))


def _private_rows(tables: Tables, about: About) -> Iterator[Row]:  # noqa: ARG001
    """Yield m for each mechanism and epsilon, with the more successful of the two queries, and the bounds on m."""
    best: dict[tuple[str, float | None], Row] = {}
    for table_row in tables.rows(PRIVATE):
        setting = table_row["mechanism"], table_row["epsilon"]
        if setting not in best or table_row["m"] > best[setting]["m"]:
            best[setting] = table_row
    for table_row in best.values():
        row_setting = {"mechanism": table_row["mechanism"], "query": table_row["query"]}
        if table_row["epsilon"] is not None:
            row_setting["epsilon"] = table_row["epsilon"]
        m = Estimate(table_row["m"], table_row["low"], table_row["high"], table_row["n"])
        yield row("m of a private linear model", row_setting, m, "training", 0.0)
    for table_row in best.values():
        if table_row["bound"] is not None and table_row["mechanism"] == PURE:
            epsilon = {"epsilon": table_row["epsilon"]}
            yield row("epsilon / H(X)", epsilon, alone(table_row["bound"], table_row["n"]), "training")
            yield row("bound on m by success", epsilon, alone(table_row["success_bound"], table_row["n"]), "training")


CURVES_MEASURE = Measure("linear_curves", CURVES, plan_curves, curve_rows)
RECOVERY_MEASURE = Measure("linear_recovery", RECOVERY, _plan_recovery, _recovery_rows)
PRIVATE_MEASURE = Measure("linear_private", PRIVATE, _plan_private, _private_rows)
