"""A GPU kernel for Adam that updates many models in one pass over their memory. Importing this module requires Triton.

For small models, a step is limited by memory traffic for weights, gradients and moments. This kernel reads and writes
each number seven times in total, a third as often as separate operations.
"""

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024  # numbers updated by one program of the kernel


def adam(
    weights: Tensor,
    gradients: Tensor,
    means: Tensor,
    squares: Tensor,
    scale: Tensor,
    root: Tensor,
    active: Tensor,
    beta1: float,
    beta2: float,
    epsilon: float,
) -> None:
    """Update weights and moments, all (models, size), in place: see `tasks.training.optimisers`.

    `scale` (models,) is lr / (1 - b1^t) and `root` (models,) is sqrt(1 - b2^t). Models that are not `active` do not
    change.
    """
    models, size = weights.shape
    grid = (triton.cdiv(size, BLOCK), models)
    takes = active.to(torch.int32)
    numbers = [part for number in (1 - beta1, 1 - beta2, epsilon) for part in float32_parts(number)]
    _adam[grid](weights, gradients, means, squares, scale, root, takes, size, *numbers, BLOCK=BLOCK)


@cache  # every step uses the same three numbers
def float32_parts(number: float) -> tuple[float, float]:
    """Split a number into its nearest float32 value and the remainder.

    Kernels receive float32, which is too imprecise for float64 weights.
    """
    nearest = torch.tensor(number, dtype=torch.float32).item()
    return nearest, number - nearest


# Triton evaluates annotations, so those of arguments may only name Triton's types.
@triton.jit  # type: ignore[untyped-decorator]
def _adam(  # type: ignore[no-untyped-def]
    weights,
    gradients,
    means,
    squares,
    scale,
    root,
    takes,
    size,
    slow,
    slow_rest,
    slower,
    slower_rest,
    epsilon,
    epsilon_rest,
    BLOCK: tl.constexpr,  # noqa: N803 - Triton's convention for constants
):
    model = tl.program_id(1)
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < tl.where(tl.load(takes + model) != 0, size, 0)
    offsets = model.to(tl.int64) * size + places
    gradient = tl.load(gradients + offsets, mask=inside)
    mean = tl.load(means + offsets, mask=inside)
    square = tl.load(squares + offsets, mask=inside)
    change = gradient - mean
    growth = gradient * gradient - square
    mean += slow * change + slow_rest * change
    square += slower * growth + slower_rest * growth
    spread = tl.sqrt(square) / tl.load(root + model) + epsilon + epsilon_rest
    step = tl.load(scale + model) * mean / spread
    weight = tl.load(weights + offsets, mask=inside)
    tl.store(means + offsets, mean, mask=inside)
    tl.store(squares + offsets, square, mask=inside)
    tl.store(weights + offsets, weight - step, mask=inside)
