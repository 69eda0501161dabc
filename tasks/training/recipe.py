"""How a network is trained, whatever its objective: number of epochs, optimiser, schedule and early stopping.

Light enough for plans: it imports no torch. To add a schedule, see `tasks.training.learning_rates`; an optimiser,
`tasks.training.optimiser_config` and `tasks.training.optimisers`; a loss or something to do after a step,
`tasks.training.objective`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from tasks.ranges import above_zero, at_least, one_of
from tasks.training.learning_rates import Constant, Factors, Schedule, Steps, WarmupCosine
from tasks.training.optimiser_config import OptimiserConfig

OptimiserName = Literal["adam", "rmsprop"]
Precision = Literal["float32", "float64"]
LEAST = {"epochs": 1, "patience": 0, "batch": 1, "accumulate": 1}
EPSILON = 1e-7


@dataclass(frozen=True)
class Recipe:
    """How every member of a call is trained.

    With `patience` above 0 a training ends after that many epochs without a better validation loss and returns the best
    epoch's weights; with 0 it returns the last epoch's.

    `schedule` is a value of `tasks.training.learning_rates`, or (epoch, factor), epochs ascending: after so many epochs
    the learning rate is the first one times the factor.

    `optimiser` is a name (Adam and RMSprop in Keras's setting, with this `epsilon`) or a value of
    `tasks.training.optimiser_config`, which has all its settings but the learning rate.

    With `accumulate` above 1 a step computes its `batch` rows in so many equal parts, one after another, whose
    gradients add up: it takes the memory of a part. Losses of rows give the whole minibatch's step, to rounding; a loss
    of a whole minibatch sees each part as a minibatch of its own, and so does batch norm. Parts draw different random
    numbers. The learning rate, and what an objective does after a step, go by whole steps.
    """

    epochs: int  # at most
    batch: int
    learning_rate: float
    patience: int = 0
    schedule: tuple[tuple[int, float], ...] | Constant | Steps | WarmupCosine = ()
    optimiser: OptimiserName | OptimiserConfig = "adam"
    epsilon: float = EPSILON
    precision: Precision = "float32"
    accumulate: int = 1

    def __post_init__(self) -> None:
        at_least(self, LEAST)
        above_zero(self, "learning_rate", "epsilon")
        if not isinstance(self.optimiser, OptimiserConfig):
            one_of(self, "optimiser", OptimiserName)
        elif self.epsilon != EPSILON:
            raise ValueError(
                f"epsilon is {self.epsilon}; it is for adam and rmsprop, and {self.optimiser.name} has its own"
            )
        one_of(self, "precision", Precision)
        _ = self.rates  # its ranges are checked on construction
        if self.batch % self.accumulate:
            raise ValueError(f"accumulate is {self.accumulate}; it must divide batch, which is {self.batch}")

    @property
    def rates(self) -> Schedule:
        """The schedule of the learning rate."""
        if isinstance(self.schedule, Constant | Steps | WarmupCosine):
            return self.schedule
        return Steps(self.schedule)

    def factor(self, epoch: int) -> float:
        """The factor of the learning rate in an epoch, counted from 1; in its first step, where steps differ."""
        return float(self.factors(epoch, 1)[0])

    def factors(self, epoch: int, steps: int) -> Factors:
        """The factor of the learning rate in each step of an epoch, counted from 1: (steps,)."""
        return self.rates.factors(epoch - 1 + np.arange(steps) / steps)

    @property
    def optimiser_name(self) -> str:
        return self.optimiser.name if isinstance(self.optimiser, OptimiserConfig) else self.optimiser
