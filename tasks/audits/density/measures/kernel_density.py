"""The score where it can be written down: a kernel density estimate in one dimension, with and without a point.

    p(x | n points) = 1 / (n h) sum_i K((x - x_i) / h),    K the standard normal density
    M_i = log p(x_i | all) - log p(x_i | all but i)
        = log[((n - 1) q + K(0) / h) / n] - log q,         q = p(x_i | all but i)

The bandwidth h is one number, whatever the points are, so that leaving a point out changes the density around it and
nowhere else by more than a factor n / (n - 1). M_i falls as q rises: the point that the others support least is the
one that is memorised most. An overfitted density, of a narrower bandwidth, is another thing: it clings to every point.

Two tables of the same points: the densities on a grid (`kernel`), and the score of every point (`points`).

Van den Burg & Williams 2021, "On memorization in probabilistic deep generative models", figure 1 and eq. 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.density.config import Density, KernelDensity
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.ranges import AtLeast, Finite, Ranged
from tasks.contract.schemas import make_table
from tasks.contract.summaries import Row, alone, row
from tasks.numerics import seeds
from tasks.numerics.statistics import mean

Array = NDArray[np.float64]

# The mixture: two normal distributions, of which each point's is as likely as the other.
MEANS, DEVIATIONS = np.array([-2.0, 1.5]), np.array([0.6, 1.0])
LOG_ROOT = 0.5 * math.log(2 * math.pi)  # -log K(0)
BEYOND = 4.0  # bandwidths that the grid goes on past the outermost points, where next to nothing is left

KERNEL = pa.schema(
    [
        ("x", pa.float64()),
        ("with_point", pa.float64()),  # the density of all points
        ("without_point", pa.float64()),  # of all but the outlying one
        ("overfitted", pa.float64()),  # of all, with the narrow bandwidth
    ]
)
POINTS = pa.schema(
    [
        ("row", pa.int64()),
        ("x", pa.float64()),
        ("outlying", pa.bool_()),
        ("log_p_trained", pa.float64()),  # of the point, by the density of all, in nats
        ("log_p_held_out", pa.float64()),  # by that of all others
        ("m", pa.float64()),
    ]
)


@dataclass(frozen=True)
class Kernel(Ranged):
    """`points` drawn from a mixture of two normal distributions, and one that lies `gap` above the highest of them.

    The density has one `bandwidth` with and without a point, the overfitted one a narrower; `grid` is the number of
    places at which they are evaluated.
    """

    points: Annotated[int, AtLeast(1)] = 20
    gap: Annotated[float, Finite()] = 3.0
    bandwidth: Annotated[float, Finite()] = 0.5
    overfitted: Annotated[float, Finite()] = 0.1
    grid: Annotated[int, AtLeast(2)] = 501
    seed: Annotated[int, AtLeast(0)] = 0

    def conflicts(self) -> Iterator[str]:
        if self.overfitted >= self.bandwidth:
            yield f"overfitted is {self.overfitted}; it must be below the bandwidth, {self.bandwidth}"


@task(version=1, name="density.kernel")
def kernel(config: Kernel, inputs: Inputs) -> pa.Table:  # noqa: ARG001
    """The densities on a grid that reaches past all points (KERNEL)."""
    drawn = drawn_points(config)
    beyond = BEYOND * config.bandwidth
    x = np.linspace(drawn.min() - beyond, drawn.max() + beyond, config.grid)
    return make_table(
        KERNEL,
        x=x,
        with_point=np.exp(log_density(x, drawn, config.bandwidth)),
        without_point=np.exp(log_density(x, drawn[:-1], config.bandwidth)),
        overfitted=np.exp(log_density(x, drawn, config.overfitted)),
    )


@task(version=1, name="density.points")
def points(config: Kernel, inputs: Inputs) -> pa.Table:  # noqa: ARG001
    """Every point with its score (POINTS), the outlying one last."""
    drawn = drawn_points(config)
    held_out = np.array([log_density(drawn[[i]], np.delete(drawn, i), config.bandwidth)[0] for i in range(len(drawn))])
    rows = np.arange(len(drawn))
    return make_table(
        POINTS,
        row=rows,
        x=drawn,
        outlying=rows == len(drawn) - 1,
        log_p_trained=log_density(drawn, drawn, config.bandwidth),
        log_p_held_out=held_out,
        m=memorisation(held_out, len(drawn), config.bandwidth),
    )


def drawn_points(config: Kernel) -> Array:
    """The points (points + 1,) in the order in which they are drawn, the outlying one last."""
    draw = seeds.generator(config.seed, "kernel points")
    which = draw.integers(len(MEANS), size=config.points)
    drawn = MEANS[which] + DEVIATIONS[which] * draw.standard_normal(config.points)
    return np.append(drawn, drawn.max() + config.gap)


def log_density(x: Array, points: Array, bandwidth: float) -> Array:
    """log p(x), (x,), of the kernel density estimate of the points; in log space, for far from all p rounds to 0."""
    exponents = -0.5 * ((x[:, None] - points) / bandwidth) ** 2  # (x, points)
    return np.asarray(np.logaddexp.reduce(exponents, axis=1) - math.log(len(points) * bandwidth) - LOG_ROOT)


def memorisation(held_out: Array, count: int, bandwidth: float) -> Array:
    """M of every point from log q, its log density by the others of `count` points; (points,) both, in nats.

    It falls as q rises, to log((count - 1) / count) where one point more or less is nothing.
    """
    own = -LOG_ROOT - math.log(bandwidth)  # log K(0) / h
    return np.asarray(np.logaddexp(math.log(count - 1) + held_out, own) - math.log(count) - held_out)


def _plan_kernel(config: Density, _: object) -> Job | tuple[()]:
    return Job(kernel, _points_config(config.question)) if isinstance(config.question, KernelDensity) else ()


def _plan_points(config: Density, _: object) -> Job | tuple[()]:
    return Job(points, _points_config(config.question)) if isinstance(config.question, KernelDensity) else ()


def _points_config(question: KernelDensity) -> Kernel:
    """The points are the same in both tables."""
    return Kernel(seed=seeds.derive(question.seed, "kernel"))


def rows(tables: Tables, _: object) -> Iterator[Row]:
    """M of the outlying point of the kernel density, and of the others."""
    table = tables.one(POINTS)
    if table is None:
        return
    scored = table.to_pylist()
    for point in scored:
        if point["outlying"]:
            yield row("M", {"point": "outlying"}, alone(point["m"]), "point")
    yield row("M", {"point": "others"}, mean([point["m"] for point in scored if not point["outlying"]]), "point")


MEASURES = (Measure("kernel", KERNEL, _plan_kernel), Measure("points", POINTS, _plan_points, rows))
