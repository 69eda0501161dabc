"""The interface of training objectives: weights, losses and evaluation."""

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
    """Rows for every model of a stack. Each model has its own rows."""

    pixels: Tensor  # (models, rows, height * width * channels) uint8
    labels: Tensor  # (models, rows) int64
    mode: Mode
    mirrored: Tensor | None = None  # (models, rows) bool: images that are mirrored in this epoch, of a `Mirrors`


class Objective(Protocol):
    """A learning objective for one network. Tensors are (models, *shape), keyed by the names of `weights`.

    Random numbers come from the batch's mode, with a separate site for each use (`tasks.models.counter_rng`); a second
    view of the rows is another site. `losses` changes tensors that are not learned, such as statistics, in place for
    the models that have a real row. An `AfterStep` objective also changes them after the optimiser step.
    """

    @property
    def name(self) -> str:
        """The name of the workload when a strategy is chosen: the network and all settings that affect its speed."""

    @property
    def stackable(self) -> bool:
        """Whether several models can be computed in one step."""

    @property
    def capturable(self) -> bool:
        """Whether a CUDA graph can record a step without padding."""

    @property
    def captures_padding(self) -> bool:
        """Whether a CUDA graph can also record a step with padding."""

    @property
    def weights(self) -> Mapping[str, Weight]:
        """Every tensor of the network, in the order of initialisation."""

    @property
    def total(self) -> bool:
        """Whether the loss of a minibatch is the sum over its rows instead of the mean."""

    def initial(self, seed: int) -> Mapping[str, NDArray[np.float32]]:
        """Return the initial tensors (*shape) of a model. They are the same on every device."""

    def losses(self, tensors: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """Return the training loss of each row, (models, rows), in nats, differentiable with respect to the tensors.

        Losses of padding, which the mode does not mark as `real`, are not used. They and their gradients must still be
        finite.
        """

    def evaluate_rows(self, tensors: Mapping[str, Tensor], batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Return each row's evaluation loss and whether its class is predicted correctly, both (models, rows).

        The second is None if nothing is classified.
        """


@runtime_checkable
class ByLayers(Protocol):
    """An objective whose row losses can be computed with different kinds of layers."""

    @property
    def weights(self) -> Mapping[str, Weight]: ...

    def initial(self, seed: int) -> Mapping[str, NDArray[np.float32]]: ...

    def evaluate_rows(self, tensors: Mapping[str, Tensor], batch: Batch) -> tuple[Tensor, Tensor | None]: ...

    def layer_losses(self, layers: Layers, batch: Batch) -> Tensor:
        """Return the training loss of each row, (models, rows), computed with the given layers."""


@runtime_checkable
class ByHand(Protocol):
    """An objective with hand-written gradients for some of its networks."""

    def manual_gradient(
        self, tensors: Mapping[str, Tensor], pixels: Tensor, labels: Tensor, shares: Tensor, draws: CounterRng
    ) -> tuple[Tensor, Sequence[Tensor]] | None:
        """Return the loss and the gradient of one model, or None if only autograd can compute it.

        The gradient contains one tensor per learned weight. Tensors are (*shape), pixels (rows, features) and labels
        (rows,). `shares` (rows,) are the weights of the rows in the loss: 1 / count each for a mean. `draws` are the
        model's random numbers.
        """


@runtime_checkable
class FromImages(Protocol):
    """An objective whose initial tensors may depend on the model's own training images, and on no others."""

    @property
    def starting_images(self) -> int:
        """The number of training images that `initial_from` uses; 0 if the start does not depend on images."""

    def initial_from(self, seed: int, images: Tensor) -> Mapping[str, NDArray[np.float32]]:
        """Return the initial tensors (*shape) of a model that is trained on these images and others.

        Images are (n, h, w, c) uint8, on any device.
        """


@runtime_checkable
class Mirrors(Protocol):
    """An objective that may want every image mirrored in alternating epochs."""

    @property
    def alternates(self) -> bool:
        """Whether batches must state which images are mirrored."""


@runtime_checkable
class AfterStep(Protocol):
    """An objective with an operation after every optimiser step, such as updating a teacher."""

    def after_step(self, tensors: Mapping[str, Tensor], passed: Tensor) -> None:
        """Change tensors that are not learned, in place, for the models that took the step.

        `passed` (models,) is the number of epochs, as float64, including this step: 2.5 in the middle of the third. On
        a CPU, models are passed one at a time. On a GPU, all models are passed together and the operation is recorded,
        so it must not depend on tensor values.
        """
