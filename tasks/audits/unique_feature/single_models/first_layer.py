"""Score every pixel by the shift that one training image left in the weights of a dense first layer.

If no other training image inks a pixel, its weights move only at the canary's steps, by a shift d that all such pixels
of the feature share: w_up = w0_up + d_u for unit u and an inked pixel p. The weights w0 of the initialisation hide d.
Their density h is estimated from the model's own weights in pixels that no image of the domain inks. The evidence for a
shift is the log likelihood ratio against no shift, for shifts that lean towards the gradient g:

    E_p = sum over units u of log h_d(w_up) / h(w_up),  d_u normal with mean 0.05 g_u and standard deviation 0.05

in standard deviations of the weights without ink. g is the model's own gradient of the mean centred logit of the label
with respect to the units, scaled to a root mean square of 1, and h_d is the density of w0 + d. A uniform density, with
which most networks are initialised, has ends, and a few weights beyond them reveal a shift that the sum of all weights
hides. A normal density has no ends; there, the gradient decides.

The training images move the weights of pixels that they ink by more than one canary does. The evidence of each pixel is
therefore compared with other pixels of the same model that a similar number of images ink (within a power of two),
whose evidence has mean m and standard deviation s. A pixel's score is the log likelihood ratio of a normal shift of E_p
by 3 s0, where s0 is the s of pixels without ink:

    S_p = z t - t^2 / 2,  z = (E_p - m) / s,  t = 3 s0 / s

It is large for a pixel without other ink that shifted, about -4.5 for one that did not, and near 0 if the ink of other
images hides whether it did. A feature's score is the sum over its pixels.

The score depends on the model, its label and the domain, but not on the feature in question, so the rank of a drawn
feature is exact. The score is ours; its constants were fixed on 24 models that are not among those of any reported
count (`studies/unique_feature_first_layer.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tasks.audits.unique_feature.slopes import Array, first_dense, mean_gradients
from tasks.datasets.images import Pixels
from tasks.datasets.picture_rows import Sliceable, slices

if TYPE_CHECKING:
    from tasks.models.networks import Architecture, Weights

Counts = NDArray[np.int64]  # number of images that ink each pixel, shape (pixels,)

# In standard deviations of the weights in pixels without ink:
BANDWIDTH = 0.02  # bandwidth of the density's kernel
SPREAD = 0.05  # spread of the shift of a unit about its mean
TILT = 0.05  # mean shift of a unit whose label gradient equals the root mean square
REACH = 6.0  # how far the density extends beyond the outermost weight

ASSUMED_SHIFT = 3.0  # shift of the evidence of a pixel without ink, in its standard deviations
LEAST_PIXELS = 10  # fewest pixels that a pixel is compared with, and fewest pixels without ink for the density
BINS = 4001


@dataclass(frozen=True, eq=False)
class FirstLayer:
    """The `weights` (units, pixels) of a dense first layer, and the label's `gradients` (units,) in its biases.

    Pixels are in the order of a flattened image (h, w, c).
    """

    weights: Array
    gradients: Array

    def pixel_scores(self, feature_pixels: NDArray[np.int64], counts: Counts) -> Array:
        """Return S_p for the pixels of a feature. `counts` is the number of images of the domain that ink each pixel.

        Pixels are compared with the rest of the image, or with one another if the image has no other pixels.
        """
        other_pixels = np.setdiff1d(np.arange(len(counts)), feature_pixels)
        if not len(other_pixels):
            other_pixels = feature_pixels
        blank = other_pixels[counts[other_pixels] == 0]
        sample = self.weights[:, blank if len(blank) >= LEAST_PIXELS else other_pixels].ravel()
        return compare_evidence(
            shift_evidence(self.weights, self.gradients, sample), counts, feature_pixels, other_pixels
        )


def shift_evidence(weights: Array, gradients: Array, sample: Array) -> Array:
    """Return E_p for all pixels, shape (pixels,), with the density of the `sample` of weights.

    The evidence is 0 if these weights do not vary.
    """
    scale = float(sample.std())
    if not scale:
        return np.zeros(weights.shape[1])
    unshifted, shifted = log_densities(sample, scale)
    size = float(np.sqrt(np.mean(gradients**2)))
    tilt = TILT * scale * (gradients / size if size else gradients)
    return np.asarray((shifted(weights - tilt[:, None]) - unshifted(weights)).sum(axis=0))


def log_densities(sample: Array, scale: float) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
    """Return the log kernel density of the sample, without a shift and with a normal one, as functions of values.

    One additional weight is spread over the whole range, so that a value that the sample never reaches has a density.
    """
    from scipy.ndimage import gaussian_filter1d

    reach = float(np.abs(sample).max()) + REACH * scale
    edges = np.linspace(-reach, reach, BINS + 1)
    counts = np.histogram(sample, edges)[0].astype(np.float64)
    step = float(edges[1] - edges[0])
    middles = (edges[:-1] + edges[1:]) / 2
    density = gaussian_filter1d(counts, BANDWIDTH * scale / step, mode="constant") + 1 / BINS
    shifted = gaussian_filter1d(density, SPREAD * scale / step, mode="nearest")
    return (
        lambda values: np.interp(values, middles, np.log(density)),
        lambda values: np.interp(values, middles, np.log(shifted)),
    )


def compare_evidence(
    evidence: Array, counts: Counts, feature_pixels: NDArray[np.int64], other_pixels: NDArray[np.int64]
) -> Array:
    """Return S_p for `feature_pixels`, from the evidence (pixels,) and that of `other_pixels`."""
    classes = ink_class(counts)
    _, unit = comparison(evidence[other_pixels], classes[other_pixels], 0)
    scores = np.zeros(len(feature_pixels))
    for ink in np.unique(classes[feature_pixels]):
        mean, spread = comparison(evidence[other_pixels], classes[other_pixels], int(ink))
        has_ink = classes[feature_pixels] == ink
        if spread:
            assumed = ASSUMED_SHIFT * unit / spread
            scores[has_ink] = (evidence[feature_pixels[has_ink]] - mean) / spread * assumed - assumed**2 / 2
    return scores


def ink_class(counts: Counts) -> NDArray[np.int64]:
    """Return 0 for no ink, 1 for the ink of one image, 2 for two, 3 for three or four, and so on by powers of two."""
    return np.where(counts > 0, 1 + np.ceil(np.log2(np.maximum(counts, 1))), 0).astype(np.int64)


def comparison(evidence: Array, classes: NDArray[np.int64], ink: int) -> tuple[float, float]:
    """Return the mean and the standard deviation of the evidence of pixels in the class `ink`.

    If there are fewer than LEAST_PIXELS, pixels of the nearest classes are added.
    """
    distances = np.abs(classes - ink)
    fewest = min(LEAST_PIXELS, len(distances))
    near = evidence[distances <= np.sort(distances)[fewest - 1]]
    return float(near.mean()), float(near.std(ddof=1)) if len(near) > 1 else 0.0


def ink_counts(images: Sliceable) -> Counts:
    """Return the number of images (n, h, w, c) with ink in each pixel, shape (h w c,)."""
    counts = np.zeros(images.shape[1:], np.int64)
    for _, pixels in slices(images):
        counts += np.count_nonzero(pixels, axis=0)
    return counts.ravel()


def trained_first_layer(network: Architecture, weights: Weights, images: Pixels, label: int) -> FirstLayer:
    """Return the first layer of a network trained by the audit, given images of the label.

    Raises ValueError if the first layer is not dense.
    """
    names = first_dense(network)
    if names is None:
        raise ValueError(f"first_layer is on and network is {network.name}; its first layer must be dense, with biases")
    weight, bias = names
    (gradients,) = mean_gradients(network, weights, [bias], [images], label)
    height, width, channels = network.shape
    by_image = weights[weight].astype(np.float64).reshape(-1, channels, height, width).transpose(0, 2, 3, 1)
    return FirstLayer(by_image.reshape(len(by_image), -1), gradients[bias])
