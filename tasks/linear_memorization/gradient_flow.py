"""Learning and memorization over time, computed from the exact gradient flow, and recovery of each x after training.

Gradient descent from 0 with infinitesimal steps follows w' = -grad L(w), L(w) = 1/2n sum (w.z_i - x_i)^2. With
Z Z' / n = Q diag(lambda) Q', c = Q' X, and phi(lambda, t) = (1 - exp(-lambda t)) / lambda,

    w(t)         = 1/n Z' Q phi(lambda, t) c
    learning     = 1 - L(w(t))
    memorization = 1 - 1/2n sum (w(t).[0, y_i] - x_i)^2

so both are sums over the eigenvalues of exp(-lambda t) with weights c^2 / n, without any steps. Both start at
1 - |X|^2 / 2n, 1/2 on average, because w(0) = 0 answers 0. Learning rises to 1. Memorization returns to 1/2 without
memory (w = e1 also answers 0 to [0, y_i]), and is 1 if every x_i is answered from its y_i.

Bombari et al. 2022, "Towards differential relational privacy and its use in question answering", eq. 17 and figures 1
and 5. The query is the raw one; the quotient that recovers x_i after training never decreases.

After training, the weights are the minimum-norm solution of Z w = X, to which training from 0 converges for d >= n. The
attack that recovers x from y combines two queries, w.[0, y_i] / (1 - w.e1). For d < n, training ends in e1 with
probability 1, and no x can be recovered. Section 5 and appendix B.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pyarrow as pa

from tasks.contract.job import Inputs, Work, task
from tasks.contract.operations import PRODUCT
from tasks.contract.ranges import AtLeast, Finite, Ranged
from tasks.contract.summaries import interval_columns, interval_fields
from tasks.linear_memorization.gaussian_samples import Array, stacks
from tasks.numerics.statistics import mean
from tasks.worker import hardware

if TYPE_CHECKING:
    from torch import Tensor

# One row per time: means over trainings with 95 % t intervals, null for a single training.
CURVES = pa.schema(
    [
        ("samples", pa.int64()),  # n
        ("features", pa.int64()),  # d
        ("time", pa.float64()),  # of the gradient flow: steps times learning rate
        *interval_fields("learning", "memorization"),
        ("n", pa.int64()),  # independent trainings, each on its own samples
    ]
)


@dataclass(frozen=True)
class Flow(Ranged):
    """Trainings of the linear model on `samples` samples with `features` numbers in y, and the times of the curves.

    Training i draws its samples from a stream of `seed` and i. Times run from 10^`first` to 10^`last`, with
    `per_decade` points per factor of 10. The paper has 300 samples with 2000 features, and 1000 samples with 1000
    features.
    """

    samples: Annotated[int, AtLeast(1)] = 1000
    features: Annotated[int, AtLeast(1)] = 1000
    seed: Annotated[int, AtLeast(0)] = 0
    trainings: Annotated[int, AtLeast(1)] = 100
    first: float = -2.0
    last: float = 4.0
    per_decade: Annotated[int, AtLeast(1)] = 10

    def conflicts(self) -> Iterator[str]:
        if not -300 <= self.first < self.last <= 300:
            yield f"first is {self.first} and last {self.last}; -300 <= first < last <= 300 must hold"


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The quantities that determine the curves, each (trainings, m) with m = min(n, d + 1)."""

    rates: Tensor  # lambda, at least 0: learning rate of an eigenvector's component
    energies: Tensor  # c^2 / n: the component's share of |X|^2 / n


def work(config: Flow) -> Work:
    """Estimate the work: eigenvectors of every training's samples."""
    rank = min(config.samples, config.features + 1)
    return _linear_work("linear curves", config.trainings * config.samples * config.features * rank)


# A reduction of a symmetric matrix to its eigenvalues and eigenvectors takes about 9 n^3 operations (Golub & Van Loan
# 2013, "Matrix computations", section 8.3), in small steps that reach a fraction of the rate of a matrix product.
REDUCTION = 20.0


def _linear_work(unit: str, products: float) -> Work:
    return Work(besides={unit: products}, operations={unit: {PRODUCT: REDUCTION}})


@task(version=1, name="linear_memorization.curves", gpus=1.0, work=work)
def curves(config: Flow, _: Inputs) -> pa.Table:
    """Compute learning and memorization at every time, over trainings (CURVES).

    All trainings and times are one computation, which is split only if memory is short. 100 trainings of 1000 samples
    with 1000 features take about one minute on one core.
    """
    times = curve_times(config)
    rank = min(config.samples, config.features + 1)
    extra_numbers = 4 * rank**2 + 3 * rank * len(times)
    learned: list[Array] = []
    memorised: list[Array] = []
    with hardware.exactly(hardware.device()):
        for z in stacks(config.seed, config.trainings, config.samples, config.features, extra_numbers):
            for scores_list, stack_scores in zip((learned, memorised), scores(spectrum(z), times), strict=True):
                scores_list.append(stack_scores.cpu().numpy())
    table = curve_rows(config, times, np.concatenate(learned), np.concatenate(memorised))
    return pa.Table.from_pylist(list(table), CURVES)


def curve_times(config: Flow) -> Array:
    """Return the times of the curves, (times,), including both ends."""
    count = max(2, 1 + round((config.last - config.first) * config.per_decade))
    return np.logspace(config.first, config.last, count)


def spectrum(z: Tensor) -> Spectrum:
    """Return the eigenvalues of Z Z' / n and the components of X, for a stack (trainings, n, d + 1) in float64.

    If d + 1 < n, Z' Z / n = U diag(lambda) U' is decomposed instead, which has the same nonzero eigenvalues:
    c^2 / n = lambda (U' e1)^2, and X has no component for eigenvalues of 0.
    """
    import torch

    n, columns = z.shape[1:]
    if columns < n:
        rates, vectors = torch.linalg.eigh(z.mT @ z / n)
        rates = rates.clamp_min(0)
        return Spectrum(rates, rates * vectors[:, 0] ** 2)
    rates, vectors = torch.linalg.eigh(z @ z.mT / n)
    components = (vectors.mT @ z[:, :, :1])[..., 0]
    return Spectrum(rates.clamp_min(0), components**2 / n)


def scores(spectrum_of_stack: Spectrum, times: Array) -> tuple[Tensor, Tensor]:
    """Return learning and memorization, each (trainings, times).

    The training residual is r(t) = X - Z w(t) = Q exp(-lambda t) c, and [0, y_i].w - x_i = -(r_i + x_i w.e1).
    """
    decay, grown = _decay_factors(spectrum_of_stack.rates, times)
    squared = _sum_components(decay**2, spectrum_of_stack.energies)  # |r|^2 / n
    crossed = _sum_components(decay, spectrum_of_stack.energies)  # r.X / n
    first = _sum_components(grown, spectrum_of_stack.energies)  # w.e1
    energy = spectrum_of_stack.energies.sum(1, keepdim=True)  # |X|^2 / n
    return 1 - squared / 2, 1 - (squared + 2 * first * crossed + first**2 * energy) / 2


def weights(z: Tensor, times: Array) -> Tensor:
    """Return w(t), (trainings, times, d + 1), for a stack (trainings, n, d + 1) in float64."""
    import torch

    n = z.shape[1]
    rates, vectors = torch.linalg.eigh(z @ z.mT / n)
    components = (vectors.mT @ z[:, :, :1])[..., 0]
    _, grown = _decay_factors(rates.clamp_min(0), times)
    weight_paths: Tensor = (grown * components[:, None]) @ vectors.mT @ z / n
    return weight_paths


def _decay_factors(rates: Tensor, times: Array) -> tuple[Tensor, Tensor]:
    """Return exp(-lambda t) and phi(lambda, t), which is t for lambda = 0, each (trainings, times, m)."""
    import torch

    time_column = torch.from_numpy(times).to(rates.device)[:, None]
    exponents = rates[:, None] * time_column
    # For smaller lambda, lambda t < 1e-16 at all times, and phi equals t to the last bit.
    flat = rates[:, None] < 1e-16 / float(times.max())
    grown = torch.where(flat, time_column, -torch.expm1(-exponents) / torch.where(flat, 1.0, rates[:, None]))
    return torch.exp(-exponents), grown


def _sum_components(by_time: Tensor, energies: Tensor) -> Tensor:
    """Sum over the eigenvalues, with the result (trainings, times)."""
    return (by_time @ energies[..., None])[..., 0]


def curve_rows(config: Flow, times: Array, learned: Array, memorised: Array) -> Iterator[dict[str, Any]]:
    """Yield the rows of CURVES from arrays (trainings, times)."""
    for index, time in enumerate(times):
        row: dict[str, Any] = {"samples": config.samples, "features": config.features, "time": float(time)}
        for name, values in (("learning", learned), ("memorization", memorised)):
            row |= interval_columns(name, mean(values[:, index]))
        yield row | {"n": config.trainings}


# One row per size, with means over trainings and 95 % t intervals, null for a single training.
RECOVERY = pa.schema(
    [
        ("samples", pa.int64()),  # n
        ("features", pa.int64()),  # d
        ("error_median", pa.float64()),  # median over trainings of the largest |recovered x_i - x_i|; null for d < n
        ("error_max", pa.float64()),
        *interval_fields("recovered"),  # share of all x_i within the tolerance, with an interval in [0, 1]
        *interval_fields(
            "memorization"
        ),  # 1 - 1/2n sum (w.[0, y_i] - x_i)^2, the raw query, as at the end of the curves
        ("ratio_memorization", pa.float64()),  # the same for the recovered x_i; null for d < n
        ("n", pa.int64()),  # independent trainings, each on its own samples
    ]
)


@dataclass(frozen=True)
class Recovery(Ranged):
    """Trainings on `samples` samples with `features` numbers in y. An x within `tolerance` counts as recovered.

    Training i has the same samples as in the curves with the same seed. x has standard deviation 1.
    """

    samples: Annotated[int, AtLeast(1)] = 300
    features: Annotated[int, AtLeast(1)] = 2000
    seed: Annotated[int, AtLeast(0)] = 0
    trainings: Annotated[int, AtLeast(1)] = 100
    tolerance: Annotated[float, Finite()] = 1e-6


def _recovery_work(config: Recovery) -> Work:
    """Estimate the work: linear systems of every training's samples."""
    rank = min(config.samples, config.features + 1)
    return _linear_work("linear recovery", config.trainings * config.samples * config.features * rank)


@task(version=1, name="linear_memorization.recovery", gpus=1.0, work=_recovery_work)
def recovery(config: Recovery, _: Inputs) -> pa.Table:
    """Measure the errors of the recovered x_i over all trainings (RECOVERY)."""
    extra_numbers = 3 * config.samples * (1 + config.features)
    errors: list[Array] = []  # of [0, y_i] and of the recovery, (trainings, 2, samples)
    with hardware.exactly(hardware.device()):
        for z in stacks(config.seed, config.trainings, config.samples, config.features, extra_numbers):
            errors.append(attack_errors(z).cpu().numpy())
    return pa.Table.from_pylist([_recovery_row(config, np.concatenate(errors))], RECOVERY)


def attack_errors(z: Tensor) -> Tensor:
    """Return the errors of the raw query and of the recovery, (trainings, 2, n), for a stack (trainings, n, d + 1).

    For d < n, the errors of the recovery are NaN.
    """
    import torch

    n, columns = z.shape[1:]
    x = z[:, :, 0]
    y = z[:, :, 1:]
    if columns - 1 < n:
        return torch.stack([-x, torch.full_like(x, torch.nan)], 1)  # w = e1 answers 0
    weights = least_norm(z)
    answers = (y @ weights[:, 1:, None])[..., 0]
    return torch.stack([answers - x, answers / (1 - weights[:, :1]) - x], 1)


def least_norm(z: Tensor) -> Tensor:
    """Return the minimum-norm solution of Z w = X, (trainings, d + 1), for d >= n.

    With Z' = Q R, w = Q R'^-1 X.
    """
    import torch

    q, r = torch.linalg.qr(z.mT)
    solved = torch.linalg.solve_triangular(r.mT, z[:, :, :1], upper=False)
    solution: Tensor = (q @ solved)[..., 0]
    return solution


def _recovery_row(config: Recovery, errors: Array) -> dict[str, Any]:
    """Return the row of RECOVERY from the errors of both queries, (trainings, 2, samples)."""
    raw = errors[:, 0]
    ratio = errors[:, 1]
    row: dict[str, Any] = {"samples": config.samples, "features": config.features, "n": len(errors)}
    if config.features >= config.samples:
        largest = np.abs(ratio).max(1)
        row |= {"error_median": float(np.median(largest)), "error_max": float(largest.max())}
        row["ratio_memorization"] = float(_memorization_scores(ratio).mean())
    within = interval_columns("recovered", mean((np.abs(ratio) <= config.tolerance).mean(1)))
    row |= {name: None if value is None else min(max(value, 0.0), 1.0) for name, value in within.items()}
    return row | interval_columns("memorization", mean(_memorization_scores(raw)))


def _memorization_scores(errors: Array) -> Array:
    """Return 1 - 1/2n sum errors^2, (trainings,)."""
    memorised: Array = 1 - (errors**2).mean(1) / 2
    return memorised
