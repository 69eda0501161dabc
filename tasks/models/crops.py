"""Squares cut out of images: at random places in training, from the middle when a model is judged or asked."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasks.models.counter_rng import CounterRng

PLACE = -3  # site: augmentation has those from 0 down to -2, a network's layers count theirs from 1
BITS = 32

Shape = tuple[int, int, int]  # height, width, channels


def random(pixels: Tensor, shape: Shape, side: int, draws: CounterRng) -> Tensor:
    """A square of each image: (models, rows, height * width * channels) to (models, rows, side * side * channels).

    Each row's top is one of the height - side + 1 that there are, its left one of the width - side + 1, all equally
    likely to within 2^-32 times their number. ValueError where the image is smaller than the square.
    """
    check(shape, side)
    height, width, channels = shape
    rows = pixels.shape[1]
    words = draws.words(PLACE, 2 * rows).bitwise_and_(2**BITS - 1).view(-1, rows, 2)
    # The upper half of bits times n is U{0, ..., n - 1}; a float32 in [0, 1) times n may be rounded up to n.
    top = (words[..., 0] * (height - side + 1)) >> BITS
    left = (words[..., 1] * (width - side + 1)) >> BITS
    first = (top * width + left) * channels
    down = torch.arange(side, device=pixels.device) * (width * channels)
    across = torch.arange(side * channels, device=pixels.device)
    square = (down[:, None] + across).flatten()
    return pixels.gather(2, first[..., None] + square)


def central(pixels: Tensor, shape: Shape, side: int) -> Tensor:
    """The square in the middle of each image: (models, rows, height * width * channels) to those of the square.

    Of an odd rest the larger half lies below and to the right. ValueError where the image is smaller than the square.
    """
    check(shape, side)
    down, across = middle(shape[0], side), middle(shape[1], side)
    return pixels.view(*pixels.shape[:2], *shape)[:, :, down, across].flatten(2)


def central_images(images: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """The same of images (n, h, w, c): (n, side, side, c), a view of them."""
    height, width, channels = images.shape[1:]
    check((height, width, channels), side)
    return images[:, middle(height, side), middle(width, side)]


def middle(length: int, side: int) -> slice:
    first = (length - side) // 2
    return slice(first, first + side)


def check(shape: Shape, side: int) -> None:
    """ValueError unless a square of this side lies within the images."""
    height, width, _ = shape
    if not 1 <= side <= min(height, width):
        raise ValueError(f"crop is {side}; of images of {height} x {width} it must be from 1 to {min(height, width)}")
