"""Scores of memorisation, computed from model outputs.

Logits and log-probabilities are (images, classes); one row is one image.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tasks.contract.summaries import Row, alone, row
from tasks.external.outputs import log_softmax

Array = NDArray[np.float64]


def log_probabilities(logits: ArrayLike) -> Array:
    """log softmax of the logits over the classes, in float64.

    From the logits, never as the log of a softmax: that is -inf for a class whose probability underflows, and a
    divergence with it is infinite.
    """
    values = np.asarray(logits, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError("the model's outputs are not finite numbers, so it has no probabilities to compare")
    return log_softmax(values)


def log_odds(log_p: Array) -> Array:
    """log P / (1 - P) from log P, of each class: (images, classes).

    It goes on rising where P nears 1 and log P stands still. 1 - P is taken as -expm1(log P), and as the smallest
    float64 where P has rounded to 1.
    """
    complement = np.maximum(-np.expm1(log_p), np.finfo(np.float64).tiny)
    return np.asarray(log_p - np.log(complement))


def divergence(clean: Array, changed: Array) -> Array:
    """KL(clean || changed) of each image's two predictions, in nats, from log-probabilities; (images,).

    D_KL(P || Q) = sum over classes of P (log P - log Q), the clean image's distribution first.

    Hartley & Tsaftaris 2022, sections 2.1 and 2.3.2.
    """
    return np.asarray((np.exp(clean) * (clean - changed)).sum(axis=1))


def black_box_score(d_u: ArrayLike, d_r: ArrayLike) -> float | None:
    """M = Average(X_u) - Average(X_r): how much more the feature moves predictions than random patches do, in nats.

    `d_u` and `d_r` hold each probe image's divergence from its clean prediction with the feature and with a random
    patch. Above 0 the paper calls the feature memorised. None without images.

    Hartley & Tsaftaris 2022, eq. 1.
    """
    return average(np.asarray(d_u, dtype=np.float64) - np.asarray(d_r, dtype=np.float64))


def white_box_score(log_p_u: ArrayLike, log_p_r: ArrayLike) -> float | None:
    """M_w = E[log P(y | x_u) - log P(y | x_r)], y being the canary's label, in nats. None without images.

    Hartley & Tsaftaris 2022, section 2.2.
    """
    return average(np.asarray(log_p_u, dtype=np.float64) - np.asarray(log_p_r, dtype=np.float64))


def average(values: Array) -> float | None:
    return float(values.mean()) if values.size else None


def spread(values: Array) -> float | None:
    """The standard deviation of the values; None with fewer than two."""
    return float(values.std(ddof=1)) if values.size > 1 else None


SIZES = (0.001, 0.01, 0.1)  # nats: M of about Table 2's smallest, and larger


def probe_count_rows(spreads: Sequence[float], unit: str) -> Iterator[Row]:
    """The probe images for a power of 0.8 at the median of the models' spreads of d_u - d_r."""
    ordered = sorted(spreads)
    for size in SIZES:
        count = None
        if ordered:
            count = float(required_probes(ordered[len(ordered) // 2], size))
        yield row("probe images needed", {"M": size, "power": 0.8}, alone(count, len(ordered)), unit)


def required_probes(sd: float, size: float) -> int:
    """The probe images with which the paired one-tailed t-test sees an M of this size at 5 % in 80 % of cases.

        n = ((z(0.95) + z(0.8)) sd / M)^2

    `sd` is that of d_u - d_r over probe images. The normal approximation: a handful more are needed where n is small.
    It speaks of M, of one model; not of memory, which M alone does not show.
    """
    from scipy import stats

    z = float(stats.norm.ppf(0.95) + stats.norm.ppf(0.8))
    return max(2, int(np.ceil((z * sd / size) ** 2)))
