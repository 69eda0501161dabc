"""How private a training is to be."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.ranges import above_zero, share


@dataclass(frozen=True)
class Privacy:
    """Differentially private training by DP-SGD: (epsilon, delta) over all epochs, gradients clipped to a norm.

    Abadi et al. 2016, "Deep learning with differential privacy", algorithm 1.
    """

    epsilon: float
    delta: float = 1e-5
    clip: float = 1.0

    def __post_init__(self) -> None:
        above_zero(self, "epsilon", "clip")
        share(self, "delta", zero=False, one=False)
