"""The training recipe for any objective: epochs, optimiser, schedule, early stopping and privacy.

This module does not import torch, so that planning is fast. To add an optimiser, see `tasks.training.optimisers`; to
add a loss or an operation after each step, see `tasks.training.objective`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from tasks.contract.extras import OPACUS, Extra
from tasks.contract.ranges import AtLeast, AtMost, Finite, Ranged, Share
from tasks.numerics.precision import Precision

OptimiserName = Literal["adam", "rmsprop", "nesterov"]
EPSILON = 1e-7
Count = Annotated[int, AtLeast(1)]  # number of epochs, rows or parts
Rate = Annotated[float, Finite()]  # learning rate


@dataclass(frozen=True)
class Recipe(Ranged):
    """How every member of a call is trained.

    patience: if above 0, training stops after this number of epochs without a lower validation loss and returns the
        best epoch's weights; if 0, it returns the last epoch's weights.
    schedule: pairs (epoch, factor), epochs ascending: after this epoch, the learning rate is the initial one times the
        factor.
    optimiser, epsilon: Adam or RMSprop with Keras's settings, and its epsilon, or airbench's Nesterov momentum, whose
        learning rate rises and falls over all epochs.
    precision: number format of the products of a step. With float64, weights and all other operations have the same
        format; tests use it.
    accumulate: if above 1, a step computes its `batch` rows in this number of equal parts, which limits its memory. The
        gradients add up to the gradient of the whole minibatch, up to rounding. Batch norm treats each part as a
        minibatch, parts draw different random numbers, and an objective's operation after a step runs once per whole
        step.
    """

    epochs: Count  # maximum
    batch: Count
    learning_rate: Rate
    patience: Annotated[int, AtLeast(0)] = 0
    schedule: tuple[tuple[int, float], ...] = ()
    optimiser: OptimiserName = "adam"
    epsilon: Annotated[float, Finite()] = EPSILON
    precision: Precision | Literal["float64"] = "float32"
    accumulate: Count = 1

    def conflicts(self) -> Iterator[str]:
        epochs = [epoch for epoch, _ in self.schedule]
        if epochs != sorted(set(epochs)) or any(epoch < 1 or not factor > 0 for epoch, factor in self.schedule):
            yield f"schedule is {self.schedule}; it must be pairs of ascending epochs from 1 and factors above 0"
        if self.batch % self.accumulate:
            yield f"accumulate is {self.accumulate}; it must divide batch, which is {self.batch}"

    def factor(self, epoch: int) -> float:
        """Return the learning-rate factor in an epoch, counted from 1."""
        passed = [factor for changed, factor in self.schedule if epoch > changed]
        return float(passed[-1]) if passed else 1.0


def depends_on_length(optimiser: str) -> bool:
    """Whether the first epochs of a training with this optimiser depend on its number of epochs."""
    return optimiser == "nesterov"


LARGEST_EPSILON = 200.0  # with larger values, opacus's accountant uses gigabytes or fails


@dataclass(frozen=True)
class Privacy(Ranged):
    """Differentially private training by DP-SGD.

    Abadi et al. 2016, "Deep learning with differential privacy", algorithm 1.
    """

    epsilon: Annotated[float, Finite(), AtMost(LARGEST_EPSILON, "since larger values offer no privacy")]
    """Epsilon of the guarantee, over all epochs."""
    delta: Annotated[float, Share(zero=False, one=False)] = 1e-5
    """Delta of the guarantee."""
    clip: Annotated[float, Finite()] = 1.0
    """Clipping norm of per-example gradients."""

    def extras(self) -> tuple[Extra, ...]:
        return (OPACUS,)

    def power(self, level: float) -> float:
        """Return the largest power of any test that distinguishes models trained with and without one example.

        For tests with this false positive rate, it is at most 1 and equals min(e^epsilon level + delta, 1 - e^-epsilon
        (1 - delta - level)). Wasserman & Zhou 2010, "A statistical framework for differential privacy", theorem 2.4;
        Kairouz, Oh & Viswanath 2015, "The composition theorem for differential privacy", section 2.
        """
        steep = math.exp(self.epsilon) * level + self.delta
        flat = math.exp(-self.epsilon) * (1 - self.delta - level)
        return min(steep, 1 - max(0.0, flat))


def check_precision(precision: str) -> None:
    """Raise ValueError if private training does not support this precision."""
    _check_private_settings({"precision": (precision, "float32")})


def check_recipe(recipe: Recipe) -> None:
    """Raise ValueError if the recipe has a setting that private training does not support."""
    check_precision(recipe.precision)
    settings = {
        "patience": (recipe.patience, 0),
        "schedule": (recipe.schedule, ()),
        "optimiser": (recipe.optimiser, "adam"),
        "accumulate": (recipe.accumulate, 1),
    }
    _check_private_settings(settings)


def _check_private_settings(settings: Mapping[str, tuple[object, object]]) -> None:
    """Raise ValueError for a setting (value, required value) that differs from what private training requires."""
    for name, (value, required) in settings.items():
        if value != required:
            raise ValueError(f"privacy is set and {name} is {value}; it must be {required}")
