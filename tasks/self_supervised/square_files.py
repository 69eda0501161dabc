"""The file of a training's images as squares: its side, name and size, for planning without torch."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from tasks.datasets.boxed.partition import split_pictures
from tasks.datasets.cache_need import CachedImages
from tasks.datasets.catalog import load_with_boxes
from tasks.datasets.picture_cache import path_of, rows_size
from tasks.self_supervised.pretraining_config import Pretraining

SHARE = 0.5  # largest share of a device's free memory that images may use


def square_side(config: Pretraining, sizes: NDArray[np.int32]) -> int:
    """Return the side of the squares of images of these sizes (n, 2).

    It is the requested side, else twice the resolution, but at most the longest side of any image.
    """
    return config.augmentation.side or max(8, min(2 * config.augmentation.resolution, int(sizes.max())))


def squares_digest(config: Pretraining, side: int) -> str:
    """Return the name of the file, which identifies data, rows and side."""
    return hashlib.sha256(f"squares 1: {config.images} {side}".encode()).hexdigest()


def squares_file(config: Pretraining) -> CachedImages:
    """Return the file of a training. No image is read."""
    images = config.images
    pictures = load_with_boxes(images.data, images.correlation)
    rows = split_pictures(pictures, images.partition).rows(images.part)
    side = square_side(config, pictures.sizes[rows])
    content = f"squares of {side} x {side} of part {images.part} of {images.data.named().name}"
    return CachedImages(content, path_of(squares_digest(config, side)), rows_size((side, side, 3), len(rows)), SHARE)
