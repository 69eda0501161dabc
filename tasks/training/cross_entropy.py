"""Train image classifiers by cross-entropy, with images augmented or cropped independently in every minibatch.

Augmentation changes the contrast, crops all but one row and one column, and mirrors colour images. Hartley & Tsaftaris,
"Unintended memorisation of unique features in neural networks", A.4. Crops are random in training and central in
evaluation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from tasks.models import airbench
from tasks.models.catalog import PLAIN
from tasks.models.counter_rng import BITS, CounterRng
from tasks.models.inference import fractions
from tasks.models.layers import Layers, Mode, Weight
from tasks.models.manual_gradients import perceptron_activations, perceptron_gradients, perceptron_layers
from tasks.models.networks import Architecture, images
from tasks.numerics.matmul import products
from tasks.training.objective import Batch

# random number sites; the layers of a network use sites from 1
CONTRAST = 0
CROP = -1
MIRROR = -2
CROP_PLACE = -3
FACTOR = 0.2

Shape = tuple[int, int, int]  # height, width, channels


def augment(pixels: Tensor, shape: Shape, draws: CounterRng) -> Tensor:
    """Change each image at random. Input and output are (models, rows, height * width * channels) in [0, 1].

    Contrast: in each image, each value's distance from its channel mean is multiplied by U[0.8, 1.2]. As in
    `tf.image.random_contrast`, results are not clipped to [0, 1]. Crop: (height - 1, width - 1) of the image from one
    of four positions, for example 27x27 of 28x28. Zeros to the right and below restore the original size. Pixels at
    least 1 pixel away from every edge, such as those of the unique feature, always remain. Mirror: half of the images
    with several channels are flipped left to right before the zeros are added, and the feature moves to the other side
    with them.
    """
    models, rows = pixels.shape[:2]
    height, width, channels = shape
    images = pixels.view(models, rows, *shape)
    mean = images.mean((2, 3), keepdim=True)
    factor = draws.uniform(CONTRAST, (rows, 1, 1, 1), pixels.dtype).mul_(2 * FACTOR).add_(1 - FACTOR)
    images = torch.lerp(mean, images, factor)
    later = draws.uniform(CROP, (rows, 2, 1, 1, 1)) < 0.5
    images = torch.where(later[:, :, 0], images[:, :, 1:], images[:, :, : height - 1])
    images = torch.where(later[:, :, 1], images[:, :, :, 1:], images[:, :, :, : width - 1])
    if channels > 1:
        mirrored = draws.uniform(MIRROR, (rows, 1, 1, 1)) < 0.5
        images = torch.where(mirrored, images.flip(3), images)
    return functional.pad(images, (0, 0, 0, 1, 0, 1)).flatten(2)


def random_crops(pixels: Tensor, shape: Shape, side: int, draws: CounterRng) -> Tensor:
    """Crop a square of each image: (models, rows, height * width * channels) to (models, rows, side * side * channels).

    The top edge is one of height - side + 1 positions and the left edge one of width - side + 1, all equally likely to
    within 2^-32 times their number. Raises ValueError if the image is smaller than the square.
    """
    _check_crop(shape, side)
    height, width, channels = shape
    rows = pixels.shape[1]
    words = draws.words(CROP_PLACE, (rows, 2)).bitwise_and_(2**BITS - 1)
    # The upper half of bits times n is U{0, ..., n - 1}. A float32 in [0, 1) times n could be rounded up to n.
    top_edge = (words[..., 0] * (height - side + 1)) >> BITS
    left_edge = (words[..., 1] * (width - side + 1)) >> BITS
    first = (top_edge * width + left_edge) * channels
    down = torch.arange(side, device=pixels.device) * (width * channels)
    across = torch.arange(side * channels, device=pixels.device)
    square = (down[:, None] + across).flatten()
    return pixels.gather(2, first[..., None] + square)


def central_crops(pixels: Tensor, shape: Shape, side: int) -> Tensor:
    """Crop the central square of each image (models, rows, height * width * channels).

    If a margin is odd, its larger half is below or to the right. Raises ValueError if the image is smaller than the
    square.
    """
    _check_crop(shape, side)
    down = middle(shape[0], side)
    across = middle(shape[1], side)
    return pixels.view(*pixels.shape[:2], *shape)[:, :, down, across].flatten(2)


def central_images(images: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """Return a view of the central squares (n, side, side, c) of images (n, h, w, c)."""
    height, width, channels = images.shape[1:]
    _check_crop((height, width, channels), side)
    return images[:, middle(height, side), middle(width, side)]


def middle(length: int, side: int) -> slice:
    first = (length - side) // 2
    return slice(first, first + side)


def _check_crop(shape: Shape, side: int) -> None:
    """Raise ValueError unless the images contain a square of this side length."""
    height, width, _ = shape
    if not 1 <= side <= min(height, width):
        raise ValueError(
            f"crop is {side}; it must be at most the side of {height} x {width} images, from 1 to {min(height, width)}"
        )


class CrossEntropy:
    """Objective of a network that learns the class of an image.

    The loss is -log softmax(logits)[label], in nats. The loss of a minibatch is the mean. Pixels are scaled to [0, 1].
    With `augmentation`, they are changed at random in every training minibatch.

    airbench has its own augmentation and smoothed labels: a share of each label is spread over all classes, in training
    only. Its first layer is computed from the model's own training images.

    With `crop` above 0, the network takes squares of that side length from larger images of this `shape`: random ones
    in every training minibatch, before any other change, and central ones in evaluation.
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
                raise ValueError(f"crop is {crop}; it requires the shape of the images to crop")
            _check_crop(shape, crop)
        expected = (crop, crop, self.shape[2]) if crop else self.shape
        if architecture.shape != expected:
            shapes = " and ".join("x".join(map(str, sizes)) for sizes in (architecture.shape, expected))
            raise ValueError(f"the images differ in shape from the network's images: {shapes}")

    @property
    def name(self) -> str:
        if self.crop:
            return f"{self.architecture}, cropped"
        return str(self.architecture)

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

    @property
    def is_airbench(self) -> bool:
        return self.architecture.name == airbench.NAME

    @property
    def starting_images(self) -> int:
        return airbench.SAMPLE if self.is_airbench else 0

    def initial_from(self, seed: int, images: Tensor) -> Mapping[str, NDArray[np.float32]]:
        return {**self.initial(seed), **airbench.whitening(images)}

    @property
    def alternates(self) -> bool:
        return self.is_airbench and self.augmentation and self.shape[2] > 1

    def losses(self, tensors: Mapping[str, Tensor], batch: Batch) -> Tensor:
        return self.layer_losses(Layers(tensors, batch.mode), batch)

    def layer_losses(self, layers: Layers, batch: Batch) -> Tensor:
        log_p = self._log_p(layers, self.training_pixels(layers.tensors, batch))
        losses = -log_p.gather(2, batch.labels[..., None])[..., 0]
        if self.is_airbench:
            return torch.lerp(losses, -log_p.mean(2), airbench.SMOOTHING)
        return losses

    def training_pixels(self, tensors: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """Return the pixels of a training minibatch: cropped, scaled to [0, 1] and augmented."""
        draws = batch.mode.draws
        pixels = batch.pixels
        if self.crop:
            assert draws is not None
            pixels = random_crops(pixels, self.shape, self.crop, draws)
        pixels = unit(tensors, pixels)
        if self.augmentation:
            assert draws is not None
            if self.is_airbench:
                mirrored = batch.mirrored
                if mirrored is None:
                    mirrored = torch.zeros(pixels.shape[:2], dtype=torch.bool, device=pixels.device)
                return airbench.change_images(pixels, self.architecture.shape, draws, mirrored)
            pixels = augment(pixels, self.architecture.shape, draws)
        return pixels

    def evaluate_rows(self, tensors: Mapping[str, Tensor], batch: Batch) -> tuple[Tensor, Tensor | None]:
        if self.crop:
            pixels = central_crops(batch.pixels, self.shape, self.crop)
        else:
            pixels = batch.pixels
        log_p = self.log_p(tensors, unit(tensors, pixels), batch.mode)
        return -log_p.gather(2, batch.labels[..., None])[..., 0], log_p.argmax(2) == batch.labels

    def log_p(self, tensors: Mapping[str, Tensor], pixels: Tensor, mode: Mode) -> Tensor:
        """Return the log probability of every class, (models, rows, classes)."""
        return self._log_p(Layers(tensors, mode), pixels)

    def _log_p(self, layers: Layers, pixels: Tensor) -> Tensor:
        logits = self.architecture.logits(layers, pixels)
        # Put classes before rows, since torch's softmax over a short inner axis is four times slower. Logits have fewer
        # bits than pixels under autocast, which does not round losses.
        return torch.log_softmax(logits.mT.to(pixels.dtype).contiguous(), 1).mT

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
        # Channels come first, as in the layers; rows of pixels have channels last.
        rows = images(pixels[None], self.shape).reshape(len(pixels), -1)
        values = perceptron_activations(layers, fractions(rows, dtype), by)
        log_p = torch.log_softmax(values[-1].t().contiguous(), 0)
        places = labels[None]
        loss = -(log_p.gather(0, places)[0] @ shares)
        # The gradient of -log p(label) with respect to the logits is p - one-hot.
        gradient = log_p.exp_().scatter_add_(0, places, torch.full_like(shares, -1)[None]).mul_(shares).t()
        return loss, perceptron_gradients(layers, values, gradient, by)


def unit(tensors: Mapping[str, Tensor], pixels: Tensor) -> Tensor:
    """Scale pixels to [0, 1] in the precision of the weights. The features of a table stay unchanged."""
    return fractions(pixels, next(iter(tensors.values())).dtype)
