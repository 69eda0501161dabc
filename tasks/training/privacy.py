"""How private a training is to be, and what that allows a test of its model to find."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tasks.extras import OPACUS, Extra
from tasks.ranges import above_zero, share
from tasks.training.recipe import Recipe

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

    def extras(self) -> tuple[Extra, ...]:
        return (OPACUS,)

    def power(self, level: float) -> float:
        """The largest power of a test that tells models trained with one example from those without, at most 1.

        min(e^epsilon level + delta, 1 - e^-epsilon (1 - delta - level)) of tests with this false positive rate.
        Wasserman & Zhou 2010, "A statistical framework for differential privacy", theorem 2.4; Kairouz, Oh & Viswanath
        2015, "The composition theorem for differential privacy", section 2.
        """
        steep, flat = math.exp(self.epsilon) * level + self.delta, math.exp(-self.epsilon) * (1 - self.delta - level)
        return min(steep, 1 - max(0.0, flat))


def least_epsilon(power: float, level: float, delta: float) -> float:
    """The smallest epsilon with which a test of this false positive rate may have such a power: `Privacy.power` turned
    around, 0 where every epsilon allows it, infinite where none does."""
    with_it, without = power - delta, 1 - delta - level
    missed = 1 - power
    steep = math.log(with_it / level) if with_it > 0 else 0.0
    flat = 0.0 if without <= 0 else math.inf if missed <= 0 else math.log(without / missed)
    return max(0.0, steep, flat)


def check_recipe(recipe: Recipe) -> None:
    """ValueError where the recipe has a setting that private training does not support."""
    settings = {
        "patience": (recipe.patience, 0),
        "schedule": (recipe.schedule, ()),
        "optimiser": (recipe.optimiser, "adam"),
        "precision": (recipe.precision, "float32"),
        "accumulate": (recipe.accumulate, 1),
    }
    for name, (given, only) in settings.items():
        if given != only:
            raise ValueError(f"privacy is given and {name} is {given}; it must be {only}")
