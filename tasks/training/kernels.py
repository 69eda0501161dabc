"""Adam's update of many models in one pass over their memory, as a GPU kernel. Importing this needs Triton.

A step of small models is bound by the traffic of weights, gradients and moments: seven reads and writes of each number,
where separate operations take three times as many.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024  # numbers that one program of the kernel updates


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

    `scale` (models,) is lr / (1 - b1^t) and `root` (models,) sqrt(1 - b2^t); models that are not `active` stay as they
    are.
    """
    models, size = weights.shape
    grid = (triton.cdiv(size, BLOCK), models)
    # The kernel gets numbers in float32, where 1 - 0.999 would lose five digits.
    slow, slower = 1 - beta1, 1 - beta2
    takes = active.to(torch.int32)
    _adam[grid](weights, gradients, means, squares, scale, root, takes, size, slow, slower, epsilon, BLOCK=BLOCK)


# Triton reads annotations as it reads the rest: those of its arguments may name nothing but its own types.
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
    slower,
    epsilon,
    BLOCK: tl.constexpr,  # noqa: N803 - Triton's own way to write a constant
):
    model = tl.program_id(1)
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < tl.where(tl.load(takes + model) != 0, size, 0)
    at = model.to(tl.int64) * size + places
    gradient = tl.load(gradients + at, mask=inside)
    mean = tl.load(means + at, mask=inside)
    square = tl.load(squares + at, mask=inside)
    mean += slow * (gradient - mean)
    square += slower * (gradient * gradient - square)
    moved = tl.load(scale + model) * mean / (tl.sqrt(square) / tl.load(root + model) + epsilon)
    weight = tl.load(weights + at, mask=inside)
    tl.store(means + at, mean, mask=inside)
    tl.store(squares + at, square, mask=inside)
    tl.store(weights + at, weight - moved, mask=inside)
