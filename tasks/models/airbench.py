"""The network of airbench94, which learns CIFAR-10 in a tenth of the usual epochs, and what belongs to its training.

Jordan 2024, "94% on CIFAR-10 in 3.29 seconds on a single GPU" (arXiv:2404.00498): a network of eight layers whose first
one is fixed and whitens patches, initial weights that pass channels on, biases that learn 64 times as fast, smoothed
labels, shifted images, and mirroring that alternates between epochs. Its optimiser is `nesterov` in
`tasks.training.optimisers`. Differences: the bias of the first layer learns in all epochs instead of the first three,
evaluation uses each image once instead of six shifted and mirrored views, and batch norm's statistics are not averaged.

The first layer is computed from images, so it could carry information about them. A model uses only its own training
images (`whitening`), as every other weight does: an image that a model is not trained on has no effect on the model.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from tasks.models.catalog import PLAIN, Regularisers
from tasks.models.counter_rng import BITS, CounterRng
from tasks.models.layers import FAN_IN_UNIFORM, ZERO, Layers, Shape, Start

NAME = "airbench"
WIDTHS = (64, 256, 256)
PATCH = 2  # side of the patches that the first layer whitens
FAST = 64.0  # factor on the learning rate of biases
SCALE = 1 / 9  # of the logits
MOMENTUM = 0.4  # with which batch norm's running statistics move
SMOOTHING = 0.2  # share of a label that is spread over all classes
SHIFT = 2  # largest shift of a training image, in pixels
SAMPLE = 5000  # training images from which the first layer is computed
# Added to the variances of patches, so that rare directions are not amplified without limit. The paper adds 5e-4 for
# pixels with a variance of 1; those of photographs in [0, 1] have one of about 1/16.
LEAST_VARIANCE = 5e-4 / 16
FIRST = "whiten"
AT_ONCE = 256  # images whose patches are in memory at a time
# random number sites of the changes to training images; the layers of a network use sites from 1
SHIFTED = -4


def _partial_identity(stream: np.random.Generator, shape: Shape, inputs: int, outputs: int) -> NDArray[np.floating]:
    values = FAN_IN_UNIFORM.draw(stream, shape, inputs, outputs)
    filters, channels, height, width = shape
    passed_on = range(min(filters, channels))
    values[: len(passed_on)] = 0
    values[passed_on, passed_on, height // 2, width // 2] = 1
    return values


def _normal_patches(stream: np.random.Generator, shape: Shape, inputs: int, outputs: int) -> NDArray[np.floating]:  # noqa: ARG001
    return stream.normal(0, 1 / math.sqrt(math.prod(shape[1:])), shape)


PARTIAL_IDENTITY = Start("partial identity", _partial_identity)  # the first filters pass on the input channels
NORMAL_PATCHES = Start("normal patches", _normal_patches)  # until `whitening` replaces them


def airbench(layers: Layers, x: Tensor, classes: int, regularisers: Regularisers = PLAIN) -> Tensor:  # noqa: ARG001
    """Compute the logits (models, rows, classes): the whitening layer, three blocks and the maximum over positions.

    A block is a 3x3 convolution, max pooling 2x2, batch norm, GELU, and another convolution, batch norm and GELU, all
    without biases and scales other than batch norm's shift. 1,971,352 learned parameters for ten classes in colour.
    """
    x = functional.gelu(_whiten(layers, x))
    for block, channels in enumerate(WIDTHS, 1):
        x = layers.conv(f"block{block}.conv1", x, channels, 3, PARTIAL_IDENTITY, padding=1, bias=None)
        x = functional.gelu(_shifted_norm(layers, f"block{block}.norm1", functional.max_pool2d(x, 2)))
        x = layers.conv(f"block{block}.conv2", x, channels, 3, PARTIAL_IDENTITY, padding=1, bias=None)
        x = functional.gelu(_shifted_norm(layers, f"block{block}.norm2", x))
    x = x.amax((2, 3), keepdim=True)
    return layers.dense("dense", layers.flat(x), classes, FAN_IN_UNIFORM, bias=None) * SCALE


def _whiten(layers: Layers, x: Tensor) -> Tensor:
    """Apply the first layer: fixed filters of patches, and a learned bias."""
    channels = x.shape[1] // layers.models
    filters = 2 * channels * PATCH**2
    # A copy, because batch norm changes other statistics in the same buffer, which autograd would refuse.
    weight = layers.statistic(f"{FIRST}.weight", (filters, channels, PATCH, PATCH), NORMAL_PATCHES).clone()
    bias = layers.weight(f"{FIRST}.bias", (filters,), ZERO, rate=FAST)
    return layers.apply_conv(FIRST, x, weight.flatten(0, 1), bias.flatten(), 1, 0)


def _shifted_norm(layers: Layers, name: str, x: Tensor) -> Tensor:
    """Apply batch norm with a shift that learns fast, and without a scale."""
    shift = layers.weight(f"{name}.beta", (x.shape[1] // layers.models,), ZERO, rate=FAST)
    return layers.standardise(name, x, momentum=MOMENTUM, epsilon=1e-12, shift=shift.flatten())


def whitening(images: Tensor) -> dict[str, NDArray[np.float32]]:
    """Return the first layer's tensors for images (n, h, w, c) uint8: filters with uncorrelated outputs, and a bias.

    The filters are the eigenvectors v of the covariance of patches, divided by the square roots of their eigenvalues
    (section 3.2 of the paper), then -v. The bias makes the mean of every output 0. All sums are of integers below 2^53,
    so they are exact in any order and on any device.
    """
    channels = images.shape[3]
    size = channels * PATCH**2
    total = torch.zeros(size, dtype=torch.float64, device=images.device)
    products = torch.zeros(size, size, dtype=torch.float64, device=images.device)
    count = 0
    for part in torch.split(images, AT_ONCE):
        patches = _patches(part)
        total += patches.sum(0)
        products += patches.T @ patches
        count += len(patches)
    mean = total.cpu().numpy() / count
    covariance = (products.cpu().numpy() / count - np.outer(mean, mean)) / 255**2
    variances, vectors = np.linalg.eigh(covariance)
    vectors = vectors[:, ::-1].T / np.sqrt(variances[::-1].clip(0) + LEAST_VARIANCE)[:, None]
    # A library returns v or -v; the largest entry is made positive.
    largest = np.take_along_axis(vectors, np.abs(vectors).argmax(1)[:, None], 1)
    vectors *= np.sign(largest)
    filters = np.concatenate([vectors, -vectors])
    return {
        f"{FIRST}.weight": filters.reshape(len(filters), channels, PATCH, PATCH).astype(np.float32),
        f"{FIRST}.bias": (-filters @ (mean / 255)).astype(np.float32),
    }


def _patches(images: Tensor) -> Tensor:
    """Return all patches as float64 rows in the order of a filter: channel, row, column."""
    patches = images.unfold(1, PATCH, 1).unfold(2, PATCH, 1)  # (n, height, width, channels, rows, columns)
    return patches.reshape(-1, images.shape[3] * PATCH**2).double()


def change_images(pixels: Tensor, shape: Shape, draws: CounterRng, mirrored: Tensor) -> Tensor:
    """Shift each image by up to 2 pixels in both directions, and mirror those that are `mirrored` (models, rows).

    Input and output are (models, rows, height * width * channels). The edges are filled by reflection, as in the paper.
    """
    models, rows = pixels.shape[:2]
    height, width, channels = shape
    images = pixels.view(models, rows, *shape)
    steps = 2 * SHIFT + 1
    words = draws.words(SHIFTED, (rows, 2)).bitwise_and_(2**BITS - 1)
    first = ((words * steps) >> BITS) - SHIFT
    down = _reflect(first[..., :1] + torch.arange(height, device=pixels.device), height)
    across = _reflect(first[..., 1:] + torch.arange(width, device=pixels.device), width)
    across = torch.where(mirrored[..., None], width - 1 - across, across)
    places = (down[..., :, None] * width + across[..., None, :]).flatten(2)
    indices = places[..., None] * channels + torch.arange(channels, device=pixels.device)
    return images.flatten(2).gather(2, indices.flatten(2))


def _reflect(places: Tensor, length: int) -> Tensor:
    """Return the places in {0, ..., length - 1} of which places outside are mirror images."""
    return length - 1 - (length - 1 - places.abs()).abs()
