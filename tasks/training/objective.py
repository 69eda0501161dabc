"""What a way of training needs to know of what is learnt: the weights, the loss, and how well a model does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tasks.models.counter_rng import CounterRng
from tasks.models.layers import Mode, Weight


@dataclass(frozen=True)
class Batch:
    """Rows for every model of a stack: each model has rows of its own."""

    pixels: Tensor  # (models, rows, height * width * channels) uint8
    labels: Tensor  # (models, rows) int64
    mode: Mode


class Objective(Protocol):
    """One kind of learning with one network. Tensors are (models, *shape) by the names of `weights`."""

    @property
    def name(self) -> str:
        """The name of the workload when strategies are chosen: the network and what changes its speed."""

    @property
    def stackable(self) -> bool:
        """Whether one step can compute many models."""

    @property
    def capturable(self) -> bool:
        """Whether a CUDA graph can record a step of real rows alone."""

    @property
    def captures_padding(self) -> bool:
        """Whether it can record one with padding, too."""

    @property
    def weights(self) -> Mapping[str, Weight]:
        """Every tensor of the network, in the order in which they start."""

    @property
    def total(self) -> bool:
        """Whether a minibatch's loss is the sum over its rows, and not their mean."""

    def initial(self, seed: int) -> Mapping[str, NDArray[np.float32]]:
        """The tensors (*shape) that a model starts from, the same on every device."""

    def losses(self, tensors: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """Each row's loss in training, (models, rows), in nats. Autograd can follow it to the tensors."""

    def assessed(self, tensors: Mapping[str, Tensor], batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Each row's loss in evaluation and whether it is classified rightly, both (models, rows).

        The second is None where nothing is classified.
        """

    def manual_gradient(
        self, tensors: Mapping[str, Tensor], pixels: Tensor, labels: Tensor, shares: Tensor, draws: CounterRng
    ) -> tuple[Tensor, Sequence[Tensor]] | None:
        """One model's loss and its gradient in every learned weight, written out; None where only autograd knows.

        Tensors are (*shape), pixels (rows, features), labels (rows,). `shares` (rows,) are the rows' weights in the
        loss: 1 / count each for a mean. `draws` are the model's.
        """
