"""How much noise a step of a diffusion adds. Light: it imports no torch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tasks.diffusion.diffusion_config import ScheduleName

Array = NDArray[np.float64]

FIRST, LAST = 1e-4, 0.02  # the variances of the first and the last of a thousand steps
OFFSET = 0.008  # keeps the first steps of the cosine from vanishing beside the steps of a byte
MOST = 0.999  # a variance


def variances(schedule: ScheduleName, steps: int) -> Array:
    """The variance of the noise that each step adds, (steps,): beta_1, beta_2, ...

    `linear` rises from 0.0001 to 0.02 in 1000 steps (Ho et al. 2020, section 4); with another number of steps each
    is as much larger as there are fewer, so that the images end in as much noise. `cosine` has
    1 - beta_t = f(t) / f(t - 1), f(t) = cos^2((t / steps + 0.008) / 1.008 pi / 2) (Nichol & Dhariwal 2021, eq. 17).
    """
    if schedule == "linear":
        rising: Array = np.minimum(np.linspace(FIRST, LAST, steps) * (1000 / steps), MOST)
        return rising
    kept: Array = np.cos((np.arange(steps + 1) / steps + OFFSET) / (1 + OFFSET) * np.pi / 2) ** 2
    lost: Array = np.minimum(1 - kept[1:] / kept[:-1], MOST)
    return lost


def signal(schedule: ScheduleName, steps: int) -> Array:
    """The share of the variance that is still the image's after each step, (steps,), falling from nearly 1.

    alpha_bar_t = (1 - beta_1) ... (1 - beta_t), so that x_t given x_0 is normal with the mean sqrt(alpha_bar_t) x_0 and
    the variance 1 - alpha_bar_t. Ho et al. 2020, eq. 4.
    """
    return np.asarray(np.cumprod(1 - variances(schedule, steps)), np.float64)
