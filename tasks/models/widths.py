"""How wide a network is: a factor on the units and channels of its hidden layers. Planning imports no torch.

Inputs, outputs and, of an autoencoder, the code keep their size. What a factor does to the time of a training follows
from the products of the layers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

Shape = tuple[int, int, int]  # of images: height, width, channels


@dataclass(frozen=True)
class Hidden:
    """The hidden layers of a network: convolutions of 3x3 without padding, then dense layers.

    `pooled` are the convolutions, counted from 1, after which the sides of the images are halved.
    """

    channels: tuple[int, ...] = ()
    units: tuple[int, ...] = ()
    pooled: tuple[int, ...] = ()

    def times(self, width: float) -> Hidden:
        """The layers with so many times the channels and units, rounded to whole ones (halves up), at least 1."""
        channels, units = (
            tuple(max(1, math.floor(width * count + 0.5)) for count in counts) for counts in (self.channels, self.units)
        )
        return Hidden(channels, units, self.pooled)

    def products(self, shape: Shape, outputs: int) -> int:
        """Multiplications of one image's pass forward to so many outputs."""
        height, width, inputs = shape
        count = 0
        for number, channels in enumerate(self.channels, 1):
            height, width = max(1, height - 2), max(1, width - 2)
            count += height * width * channels * inputs * 9
            inputs = channels
            if number in self.pooled:
                height, width = max(1, height // 2), max(1, width // 2)
        sizes = (height * width * inputs, *self.units, outputs)
        return count + sum(before * after for before, after in itertools.pairwise(sizes))


MLP1 = Hidden(units=(512, 256, 128))
CNN1 = Hidden(channels=(32, 64), units=(128, 128), pooled=(2,))
CNN2 = Hidden(channels=(32, 32, 64, 64), units=(1024,), pooled=(2, 4))
VAE = Hidden(units=(512, 256))  # of the encoder; the decoder mirrors them
CODE, FRAME = 16, 2  # numbers in the autoencoder's code, and pixels of 0 on each side of the images that it sees

# The share of a step's time that no width changes: images, batches, the optimiser's calls. By processor time the steps
# of mlp1, cnn1 and vae at a width of 0.25, 0.5 and 2 are within a factor of 1.5 of what follows from this (digits).
UNCHANGED = 0.15

CLASSIFIERS: Mapping[str, Hidden] = {"mlp1": MLP1, "cnn1": CNN1, "cnn2": CNN2}


def check(field: str, name: str, width: float, wide: Collection[str]) -> None:
    """ValueError, in one line, unless the network that this field names comes in this width; those of `wide` in any."""
    if not 0 < width < math.inf:
        raise ValueError(f"width is {width}; it must be a finite number above 0")
    if width != 1 and name not in wide:
        raise ValueError(f"width is {width:g} and {field} is {name}; {field} must be one of {', '.join(wide)} for it")


def growth(name: str, shape: Shape, classes: int, width: float) -> float:
    """How many times the work of its published width a classifier of this width takes; 1 for one without widths."""
    if width == 1:
        return 1.0
    hidden = CLASSIFIERS[name]
    return relative_time(hidden.times(width).products(shape, classes) / hidden.products(shape, classes))


def autoencoder_growth(shape: Shape, width: float) -> tuple[float, float]:
    """How many times the work of its published width the autoencoder takes: a step of training; to decode a code."""
    if width == 1:
        return 1.0, 1.0
    (trained, decoded), (published, published_decoder) = (_autoencoder(shape, each) for each in (width, 1.0))
    return relative_time(trained / published), relative_time(decoded / published_decoder)


def relative_time(products: float) -> float:
    """How many times as long a step takes that has so many times the products."""
    return UNCHANGED + (1 - UNCHANGED) * products


def _autoencoder(shape: Shape, width: float) -> tuple[int, int]:
    """Multiplications of both networks for an image, and of the decoder alone."""
    height, across, channels = shape
    pixels = (height + 2 * FRAME) * (across + 2 * FRAME) * channels
    hidden = VAE.times(width)
    decoder = Hidden(units=hidden.units[::-1]).products((1, 1, CODE), pixels)
    return hidden.products((1, 1, pixels), 2 * CODE) + decoder, decoder
