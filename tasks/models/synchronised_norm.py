"""Batch norm over the rows of all ranks of a process group, on processors and on GPUs.

`torch.nn.SyncBatchNorm` needs a GPU. This one takes any device, and rows that count as padding.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from tasks.worker.ranks import add_over_ranks, current_ranks


def normalise(
    x: Tensor, mask: Tensor | None, scale: Tensor, shift: Tensor, epsilon: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Apply batch norm to x (rows, channels, ...) with the statistics of all ranks.

    `mask` (rows, channels) is 1 for rows that count and 0 for padding. Returns the result, and the mean, the biased
    variance and the number of values of every channel, each (channels,).
    """
    result: tuple[Tensor, Tensor, Tensor, Tensor] = _Normalise.apply(x, mask, scale, shift, epsilon)
    return result


def unbiased(variance: Tensor, count: Tensor) -> Tensor:
    """Return the unbiased variance of `count` values, given the biased one."""
    return variance * (count / (count - 1).clamp(min=1))


class _Normalise(torch.autograd.Function):
    """y = scale (x - m) / s + shift, s^2 = v + epsilon, with mean m and variance v over the n values of all ranks.

    The gradient of the loss L of all ranks: dL/dx = scale / s (dL/dy - (sum dL/dy + x' sum x' dL/dy) / n), where x' =
    (x - m) / s and sums are over all ranks. Ioffe & Szegedy 2015, section 3.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, mask: Tensor | None, scale: Tensor, shift: Tensor, epsilon: float
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        axes = [axis for axis in range(x.dim()) if axis != 1]
        values = x.to(torch.promote_types(x.dtype, torch.float32))
        weights = None if mask is None else _along_channels(mask.to(values.dtype), x.dim())
        positions = x[0, 0].numel() if len(x) else 1
        if weights is None:
            count = values.new_full((x.shape[1],), float(len(x) * positions))
        else:
            count = weights.sum(0).flatten() * positions
        total = _masked(values, weights).sum(axes)
        add_over_ranks([total, count])
        divisor = count.clamp(min=1)
        mean = total / divisor
        squares = _masked((values - _channels(mean, x)).square(), weights).sum(axes)
        add_over_ranks([squares])
        variance = squares / divisor
        inverse = torch.rsqrt(variance + epsilon)
        factor = inverse * scale
        y = torch.addcmul(_channels(shift - mean * factor, x), values, _channels(factor, x)).to(x.dtype)
        ctx.save_for_backward(x, weights, scale, mean, inverse, divisor)
        ctx.axes = axes
        ctx.mark_non_differentiable(mean, variance, count)
        return y, mean, variance, count

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, Tensor, Tensor, None]:
        x, weights, scale, mean, inverse, divisor = ctx.saved_tensors
        values = x.to(mean.dtype)
        slope = gradients[0].to(mean.dtype)
        standardised = (values - _channels(mean, x)) * _channels(inverse, x)
        of_shift = slope.sum(ctx.axes)
        of_scale = (slope * standardised).sum(ctx.axes)
        sums = torch.stack([of_shift, of_scale])
        add_over_ranks([sums])  # but not the results, which the step adds up with all other gradients
        of_mean, of_deviation = (sums / divisor).unbind()
        pulled = torch.addcmul(_channels(of_mean, x), standardised, _channels(of_deviation, x))
        of_x = (slope - _masked(pulled, weights)) * _channels(inverse * scale, x)
        return of_x.to(x.dtype), None, of_scale.to(scale.dtype), of_shift.to(scale.dtype), None


def _channels(values: Tensor, x: Tensor) -> Tensor:
    """Return values (channels,) in a shape that broadcasts with x (rows, channels, ...)."""
    return values.view(-1, *[1] * (x.dim() - 2))


def _along_channels(mask: Tensor, dimensions: int) -> Tensor:
    """Return a mask (rows, channels) with further axes of length 1."""
    return mask.view(*mask.shape, *[1] * (dimensions - 2))


def _masked(values: Tensor, weights: Tensor | None) -> Tensor:
    return values if weights is None else values * weights


Rows = Literal["counted", "padding", "independent"]

_rows: ContextVar[Rows] = ContextVar("rows", default="counted")


@contextmanager
def use_rows(rows: Rows) -> Iterator[None]:
    """Normalise rows that count, padding that does not, or each row on its own, without statistics and other ranks."""
    token = _rows.set(rows)
    try:
        yield
    finally:
        _rows.reset(token)


class SynchronisedBatchNorm(nn.modules.batchnorm._BatchNorm):
    """Batch norm of torch with the statistics of all ranks in training."""

    def _check_input_dim(self, input: Tensor) -> None:
        """Accept the inputs of any batch norm."""

    def forward(self, input: Tensor) -> Tensor:
        running = (self.running_mean, self.running_var)
        if not self.training:
            return functional.batch_norm(input, *running, self.weight, self.bias, running[0] is None, 0.0, self.eps)
        scale = self._or_constant(self.weight, input, 1.0)
        shift = self._or_constant(self.bias, input, 0.0)
        if _rows.get() == "independent":
            return torch.addcmul(_channels(shift, input), input, _channels(scale, input))
        mask = input.new_zeros(input.shape[:2]) if _rows.get() == "padding" else None
        y, mean, variance, count = normalise(input, mask, scale, shift, self.eps)
        if running[0] is not None and running[1] is not None:
            momentum = self._current_momentum()
            with torch.no_grad():
                running[0].lerp_(mean.to(running[0].dtype), momentum)
                running[1].lerp_(unbiased(variance, count).to(running[1].dtype), momentum)
        return y

    def _or_constant(self, weight: Tensor | None, x: Tensor, value: float) -> Tensor:
        if weight is not None:
            return weight
        return x.new_full((x.shape[1],), value, dtype=torch.promote_types(x.dtype, torch.float32))

    def _current_momentum(self) -> float:
        """Return the weight of the latest statistics. Without momentum, running statistics are the mean of all."""
        if self.momentum is not None:
            return self.momentum
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        return 1 / float(self.num_batches_tracked)


def synchronise_norms(module: nn.Module) -> None:
    """Make the batch norms of a module use the rows of all ranks. Its tensors stay the same."""
    if current_ranks().size == 1:
        return
    for part in module.modules():
        # Not subclasses, which may do more.
        if type(part) in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm):
            # A copy of the module, such as a teacher, is then synchronised too.
            part.__class__ = SynchronisedBatchNorm
