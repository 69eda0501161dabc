"""How a model's centred logit rises with each pixel of a feature, and how well a feature fits such slopes.

A canary moves a model's response to the pixels that it inked, and to no other of its feature's place, by a common
shift. Between two trainings the slopes of pixels differ by more where the training images have ink themselves, since
their gradients reach those weights at every step. So the shift is estimated by generalised least squares, with noise
of variance n + 10 at a pixel in which the training images have the ink of n whole ones:

    r(f) = mean over images x of c(x_f),  c = z_y - mean over classes of z      the response to a feature f
    r(f) = constant + sum over pixels of b_p f_p                                fitted over features: the slopes b
    S(f) = sum over pixels of w_p b_p f_p,  w_p = 1 / (n_p + 10)                a feature's score

f_p is what the feature adds to pixel p. The fit leaves open what no feature of the fit varies (the mean of the slopes,
where all have equal ink); there b is taken with the smallest sum of w_p b_p^2, which makes S independent of it.

For S to rank a drawn feature exactly, the features of the fit must not depend on which was drawn, or must hold it as
one among its equals. The score is ours; the 10 was fixed before the models were trained on which it is reported.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tasks.datasets.images import Pixels

Array = NDArray[np.float64]

LEAST_INK = 10.0  # images: the noise of a pixel that no training image inks, in units of one image's ink
RESOLVED = 1e-8  # of the largest singular value: what the features of a fit vary by less counts as not varied


def centred_logits(log_p: Array, label: int) -> Array:
    """z_y less the mean of z over the classes, z the logits of `log_p` (images, classes): (images,), in nats.

    Unlike log P it goes on rising where P nears 1. The softmax's normaliser cancels, so that log-probabilities do.
    """
    return np.asarray(log_p[:, label] - log_p.mean(axis=1))


def pixel_ink(images: Pixels) -> Array:
    """The ink of the images (n, h, w, c) in each pixel, in that of whole ones: (h, w, c)."""
    return np.asarray(images.sum(axis=0, dtype=np.int64) / 255)


def weighted_slopes(features: Array, responses: Array, inked: Array) -> Array:
    """w_p b_p of every pixel, (pixels,), from the features of the fit (features, pixels) and the responses to them.

    With X the features less their mean and V = diag(n + 10), b = V X' (X V X')^+ r: of all slopes that fit the
    responses best, those of the smallest sum of w_p b_p^2. `inked` is n, (pixels,). S(f) is the sum of w_p b_p f_p.
    """
    spread = np.sqrt(inked + LEAST_INK)
    varied = (features - features.mean(axis=0)) * spread
    fitted = np.linalg.pinv(varied, rcond=RESOLVED) @ (responses - responses.mean())
    return np.asarray(fitted / spread)


def strongest_pixels(slopes: Array, count: int) -> NDArray[np.bool_]:
    """The `count` pixels of the largest slopes, (pixels,): the feature that fits them best, if it had so many."""
    chosen = np.zeros(len(slopes), bool)
    chosen[np.argsort(-slopes, kind="stable")[:count]] = True
    return chosen
