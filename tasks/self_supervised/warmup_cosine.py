"""The schedule of the learning rate: a linear warm-up, then half a cosine. Light: it imports no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.ranges import above_zero, check_minimums

Factors = NDArray[np.float64]


@dataclass(frozen=True)
class WarmupCosine:
    """Linear warm-up from 0 over the first `warmup` epochs, then half a cosine down to `final` times the first rate.

    p / warmup for p < warmup, then final + (1 - final) (1 + cos(pi (p - warmup) / (epochs - warmup))) / 2, where p
    epochs have passed before the step; `final` from `epochs` on. Loshchilov & Hutter 2017, "SGDR", eq. 5 without
    restarts, after the warm-up of Goyal et al. 2017; 10 epochs of it as in Chen et al. 2020, "A simple framework for
    contrastive learning of visual representations".
    """

    epochs: float  # of both together
    warmup: float = 10.0
    final: float = 0.0

    def __post_init__(self) -> None:
        above_zero(self, "epochs")
        check_minimums(self, {"warmup": 0})
        if not self.warmup < self.epochs:
            raise ValueError(f"warmup is {self.warmup}; it must be below epochs, which is {self.epochs}")
        if not 0 <= self.final <= 1:
            raise ValueError(f"final is {self.final}; it must be from 0 to 1")

    def factors(self, passed: Factors) -> Factors:
        """The factor of the first learning rate after so many epochs, whole or in part; of the shape of `passed`."""
        rising = passed / self.warmup if self.warmup else np.ones_like(passed)
        gone = np.clip((passed - self.warmup) / (self.epochs - self.warmup), 0, 1)
        falling = self.final + (1 - self.final) * (1 + np.cos(math.pi * gone)) / 2
        return np.where(passed < self.warmup, rising, falling)
