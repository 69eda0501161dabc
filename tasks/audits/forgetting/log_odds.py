"""Log-odds of confidences, in which per-image Gaussians are a fair description of how models differ."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SINGLE = 2.0**-24  # half the distance from 1 to the next smaller float32


def log_odds(confidences: Array, printed: float = 0.0) -> Array:
    """log(c / (1 - c)) of confidences, whose last printed place is `printed` (0: float32).

    Confidences of 0 and 1 are taken for half a last place more, or less. Carlini et al. 2022, "Membership inference
    attacks from first principles", section IV-C, call it logit scaling.
    """
    least = max(printed / 2, SINGLE)
    inside = np.clip(confidences, least, 1 - least)
    scaled: Array = np.log(inside) - np.log1p(-inside)
    return scaled
