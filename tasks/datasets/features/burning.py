"""Burn features into images: the same pixels at the same position in every image."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from tasks.datasets.features.kinds import Feature
from tasks.datasets.images import Pixels
from tasks.numerics import seeds

# Random patches per draw. This is a multiple of 4, so that no draw of bytes ends within a 32-bit word of the generator
# and the chunks form the same stream as a single draw.
CHUNK = 1024


def burn(images: Pixels, feature: Feature) -> Pixels:
    """Return a copy of the images (n, height, width, channels) with the feature burnt into each.

    Raises ValueError if the feature does not fit, or if its file cannot be read.
    """
    return feature.patch().burn_into(images)


def burn_random(
    images: Pixels, feature: Feature, seed: int, *names: str | int, rows: ArrayLike | None = None
) -> Pixels:
    """Return a copy of the images, each with a random feature z_r: `feature`'s position and cover in random colours.

    Colours are U[0, 1] per pixel and channel, quantised to the 256 levels of an image, all equally likely (mean 0.5, as
    for U[0, 1]). `rows` are the images' rows in their data set, in any order (None: 0, 1, 2, ...). Colours come from
    the stream `names` of `seed`. They depend only on the stream and the image's row, never on the other images.
    """
    patch = feature.patch()
    if rows is None:
        image_rows = np.arange(len(images))
    else:
        image_rows = np.asarray(rows, np.int64)
    if image_rows.shape != images.shape[:1]:
        raise ValueError(f"rows has shape {image_rows.shape}; it must be ({len(images)},), one for each image")
    patch.check_fits(*images.shape[1:3])
    shape = (*patch.cover.shape, images.shape[3])
    colours = np.empty((len(images), *shape), np.uint8)
    for first, block in _random_colours(int(image_rows.max(initial=-1)) + 1, shape, seed, *names):
        is_in_block = (image_rows >= first) & (image_rows < first + len(block))
        colours[is_in_block] = block[image_rows[is_in_block] - first]
    return patch.burn_into(images, colours)


def _random_colours(
    count: int, shape: tuple[int, int, int], seed: int, *names: str | int
) -> Iterator[tuple[int, Pixels]]:
    """Yield the stream in chunks: the first row of the chunk and its colours (rows, *shape)."""
    generator = seeds.generator(seed, "random patches", *names)
    for first in range(0, count, CHUNK):
        size = (min(CHUNK, count - first), *shape)
        yield first, generator.integers(0, 256, size=size, dtype=np.uint8)


def check_fits(feature: Feature, height: int, width: int) -> None:
    """Raise ValueError if the feature does not fit into an image."""
    feature.patch().check_fits(height, width)


def describe_feature(feature: Feature) -> str:
    """Describe the feature for use in a sentence: `the letter A`, `the words 'JANE DOE'`."""
    return feature.describe()
