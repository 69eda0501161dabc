"""How exactly each x is recovered from the trained linear model and its y.

The weights are the solution of least norm of Z w = X, where training from 0 ends for d >= n; the attack asks two
queries, w.[0, y_i] / (1 - w.e1). For d < n training ends in e1 with probability 1, and nothing can be recovered.
Bombari et al. 2022, section 5 and appendix B.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pyarrow as pa

from tasks.contract.job import Inputs, task
from tasks.contract.ranges import AtLeast, Finite, Ranged
from tasks.linear_memorization.gaussian_samples import Array, interval_columns, stacks
from tasks.worker import hardware
from tasks.worker.work import Work

if TYPE_CHECKING:
    from torch import Tensor

# One row: one size, over trainings. An interval is a 95 % t interval over trainings, null for a single one.
RECOVERY = pa.schema(
    [
        ("samples", pa.int64()),  # n
        ("features", pa.int64()),  # d
        ("error_median", pa.float64()),  # of the trainings' largest |recovered x_i - x_i|; null for d < n
        ("error_max", pa.float64()),
        ("recovered", pa.float64()),  # share of all x_i within the tolerance
        ("recovered_low", pa.float64()),  # within [0, 1]
        ("recovered_high", pa.float64()),
        ("memorization", pa.float64()),  # 1 - 1/2n sum (w.[0, y_i] - x_i)^2: the raw query, as the curves' end
        ("memorization_low", pa.float64()),
        ("memorization_high", pa.float64()),
        ("ratio_memorization", pa.float64()),  # the same of the recovered x_i; null for d < n
        ("n", pa.int64()),  # independent trainings, each on its own samples
    ]
)


@dataclass(frozen=True)
class Recovery(Ranged):
    """Trainings on `samples` samples with `features` numbers in y; an x within `tolerance` counts as recovered.

    The samples of training i are those of the curves with the same seed. x has the standard deviation 1.
    """

    samples: Annotated[int, AtLeast(1)] = 300
    features: Annotated[int, AtLeast(1)] = 2000
    seed: Annotated[int, AtLeast(0)] = 0
    trainings: Annotated[int, AtLeast(1)] = 100
    tolerance: Annotated[float, Finite()] = 1e-6


def work(config: Recovery) -> Work:
    """What it computes: the systems of equations of every training's samples."""
    least = min(config.samples, config.features + 1)
    return Work(besides={"linear recovery": config.trainings * config.samples * config.features * least})


@task(version=1, name="linear_memorization.recovery", gpus=1.0, work=work)
def recovery(config: Recovery, _: Inputs) -> pa.Table:
    """The errors of the recovered x_i, over trainings (RECOVERY)."""
    held = 3 * config.samples * (1 + config.features)
    errors: list[Array] = []  # of [0, y_i] and of the recovery, (trainings, 2, samples)
    with hardware.exactly(hardware.device()):
        for z in stacks(config.seed, config.trainings, config.samples, config.features, held):
            errors.append(attack_errors(z).cpu().numpy())
    return pa.Table.from_pylist([recovery_row(config, np.concatenate(errors))], RECOVERY)


def attack_errors(z: Tensor) -> Tensor:
    """The errors of the raw query and of the recovery, (trainings, 2, n), for a stack (trainings, n, d + 1).

    The recovery's are NaN for d < n.
    """
    import torch

    n, columns = z.shape[1:]
    x, y = z[:, :, 0], z[:, :, 1:]
    if columns - 1 < n:
        return torch.stack([-x, torch.full_like(x, torch.nan)], 1)  # w = e1 answers 0
    weights = least_norm(z)
    answers = (y @ weights[:, 1:, None])[..., 0]
    return torch.stack([answers - x, answers / (1 - weights[:, :1]) - x], 1)


def least_norm(z: Tensor) -> Tensor:
    """The solution of least norm of Z w = X, (trainings, d + 1), for d >= n.

    By Z' = Q R: w = Q R'^-1 X.
    """
    import torch

    q, r = torch.linalg.qr(z.mT)
    solved = torch.linalg.solve_triangular(r.mT, z[:, :, :1], upper=False)
    found: Tensor = (q @ solved)[..., 0]
    return found


def recovery_row(config: Recovery, errors: Array) -> dict[str, Any]:
    """The row of RECOVERY, from the errors of both queries (trainings, 2, samples)."""
    raw, ratio = errors[:, 0], errors[:, 1]
    row: dict[str, Any] = {"samples": config.samples, "features": config.features, "n": len(errors)}
    if config.features >= config.samples:
        largest = np.abs(ratio).max(1)
        row |= {"error_median": float(np.median(largest)), "error_max": float(largest.max())}
        row["ratio_memorization"] = float(memorization_scores(ratio).mean())
    within = interval_columns("recovered", (np.abs(ratio) <= config.tolerance).mean(1))
    row |= {name: None if value is None else min(max(value, 0.0), 1.0) for name, value in within.items()}
    return row | interval_columns("memorization", memorization_scores(raw))


def memorization_scores(errors: Array) -> Array:
    """1 - 1/2n sum errors^2, (trainings,)."""
    found: Array = 1 - (errors**2).mean(1) / 2
    return found
