"""Torch's random numbers for a share of the rows of a step, equal to those that one process draws for all rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

# Operations whose random numbers belong to the rows of their first axis.
SUPPORTED = {
    *("bernoulli", "bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "multinomial", "normal"),
    *("native_dropout", "normal_", "poisson", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like"),
    *("random_", "uniform_"),
}


@dataclass(frozen=True)
class RowShare:
    """The share of a rank: `own` rows, from row `first` of the `count` rows that all ranks compute together."""

    first: int
    own: int
    count: int

    @property
    def rows(self) -> slice:
        return slice(self.first, self.first + self.own)


class RowDraws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Draws random numbers for the rows of all ranks inside the block, and uses those of this rank's share.

    Every tensor of random numbers whose first axis has the length of the share is taken to have one entry per row.
    Others are the same on all ranks. Raises ValueError for an operation whose random numbers cannot be divided.
    """

    def __init__(self, share: RowShare) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._share = share

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags or self._share.own == self._share.count:
            return func(*args, **kwargs)
        name = func.overloadpacket.__name__
        if name not in SUPPORTED:
            raise ValueError(f"torch's {name} draws random numbers that processes cannot divide by rows")
        expanded = [self._expand(argument) for argument in args]
        result = func(*expanded, **{key: self._expand(value) for key, value in kwargs.items()})
        if name.endswith("_"):
            target: Tensor = args[0]
            return target if target is expanded[0] else target.copy_(self._own(result))
        if isinstance(result, tuple):
            return tuple(self._own(part) for part in result)
        return self._own(result)

    def _expand(self, argument: Any) -> Any:
        """Return a tensor or a shape with the rows of all ranks, and anything else unchanged."""
        if isinstance(argument, Tensor) and self._is_by_row(argument.shape):
            rows = argument.new_zeros((self._share.count, *argument.shape[1:]))
            rows[self._share.rows] = argument
            return rows
        if isinstance(argument, list | tuple) and self._is_by_row(argument):
            return [self._share.count, *argument[1:]]
        return argument

    def _is_by_row(self, shape: Sequence[int]) -> bool:
        return len(shape) > 0 and shape[0] == self._share.own

    def _own(self, result: Tensor) -> Tensor:
        if result.dim() and len(result) == self._share.count:
            return result[self._share.rows].clone()
        return result
