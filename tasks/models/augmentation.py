"""What is done to the images of every minibatch in training, afresh: the paper's augmentation, and crops.

The augmentation is contrast, a crop of all but one row and one column, and for colour images a mirror. Hartley &
Tsaftaris, "Unintended memorisation of unique features in neural networks", A.4. Squares are cut out at random places in
training, and from the middle when a model is judged or asked.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from tasks.models.counter_rng import CounterRng

CONTRAST, CROP, MIRROR = 0, -1, -2  # sites: a network's layers count theirs from 1
FACTOR = 0.2


def augment(pixels: Tensor, shape: tuple[int, int, int], draws: CounterRng) -> Tensor:
    """Images changed each in its own way: (models, rows, height * width * channels) in [0, 1], in and out.

    Contrast: each value's distance from the mean of its channel in its image times U[0.8, 1.2], not cut off at 0 or 1,
    as `tf.image.random_contrast` does. Crop: (height - 1, width - 1) of the image from one of the four places, so 27x27
    of 28x28; zeros to the right and below bring it back to its size. What lies at least 1 pixel from every edge, as the
    unique feature does, always stays. Mirror: half of the images with several channels are turned left to right before
    the zeros are added; the feature moves to the other side with them.
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


CROP_PLACE = -3  # site: augmentation has those from 0 down to -2, a network's layers count theirs from 1
BITS = 32

Shape = tuple[int, int, int]  # height, width, channels


def random_crops(pixels: Tensor, shape: Shape, side: int, draws: CounterRng) -> Tensor:
    """A square of each image: (models, rows, height * width * channels) to (models, rows, side * side * channels).

    Each row's top is one of the height - side + 1 that there are, its left one of the width - side + 1, all equally
    likely to within 2^-32 times their number. ValueError where the image is smaller than the square.
    """
    check_crop(shape, side)
    height, width, channels = shape
    rows = pixels.shape[1]
    words = draws.words(CROP_PLACE, 2 * rows).bitwise_and_(2**BITS - 1).view(-1, rows, 2)
    # The upper half of bits times n is U{0, ..., n - 1}; a float32 in [0, 1) times n may be rounded up to n.
    top = (words[..., 0] * (height - side + 1)) >> BITS
    left = (words[..., 1] * (width - side + 1)) >> BITS
    first = (top * width + left) * channels
    down = torch.arange(side, device=pixels.device) * (width * channels)
    across = torch.arange(side * channels, device=pixels.device)
    square = (down[:, None] + across).flatten()
    return pixels.gather(2, first[..., None] + square)


def central_crops(pixels: Tensor, shape: Shape, side: int) -> Tensor:
    """The square in the middle of each image: (models, rows, height * width * channels) to those of the square.

    Of an odd rest the larger half lies below and to the right. ValueError where the image is smaller than the square.
    """
    check_crop(shape, side)
    down, across = middle(shape[0], side), middle(shape[1], side)
    return pixels.view(*pixels.shape[:2], *shape)[:, :, down, across].flatten(2)


def central_images(images: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """The same of images (n, h, w, c): (n, side, side, c), a view of them."""
    height, width, channels = images.shape[1:]
    check_crop((height, width, channels), side)
    return images[:, middle(height, side), middle(width, side)]


def middle(length: int, side: int) -> slice:
    first = (length - side) // 2
    return slice(first, first + side)


def check_crop(shape: Shape, side: int) -> None:
    """ValueError unless a square of this side lies within the images."""
    height, width, _ = shape
    if not 1 <= side <= min(height, width):
        raise ValueError(f"crop is {side}; of images of {height} x {width} it must be from 1 to {min(height, width)}")
