"""How a network is trained, whatever its objective: epochs, optimiser, schedule, early stopping, and privacy.

Light enough for plans: it imports no torch. To add an optimiser, see `tasks.training.optimisers`; a loss or something
to do after a step, `tasks.training.objective`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from tasks.contract.extras import OPACUS, Extra
from tasks.contract.ranges import AtLeast, AtMost, Finite, Ranged, Share

OptimiserName = Literal["adam", "rmsprop"]
Precision = Literal["float32", "float64"]
EPSILON = 1e-7
Count = Annotated[int, AtLeast(1)]  # of epochs, rows or parts
Rate = Annotated[float, Finite()]  # of learning


@dataclass(frozen=True)
class Recipe(Ranged):
    """How every member of a call is trained.

    With `patience` above 0 a training ends after that many epochs without a better validation loss and returns the best
    epoch's weights; with 0 it returns the last epoch's.

    `schedule` holds (epoch, factor), epochs ascending: after so many epochs the learning rate is the first one times
    the factor.

    `optimiser` is Adam or RMSprop in Keras's setting, with this `epsilon`.

    With `accumulate` above 1 a step computes its `batch` rows in so many equal parts, one after another, whose
    gradients add up to the whole minibatch's, to rounding: it takes the memory of a part. Batch norm sees each part as
    a minibatch of its own. Parts draw different random numbers. What an objective does after a step goes by whole
    steps.
    """

    epochs: Count  # at most
    batch: Count
    learning_rate: Rate
    patience: Annotated[int, AtLeast(0)] = 0
    schedule: tuple[tuple[int, float], ...] = ()
    optimiser: OptimiserName = "adam"
    epsilon: Annotated[float, Finite()] = EPSILON
    precision: Precision = "float32"
    accumulate: Count = 1

    def conflicts(self) -> Iterator[str]:
        epochs = [epoch for epoch, _ in self.schedule]
        if epochs != sorted(set(epochs)) or any(epoch < 1 or not factor > 0 for epoch, factor in self.schedule):
            yield f"schedule is {self.schedule}; it must be pairs of an epoch from 1, ascending, and a factor above 0"
        if self.batch % self.accumulate:
            yield f"accumulate is {self.accumulate}; it must divide batch, which is {self.batch}"

    def factor(self, epoch: int) -> float:
        """The factor of the learning rate in an epoch, counted from 1."""
        passed = [factor for changed, factor in self.schedule if epoch > changed]
        return float(passed[-1]) if passed else 1.0


LARGEST_EPSILON = 200.0  # beyond, opacus's accountant takes gigabytes, or fails


@dataclass(frozen=True)
class Privacy(Ranged):
    """Differentially private training by DP-SGD.

    Abadi et al. 2016, "Deep learning with differential privacy", algorithm 1.
    """

    epsilon: Annotated[float, Finite(), AtMost(LARGEST_EPSILON, "which hides nothing")]
    """Epsilon of the guarantee, over all epochs."""
    delta: Annotated[float, Share(zero=False, one=False)] = 1e-5
    """Delta of the guarantee."""
    clip: Annotated[float, Finite()] = 1.0
    """Norm to which each example's gradient is clipped."""

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
