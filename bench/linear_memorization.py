"""Speed of computing the linear model's curves, compared with gradient descent in steps.

    python -m bench.linear_memorization [--tiny] [--out bench/results/NAME.md]

The rival takes explicit gradient descent steps, one training after another. The step length is the largest for which
descent is monotone (1 / the largest eigenvalue), so the early curve is coarse. The rival is timed over a few steps of
one training and extrapolated to all. With 300 samples of 2000 features, all trainings have converged at time 10 and the
rival may stop there. With 1000 samples of 1000 features, they have not converged at 10,000. Drawing the samples is not
timed. Both use one thread, and the ratio compares median CPU times from the same run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bench.measuring import Row, Run, bench_parser, clock_for, in_turn, publish
from measurement.report import measurement_facts
from tasks.linear_memorization.gaussian_samples import normal_samples
from tasks.linear_memorization.gradient_flow import Flow, curve_times, scores, spectrum

Array = NDArray[np.float64]
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Size:
    flow: Flow
    timed_steps: int  # timed steps of the rival

    def __str__(self) -> str:
        flow = self.flow
        return f"n = {flow.samples}, d = {flow.features}, {flow.trainings} trainings, to t = {10**flow.last:g}"


FULL = (Size(Flow(300, 2000, trainings=20, last=1.0), 50), Size(Flow(1000, 1000, trainings=20), 50))
TINY = (Size(Flow(6, 9, trainings=3, last=1.0), 5),)


def rows(tiny: bool) -> Iterator[Row]:
    """Yield the seconds for the curves of each size, and for the rival."""
    kind, clock = clock_for(CPU)
    torch.set_num_threads(1)
    for size in TINY if tiny else FULL:
        flow = size.flow
        z = np.stack(
            [normal_samples(flow.seed, training, flow.samples, flow.features) for training in range(flow.trainings)]
        )
        step = 1 / steepest(z[0])
        needed_steps = int(np.ceil(10**flow.last / step)) * flow.trainings
        runs: dict[str, Run] = {
            "engram": partial(by_eigenvalues, torch.from_numpy(z), curve_times(flow)),
            "steps": partial(by_steps, z[0], curve_times(flow), step, size.timed_steps),
        }
        seconds = in_turn(runs, 1 if tiny else 3, clock)
        engram_seconds = seconds["engram"]
        rival_seconds = seconds["steps"] / size.timed_steps * needed_steps
        yield Row(
            f"curves, {size}, {kind}",
            f"{engram_seconds:.3f} s",
            f"{rival_seconds:.2f} s, {needed_steps:,} steps of gradient descent, from {size.timed_steps}",
            rival_seconds / engram_seconds,
        )


def by_eigenvalues(z: Tensor, times: Array) -> tuple[Tensor, Tensor]:
    return scores(spectrum(z), times)


def steepest(z: Array) -> float:
    """Return the largest eigenvalue of Z'Z / n."""
    return float(np.linalg.norm(z, 2) ** 2) / len(z)


def by_steps(z: Array, times: Array, step: float, steps: int) -> tuple[Array, Array]:
    """Return learning and memorization, each (times,).

    Values are NaN at times that this number of steps does not reach.
    """
    n = len(z)
    x = z[:, 0]
    y = z[:, 1:]
    learned, memorised = np.full((2, len(times)), np.nan)
    weights = np.zeros(z.shape[1])
    index = 0
    for step_count in range(steps + 1):
        residuals = z @ weights - x
        while index < len(times) and times[index] <= (step_count + 0.5) * step:
            learned[index] = 1 - residuals @ residuals / (2 * n)
            errors = y @ weights[1:] - x
            memorised[index] = 1 - errors @ errors / (2 * n)
            index += 1
        weights = weights - step / n * (z.T @ residuals)
    return learned, memorised


def main() -> None:
    arguments = bench_parser(__doc__).parse_args()
    setting = measurement_facts("samples of a standard normal distribution", CPU)
    publish("Learning and memorization of the linear model", setting, list(rows(arguments.tiny)), arguments.out)


if __name__ == "__main__":
    main()
