"""Samples z = (x, y) from a standard normal distribution, in stacks of trainings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tasks.numerics import seeds
from tasks.worker import compute_context, hardware

if TYPE_CHECKING:
    from torch import Tensor

Array = NDArray[np.float64]
DOUBLE = 8  # bytes
SHARE = 8  # a stack takes 1 / SHARE of the free memory


def normal_samples(seed: int, training: int, samples: int, features: int) -> Array:
    """Draw z_i ~ N(0, I) for one training, (samples, 1 + features). x is the first column, y the others."""
    stream = seeds.generator(seed, "linear samples", training)
    return stream.standard_normal((samples, 1 + features))


def stacks(seed: int, trainings: int, samples: int, features: int, extra_numbers: int) -> Iterator[Tensor]:
    """Yield the samples of all trainings on this process's device, in stacks (trainings, samples, 1 + features).

    `extra_numbers` is the memory that a training needs besides its samples, in numbers. Results do not depend on the
    size of the stacks.
    """
    import torch

    device = hardware.device()
    at_once = fitting(samples * (1 + features) + extra_numbers, device.type == "cuda")
    for first in range(0, trainings, at_once):
        numbers = range(first, min(first + at_once, trainings))
        samples_of_stack = np.stack([normal_samples(seed, number, samples, features) for number in numbers])
        yield torch.from_numpy(samples_of_stack).to(device)


def fitting(numbers: int, on_gpu: bool) -> int:
    """Return how many trainings, with `numbers` numbers each, fit into memory; at least 1."""
    if on_gpu:
        import torch

        free = torch.cuda.mem_get_info()[0]
    else:
        free = hardware.available_memory()
    return max(1, free // SHARE // compute_context.current_context().sharers // (numbers * DOUBLE))
