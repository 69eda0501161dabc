"""How a network is trained, whatever its objective: number of epochs, optimiser, schedule and early stopping.

Light enough for plans: it imports no torch. To add an optimiser, see `tasks.training.optimisers`; a loss or something
to do after a step, `tasks.training.objective`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tasks.ranges import above_zero, check_minimums, one_of

OptimiserName = Literal["adam", "rmsprop"]
Precision = Literal["float32", "float64"]
LEAST = {"epochs": 1, "patience": 0, "batch": 1, "accumulate": 1}
EPSILON = 1e-7


@dataclass(frozen=True)
class Recipe:
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

    epochs: int  # at most
    batch: int
    learning_rate: float
    patience: int = 0
    schedule: tuple[tuple[int, float], ...] = ()
    optimiser: OptimiserName = "adam"
    epsilon: float = EPSILON
    precision: Precision = "float32"
    accumulate: int = 1

    def __post_init__(self) -> None:
        check_minimums(self, LEAST)
        above_zero(self, "learning_rate", "epsilon")
        one_of(self, "optimiser", OptimiserName)
        one_of(self, "precision", Precision)
        epochs = [epoch for epoch, _ in self.schedule]
        if epochs != sorted(set(epochs)) or any(epoch < 1 or not factor > 0 for epoch, factor in self.schedule):
            raise ValueError(
                f"schedule is {self.schedule}; it must be pairs of an epoch from 1, ascending, and a factor above 0"
            )
        if self.batch % self.accumulate:
            raise ValueError(f"accumulate is {self.accumulate}; it must divide batch, which is {self.batch}")

    def factor(self, epoch: int) -> float:
        """The factor of the learning rate in an epoch, counted from 1."""
        passed = [factor for changed, factor in self.schedule if epoch > changed]
        return float(passed[-1]) if passed else 1.0
