"""The interface of objectives for training: weights, loss and evaluation."""

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
    """Rows for every model of a stack; each model has different rows."""

    pixels: Tensor  # (models, rows, height * width * channels) uint8
    labels: Tensor  # (models, rows) int64
    mode: Mode


class Objective(Protocol):
    """One kind of learning with one network. Tensors are (models, *shape) by the names of `weights`.

    Random numbers come from the batch's mode, by separate sites (`tasks.models.counter_rng`): a second view of the rows
    is another site. `losses` changes tensors that are not learned, such as statistics, in place for the models with a
    real row; an `AfterStep` objective also changes them after the optimiser's step.
    """

    @property
    def name(self) -> str:
        """The name of the workload for the choice of a strategy: the network and settings that affect its speed."""

    @property
    def stackable(self) -> bool:
        """Whether one step can compute many models."""

    @property
    def capturable(self) -> bool:
        """Whether a CUDA graph can record a step of real rows alone."""

    @property
    def captures_padding(self) -> bool:
        """Whether a CUDA graph can also record a step with padding."""

    @property
    def weights(self) -> Mapping[str, Weight]:
        """Every tensor of the network, in the order of initialisation."""

    @property
    def total(self) -> bool:
        """Whether a minibatch's loss is the sum over its rows instead of the mean."""

    def initial(self, seed: int) -> Mapping[str, NDArray[np.float32]]:
        """Return the initial tensors (*shape) of a model, the same on every device."""

    def losses(self, tensors: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """Return each row's loss in training, (models, rows), in nats, differentiable in the tensors.

        Losses of padding, which the mode does not mark as `real`, are not used, but they and their gradients must be
        finite.
        """

    def evaluate_rows(self, tensors: Mapping[str, Tensor], batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Return each row's loss in evaluation and whether its class is predicted correctly, both (models, rows).

        The second is None without classification.
        """


@runtime_checkable
class ByLayers(Protocol):
    """An objective whose losses of rows can be computed with other kinds of layers."""

    @property
    def weights(self) -> Mapping[str, Weight]: ...

    def initial(self, seed: int) -> Mapping[str, NDArray[np.float32]]: ...

    def evaluate_rows(self, tensors: Mapping[str, Tensor], batch: Batch) -> tuple[Tensor, Tensor | None]: ...

    def layer_losses(self, layers: Layers, batch: Batch) -> Tensor:
        """Return each row's loss in training, (models, rows), computed with the given layers."""


@runtime_checkable
class ByHand(Protocol):
    """An objective with explicit gradients for some of its networks."""

    def manual_gradient(
        self, tensors: Mapping[str, Tensor], pixels: Tensor, labels: Tensor, shares: Tensor, draws: CounterRng
    ) -> tuple[Tensor, Sequence[Tensor]] | None:
        """Return one model's loss and its explicit gradient in every learned weight; None if only autograd computes it.

        Tensors are (*shape), pixels (rows, features), labels (rows,). `shares` (rows,) are the rows' weights in the
        loss: 1 / count each for a mean. `draws` are the model's.
        """


@runtime_checkable
class AfterStep(Protocol):
    """An objective with an operation after every step of the optimiser, such as updating a teacher."""

    def after_step(self, tensors: Mapping[str, Tensor], passed: Tensor) -> None:
        """Change tensors that are not learned in place, for the models that took the step.

        `passed` (models,) float64 is the number of epochs including this step: 2.5 in the middle of the third. On a
        CPU, models are passed one by one. On a GPU, all models are passed and the operation is recorded, so that it
        must not depend on values of tensors.
        """
