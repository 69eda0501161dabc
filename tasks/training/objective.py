"""The interface of what is learnt, as training sees it: the weights, the loss and the evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tasks.models.counter_rng import CounterRng
from tasks.models.layers import Layers, Mode, Weight


@dataclass(frozen=True)
class Batch:
    """Rows for every model of a stack; each model has its own."""

    pixels: Tensor  # (models, rows, height * width * channels) uint8
    labels: Tensor  # (models, rows) int64
    mode: Mode


class Objective(Protocol):
    """One kind of learning with one network. Tensors are (models, *shape) by the names of `weights`.

    Random numbers come from the batch's mode, by sites of their own (`tasks.models.counter_rng`): a second view of the
    rows is another site. Tensors that are not learned, such as statistics, are changed in place by `losses`, for the
    models that have a real row, and after the optimiser's step by an objective that is `AfterStep`, too.
    """

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
        """Each row's loss in training, (models, rows), in nats. Autograd can follow it to the tensors.

        Of padding, which the mode does not call `real`, it is not used, but it and its gradients must still be finite.
        """

    def evaluate_rows(self, tensors: Mapping[str, Tensor], batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Each row's loss in evaluation and whether it is classified rightly, both (models, rows).

        The second is None where nothing is classified.
        """


@runtime_checkable
class ByLayers(Protocol):
    """What an objective has whose losses of rows can be computed through layers of another kind."""

    @property
    def weights(self) -> Mapping[str, Weight]: ...

    def initial(self, seed: int) -> Mapping[str, NDArray[np.float32]]: ...

    def evaluate_rows(self, tensors: Mapping[str, Tensor], batch: Batch) -> tuple[Tensor, Tensor | None]: ...

    def layer_losses(self, layers: Layers, batch: Batch) -> Tensor:
        """Each row's loss in training, (models, rows), computed through the given layers, of whatever kind."""


@runtime_checkable
class ByHand(Protocol):
    """An objective whose gradients are written out, of some of its networks at least."""

    def manual_gradient(
        self, tensors: Mapping[str, Tensor], pixels: Tensor, labels: Tensor, shares: Tensor, draws: CounterRng
    ) -> tuple[Tensor, Sequence[Tensor]] | None:
        """One model's loss and its gradient in every learned weight, written out; None where only autograd knows.

        Tensors are (*shape), pixels (rows, features), labels (rows,). `shares` (rows,) are the rows' weights in the
        loss: 1 / count each for a mean. `draws` are the model's.
        """


@runtime_checkable
class AfterStep(Protocol):
    """An objective that does something after every step of the optimiser, such as moving a teacher."""

    def after_step(self, tensors: Mapping[str, Tensor], passed: Tensor) -> None:
        """Change, in place, tensors that are not learned: those of the models that took the step.

        `passed` (models,) float64 are the epochs that have passed, this step included: 2.5 in the middle of the third.
        On a CPU the models come one by one. On a GPU they come together and what this does is recorded: it must not
        depend on values of tensors.
        """
