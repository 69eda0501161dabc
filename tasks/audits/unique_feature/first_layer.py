"""What a training image left in the weights of a dense first layer, pixel by pixel.

A pixel that no other training image inks moves its weights at the canary's steps alone, by one shift d that it shares
with all other such pixels of the feature: w_up = w0_up + d_u for unit u and an inked pixel p. What hides d are the
weights w0 of the initialisation; their density h is that of the model's own weights elsewhere, in pixels that the
images of the domain do not ink. The locally most powerful score of a shift in the direction g is then

    S_p = a_p sum over units u of g_u s(w_up),  s = -h' / h,  a_p = 1 / (1 + 10 [the images ink p])

with g the model's own gradient of the mean centred logit of the label in the units. Of a normal h the score is linear;
of a uniform one, with which most networks begin, it lies at the two ends, which a shift passes. The optimiser scales
updates by their own size, so that a single image moves a pixel's weights as much as many do: the weight a_p asks
whether there is ink, not how much. A feature's score is the sum over its pixels.

The model, its label and the domain alone enter S, and not the feature that is asked about: ranks of a drawn one are
exact. The score is ours; 10 and BANDWIDTH were fixed on 12 models that none of the reported counts holds
(`bench/first_layers.py`). Locally most powerful tests: Cox & Hinkley 1974, "Theoretical Statistics", section 4.8.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tasks.audits.unique_feature.slopes import Array, first_dense, mean_gradients
from tasks.datasets.images import Pixels

if TYPE_CHECKING:
    from tasks.models.networks import Architecture, Weights

BANDWIDTH = 0.05  # of the density's kernel, in standard deviations of the weights
INKED_NOISE = 10.0  # the variance that the training images' own updates add to a pixel's, in units of the initial one
LEAST_BLANK = 10  # pixels: of fewer without ink no density is estimated, and those with ink are taken, too
BINS = 801
RARE = 1e-3  # of the density's peak: below it the score is that at the nearest weight that is not so rare


@dataclass(frozen=True, eq=False)
class FirstLayer:
    """The `weights` (units, pixels) of a dense first layer, and the label's `gradients` (units,) in its biases.

    Pixels are those of a flattened image (h, w, c).
    """

    weights: Array
    gradients: Array

    def pixel_scores(self, where: NDArray[np.int64], inked: NDArray[np.bool_]) -> Array:
        """S_p of the pixels `where`; `inked` says of every pixel of an image whether the domain's images ink it."""
        blank = ~inked
        blank[where] = False
        others = np.setdiff1d(np.arange(len(inked)), where)
        noise = np.flatnonzero(blank) if blank.sum() >= LEAST_BLANK else others if len(others) else where
        score = shift_score(self.weights[:, noise].ravel())
        return np.asarray(self.gradients @ score(self.weights[:, where]) / (1 + INKED_NOISE * inked[where]))


def shift_score(sample: Array) -> Callable[[Array], Array]:
    """-h' / h of the kernel density h of the sample, as a function of values."""
    from scipy.ndimage import gaussian_filter1d

    bandwidth = BANDWIDTH * float(sample.std())
    if not bandwidth:
        return lambda values: values
    reach = float(np.abs(sample).max()) + 4 * bandwidth
    edges = np.linspace(-reach, reach, BINS + 1)
    counts = np.histogram(sample, edges)[0].astype(np.float64)
    step = float(edges[1] - edges[0])
    density, slope = (gaussian_filter1d(counts, bandwidth / step, order=order, mode="constant") for order in (0, 1))
    common = np.flatnonzero(density > RARE * density.max())
    middles = (edges[:-1] + edges[1:]) / 2
    scores = -slope[common] / (step * density[common])
    return lambda values: np.interp(values, middles[common], scores)


def inked_at_all(images: Pixels) -> NDArray[np.bool_]:
    """Whether any of the images (n, h, w, c) inks a pixel: (h w c,)."""
    return np.asarray(images.max(axis=0) > 0).ravel()


def trained_first_layer(network: Architecture, weights: Weights, images: Pixels, label: int) -> FirstLayer:
    """That of a network trained here, and images of the label; ValueError without one."""
    names = first_dense(network)
    if names is None:
        raise ValueError(f"first_layer is on and network is {network.name}; its first layer must be dense, with biases")
    weight, bias = names
    (gradients,) = mean_gradients(network, weights, [bias], [images], label)
    height, width, channels = network.shape
    by_image = weights[weight].astype(np.float64).reshape(-1, channels, height, width).transpose(0, 2, 3, 1)
    return FirstLayer(by_image.reshape(len(by_image), -1), gradients[bias])
