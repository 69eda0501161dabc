"""Training image classifiers by cross-entropy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasks.models.augmentation import Shape, augment, central_crops, check_crop, random_crops
from tasks.models.catalog import PLAIN
from tasks.models.counter_rng import CounterRng
from tasks.models.layers import Layers, Mode, Weight
from tasks.models.manual_gradients import perceptron_activations, perceptron_gradients, perceptron_layers
from tasks.models.matmul import products
from tasks.models.networks import Architecture, images
from tasks.training.objective import Batch


class CrossEntropy:
    """A network learns the class of an image.

    The loss is -log softmax(logits)[label], in nats; a minibatch's is the mean. Pixels enter as [0, 1]; with
    `augmentation`, training sees them changed afresh in every minibatch.

    With `crop` above 0 the network, whose images are squares of that side, sees parts of larger images of this `shape`:
    in training at a random place, afresh in every minibatch and before any other change, in evaluation the central
    ones.
    """

    total = False

    def __init__(
        self, architecture: Architecture, augmentation: bool = False, crop: int = 0, shape: Shape | None = None
    ) -> None:
        self.architecture = architecture
        self.augmentation = augmentation
        self.crop = crop
        self.shape = shape or architecture.shape
        if crop:
            if shape is None:
                raise ValueError(f"crop is {crop}; the shape of the images that are cropped must be given too")
            check_crop(shape, crop)
        expected = (crop, crop, self.shape[2]) if crop else self.shape
        if architecture.shape != expected:
            shapes = " and ".join("x".join(map(str, sizes)) for sizes in (architecture.shape, expected))
            raise ValueError(f"the network's images and those that it is shown differ in shape: {shapes}")

    @property
    def name(self) -> str:
        return f"{self.architecture}, cropped" if self.crop else str(self.architecture)

    @property
    def stackable(self) -> bool:
        return self.architecture.stackable

    @property
    def capturable(self) -> bool:
        return self.architecture.capturable

    @property
    def captures_padding(self) -> bool:
        return self.architecture.own is None

    @property
    def weights(self) -> Mapping[str, Weight]:
        return self.architecture.weights

    def initial(self, seed: int) -> Mapping[str, NDArray[np.float32]]:
        return self.architecture.initial(seed)

    def losses(self, tensors: Mapping[str, Tensor], batch: Batch) -> Tensor:
        return self.layer_losses(Layers(tensors, batch.mode), batch)

    def layer_losses(self, layers: Layers, batch: Batch) -> Tensor:
        """Each row's loss, (models, rows), computed through the given layers, of whatever kind."""
        log_p = self._log_p(layers, self.training_pixels(layers.tensors, batch))
        return -log_p.gather(2, batch.labels[..., None])[..., 0]

    def training_pixels(self, tensors: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The pixels of a minibatch as training sees them: cropped, in [0, 1], changed."""
        draws = batch.mode.draws
        pixels = batch.pixels
        if self.crop:
            assert draws is not None
            pixels = random_crops(pixels, self.shape, self.crop, draws)
        pixels = unit(tensors, pixels)
        if self.augmentation:
            assert draws is not None
            pixels = augment(pixels, self.architecture.shape, draws)
        return pixels

    def evaluate_rows(self, tensors: Mapping[str, Tensor], batch: Batch) -> tuple[Tensor, Tensor | None]:
        pixels = central_crops(batch.pixels, self.shape, self.crop) if self.crop else batch.pixels
        log_p = self.log_p(tensors, unit(tensors, pixels), batch.mode)
        return -log_p.gather(2, batch.labels[..., None])[..., 0], log_p.argmax(2) == batch.labels

    def log_p(self, tensors: Mapping[str, Tensor], pixels: Tensor, mode: Mode) -> Tensor:
        """The log probability of every class: (models, rows, classes)."""
        return self._log_p(Layers(tensors, mode), pixels)

    def _log_p(self, layers: Layers, pixels: Tensor) -> Tensor:
        logits = self.architecture.logits(layers, pixels)
        # Classes by rows, since torch's softmax over a short inner axis takes four times as long.
        return torch.log_softmax(logits.mT.contiguous(), 1).mT

    def manual_gradient(
        self,
        tensors: Mapping[str, Tensor],
        pixels: Tensor,
        labels: Tensor,
        shares: Tensor,
        draws: CounterRng,  # noqa: ARG002 - a plain network draws nothing
    ) -> tuple[Tensor, Sequence[Tensor]] | None:
        changed = self.augmentation or self.crop
        if self.architecture.name != "mlp1" or self.architecture.regularisers != PLAIN or changed:
            return None
        layers = perceptron_layers(tensors)
        dtype = layers[0][0].dtype
        by = products(pixels.device, dtype)
        # Channel by channel, as the layers take them; rows of pixels have the channels of each place side by side.
        rows = images(pixels[None], self.shape).reshape(len(pixels), -1)
        values = perceptron_activations(layers, rows.to(dtype, copy=True).mul_(1 / 255), by)
        log_p = torch.log_softmax(values[-1].t().contiguous(), 0)
        places = labels[None]
        loss = -(log_p.gather(0, places)[0] @ shares)
        # The gradient of -log p(label) in the logits is p - one-hot.
        gradient = log_p.exp_().scatter_add_(0, places, torch.full_like(shares, -1)[None]).mul_(shares).t()
        return loss, perceptron_gradients(layers, values, gradient, by)


def unit(tensors: Mapping[str, Tensor], pixels: Tensor) -> Tensor:
    """The pixels in [0, 1], in the precision of the weights."""
    return pixels.to(next(iter(tensors.values())).dtype).mul_(1 / 255)
