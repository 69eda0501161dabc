"""Scores of memorisation, computed from model outputs.

Logits and log-probabilities have shape (images, classes), with one row per image.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tasks.contract.summaries import Row, alone, row
from tasks.external.outputs import log_softmax

Array = NDArray[np.float64]


def log_probabilities(logits: ArrayLike) -> Array:
    """Return the log softmax of the logits over the classes, in float64.

    It is computed from the logits, not as the log of a softmax. The latter is -inf for a class whose probability
    underflows, and would make divergences infinite.
    """
    values = np.asarray(logits, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError("the model's outputs are not finite numbers, so it has no probabilities to compare")
    return log_softmax(values)


def log_odds(log_p: Array) -> Array:
    """Return log P / (1 - P) of each class from log P, shape (images, classes).

    Unlike log P, it keeps rising as P approaches 1. 1 - P is computed as -expm1(log P), or as the smallest float64 if P
    has been rounded to 1.
    """
    complement = np.maximum(-np.expm1(log_p), np.finfo(np.float64).tiny)
    return np.asarray(log_p - np.log(complement))


def divergence(clean: Array, changed: Array) -> Array:
    """Return KL(clean || changed) for the two predictions of each image, in nats, shape (images,).

    D_KL(P || Q) = sum over classes of P (log P - log Q), computed from log-probabilities. P is the distribution for the
    clean image.

    Hartley & Tsaftaris 2022, sections 2.1 and 2.3.2.
    """
    return np.asarray((np.exp(clean) * (clean - changed)).sum(axis=1))


def black_box_score(d_u: ArrayLike, d_r: ArrayLike) -> float | None:
    """Return M = Average(X_u) - Average(X_r), in nats, or None if there are no images.

    M measures how much more the feature changes predictions than random patches do. `d_u` and `d_r` contain the
    divergence of each probe image from its clean prediction, with the feature and with a random patch. The paper calls
    the feature memorised if M is above 0.

    Hartley & Tsaftaris 2022, eq. 1.
    """
    return average(np.asarray(d_u, dtype=np.float64) - np.asarray(d_r, dtype=np.float64))


def white_box_score(log_p_u: ArrayLike, log_p_r: ArrayLike) -> float | None:
    """Return M_w = E[log P(y | x_u) - log P(y | x_r)], in nats, or None if there are no images. y is the canary's
    label.

    Hartley & Tsaftaris 2022, section 2.2.
    """
    return average(np.asarray(log_p_u, dtype=np.float64) - np.asarray(log_p_r, dtype=np.float64))


def average(values: Array) -> float | None:
    return float(values.mean()) if values.size else None


def spread(values: Array) -> float | None:
    """Return the standard deviation of the values, or None if there are fewer than two."""
    return float(values.std(ddof=1)) if values.size > 1 else None


SIZES = (0.001, 0.01, 0.1)  # values of M in nats: about the smallest one in Table 2, and larger ones


def probe_count_rows(spreads: Sequence[float], unit: str) -> Iterator[Row]:
    """Yield the number of probe images for a power of 0.8, at the median over models of the spread of d_u - d_r."""
    ordered = sorted(spreads)
    for size in SIZES:
        count = None
        if ordered:
            count = float(required_probes(ordered[len(ordered) // 2], size))
        yield row("probe images needed", {"M": size, "power": 0.8}, alone(count, len(ordered)), unit)


def required_probes(sd: float, size: float) -> int:
    """Return the number of probe images with which the paired one-tailed t-test detects M of this size.

        n = ((z(0.95) + z(0.8)) sd / M)^2

    The level is 5 % and the power 80 %. `sd` is the standard deviation of d_u - d_r over probe images. Because of the
    normal approximation, a few more images are needed if n is small. The number refers to M of one model, not to
    memory, which M alone does not show.
    """
    from scipy import stats

    z = float(stats.norm.ppf(0.95) + stats.norm.ppf(0.8))
    return max(2, int(np.ceil((z * sd / size) ** 2)))
