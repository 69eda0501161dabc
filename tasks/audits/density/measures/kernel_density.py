"""The score in closed form: a kernel density estimate in one dimension, with and without a point.

    p(x | n points) = 1 / (n h) sum_i K((x - x_i) / h),    K the standard normal density

    M_i = log p(x_i | all) - log p(x_i | all but i)
        = log[((n - 1) q + K(0) / h) / n] - log q,         q = p(x_i | all but i)

The bandwidth h is constant. Removing a point therefore changes the density mainly around that point, and elsewhere by
at most a factor of n / (n - 1). M_i falls as q rises: the point with the least support from others is memorised most.
An overfitted density, with a narrower bandwidth, memorises every point.

Two tables describe the same points: the densities on a grid (`kernel`), and the score of every point (`points`).

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

# Mixture of two normal distributions with equal weights.
MEANS = np.array([-2.0, 1.5])
DEVIATIONS = np.array([0.6, 1.0])
LOG_ROOT = 0.5 * math.log(2 * math.pi)  # -log K(0)
BEYOND = 4.0  # bandwidths that the grid extends beyond the outermost points

KERNEL = pa.schema(
    [
        ("x", pa.float64()),
        ("with_point", pa.float64()),  # density estimate from all points
        ("without_point", pa.float64()),  # density estimate without the outlying point
        ("overfitted", pa.float64()),  # density estimate from all points with the narrow bandwidth
    ]
)
POINTS = pa.schema(
    [
        ("row", pa.int64()),
        ("x", pa.float64()),
        ("outlying", pa.bool_()),
        ("log_p_trained", pa.float64()),  # under the estimate from all points, in nats
        ("log_p_held_out", pa.float64()),  # under the estimate from the other points
        ("m", pa.float64()),
    ]
)


@dataclass(frozen=True)
class Kernel(Ranged):
    """`points` drawn from a mixture of two normal distributions, and one more point `gap` above the highest of them.

    `bandwidth` is the bandwidth of the density, `overfitted` the narrower one of the overfitted density, and `grid` the
    number of evaluated positions.
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
    """Evaluate the densities on a grid that extends beyond all points (KERNEL)."""
    positions = drawn_points(config)
    margin = BEYOND * config.bandwidth
    x = np.linspace(positions.min() - margin, positions.max() + margin, config.grid)
    return make_table(
        KERNEL,
        x=x,
        with_point=np.exp(log_density(x, positions, config.bandwidth)),
        without_point=np.exp(log_density(x, positions[:-1], config.bandwidth)),
        overfitted=np.exp(log_density(x, positions, config.overfitted)),
    )


@task(version=1, name="density.points")
def points(config: Kernel, inputs: Inputs) -> pa.Table:  # noqa: ARG001
    """Compute the score of every point (POINTS), the outlying one last."""
    positions = drawn_points(config)
    held_out = np.array(
        [log_density(positions[[i]], np.delete(positions, i), config.bandwidth)[0] for i in range(len(positions))]
    )
    rows = np.arange(len(positions))
    return make_table(
        POINTS,
        row=rows,
        x=positions,
        outlying=rows == len(positions) - 1,
        log_p_trained=log_density(positions, positions, config.bandwidth),
        log_p_held_out=held_out,
        m=memorisation(held_out, len(positions), config.bandwidth),
    )


def drawn_points(config: Kernel) -> Array:
    """Return the points (points + 1,) in drawing order, the outlying one last."""
    draw = seeds.generator(config.seed, "kernel points")
    component = draw.integers(len(MEANS), size=config.points)
    positions = MEANS[component] + DEVIATIONS[component] * draw.standard_normal(config.points)
    return np.append(positions, positions.max() + config.gap)


def log_density(x: Array, points: Array, bandwidth: float) -> Array:
    """Compute log p(x), (x,), of the kernel density estimate. Works in log space, because p can round to 0."""
    exponents = -0.5 * ((x[:, None] - points) / bandwidth) ** 2  # (x, points)
    return np.asarray(np.logaddexp.reduce(exponents, axis=1) - math.log(len(points) * bandwidth) - LOG_ROOT)


def memorisation(held_out: Array, count: int, bandwidth: float) -> Array:
    """Compute M (points,) from log q (points,), each point's log density under the other `count` - 1 points, in nats.

    M falls as q rises, to log((count - 1) / count).
    """
    log_own_kernel = -LOG_ROOT - math.log(bandwidth)  # log K(0) / h
    return np.asarray(np.logaddexp(math.log(count - 1) + held_out, log_own_kernel) - math.log(count) - held_out)


def _plan_kernel(config: Density, _: object) -> Job | tuple[()]:
    if isinstance(config.question, KernelDensity):
        return Job(kernel, _points_config(config.question))
    return ()


def _plan_points(config: Density, _: object) -> Job | tuple[()]:
    if isinstance(config.question, KernelDensity):
        return Job(points, _points_config(config.question))
    return ()


def _points_config(question: KernelDensity) -> Kernel:
    """Return the configuration of both tables, which describe the same points."""
    return Kernel(seed=seeds.derive(question.seed, "kernel"))


def rows(tables: Tables, _: object) -> Iterator[Row]:
    """Yield M of the outlying point, and the mean M of the others."""
    table = tables.one(POINTS)
    if table is None:
        return
    scored = table.to_pylist()
    for point in scored:
        if point["outlying"]:
            yield row("M", {"point": "outlying"}, alone(point["m"]), "point")
    yield row("M", {"point": "others"}, mean([point["m"] for point in scored if not point["outlying"]]), "point")


MEASURES = (Measure("kernel", KERNEL, _plan_kernel), Measure("points", POINTS, _plan_points, rows))
