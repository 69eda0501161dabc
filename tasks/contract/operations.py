"""Operations: floating-point operations by kind, bytes and kernel launches, from which a time on any device follows.

A kind is one of KINDS. The kinds of floating-point operations may end in LOW, for operations on bfloat16.

| kind        | counts                                                                                    |
|-------------|-------------------------------------------------------------------------------------------|
| product     | floating-point operations of matrix products: two for each multiplication and addition    |
| convolution | the same of convolutions                                                                  |
| attention   | the same of products of queries, keys and values                                          |
| bytes       | bytes that operations read and write, including weights, gradients and the optimiser's    |
| launches    | operations that a device starts; models that are trained together share them              |
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Protocol

PRODUCT = "product"
CONVOLUTION = "convolution"
ATTENTION = "attention"
BYTES = "bytes"
LAUNCHES = "launches"
KINDS = (PRODUCT, CONVOLUTION, ATTENTION, BYTES, LAUNCHES)
LOW = " bfloat16"

Operations = Mapping[str, float]  # by kind


class Step(Hashable, Protocol):
    """A step that planning only describes. `tasks.counting.traced_steps` counts its operations."""

    @property
    def is_stacked(self) -> bool:
        """Whether a GPU trains several models together, which share their launches."""


@dataclass(frozen=True)
class CountedStep:
    """The operations of a step for one unit of work, and the bytes of device memory of the model that takes it."""

    operations: Operations
    device_bytes: float


def scale(operations: Operations, factor: float) -> Operations:
    """Return the operations times a factor."""
    return {kind: factor * amount for kind, amount in operations.items()}


def add(*parts: Operations) -> Operations:
    """Return the sum of operations."""
    total: dict[str, float] = {}
    for part in parts:
        for kind, amount in part.items():
            total[kind] = total.get(kind, 0.0) + amount
    return total


@dataclass(frozen=True)
class InputStep:
    """The operations of a unit are those of the training that a job's first input states, times a factor."""

    factor: float = 1.0


NONE: Operations = {}  # of units that take no noticeable time on any device
