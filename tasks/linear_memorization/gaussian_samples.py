"""Samples z = (x, y) of a standard normal distribution, in stacks of trainings, and means over these as columns."""

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
SHARE = 8  # a stack takes one part in so many of the memory that is free


def normal_samples(seed: int, training: int, samples: int, features: int) -> Array:
    """z_i ~ N(0, I) of one training, (samples, 1 + features): x is the first column, y the others."""
    stream = seeds.generator(seed, "linear samples", training)
    return stream.standard_normal((samples, 1 + features))


def stacks(seed: int, trainings: int, samples: int, features: int, held: int) -> Iterator[Tensor]:
    """The samples of all trainings on this process's device, in stacks of (trainings, samples, 1 + features).

    `held` is how many numbers a training takes beside its samples. How many are stacked makes no difference to any.
    """
    import torch

    place = hardware.device()
    at_once = fitting(samples * (1 + features) + held, place.type == "cuda")
    for first in range(0, trainings, at_once):
        numbers = range(first, min(first + at_once, trainings))
        drawn = np.stack([normal_samples(seed, number, samples, features) for number in numbers])
        yield torch.from_numpy(drawn).to(place)


def fitting(numbers: int, on_gpu: bool) -> int:
    """How many trainings of so many numbers each fit into this call's part of the free memory; at least 1."""
    if on_gpu:
        import torch

        free = torch.cuda.mem_get_info()[0]
    else:
        free = hardware.available_memory()
    return max(1, free // SHARE // compute_context.current_context().sharers // (numbers * DOUBLE))
