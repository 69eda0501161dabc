"""How private a training is to be."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.ranges import above_zero, share

LARGEST_EPSILON = 200.0  # beyond, opacus's accountant takes gigabytes, or fails


@dataclass(frozen=True)
class Privacy:
    """Differentially private training by DP-SGD.

    Abadi et al. 2016, "Deep learning with differential privacy", algorithm 1.
    """

    epsilon: float
    """Epsilon of the guarantee, over all epochs."""
    delta: float = 1e-5
    """Delta of the guarantee."""
    clip: float = 1.0
    """Norm to which each example's gradient is clipped."""

    def __post_init__(self) -> None:
        above_zero(self, "epsilon", "clip")
        if self.epsilon > LARGEST_EPSILON:
            raise ValueError(f"epsilon is {self.epsilon}; it must be at most {LARGEST_EPSILON:g}, which hides nothing")
        share(self, "delta", zero=False, one=False)
