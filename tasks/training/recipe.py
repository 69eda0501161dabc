"""How a network is trained, whatever it learns: for how long, in which steps, and when it has learnt enough.

Light enough for plans: it imports no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tasks.ranges import above_zero, at_least, one_of

OptimiserName = Literal["adam", "rmsprop"]
Precision = Literal["float32", "float64"]
LEAST = {"epochs": 1, "patience": 0, "batch": 1}


@dataclass(frozen=True)
class Recipe:
    """How every member of a call is trained.

    With `patience` above 0 a training ends after that many epochs without a better validation loss, and gives the best
    epoch's weights; with 0 it gives the last epoch's. `schedule` holds (epoch, factor), epochs ascending: after so many
    epochs the learning rate is the first one times the factor.
    """

    epochs: int  # at most
    batch: int
    learning_rate: float
    patience: int = 0
    schedule: tuple[tuple[int, float], ...] = ()
    optimiser: OptimiserName = "adam"
    epsilon: float = 1e-7
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        at_least(self, LEAST)
        above_zero(self, "learning_rate", "epsilon")
        one_of(self, "optimiser", OptimiserName)
        one_of(self, "precision", Precision)
        check_schedule(self.schedule)

    def factor(self, epoch: int) -> float:
        """What the learning rate is multiplied by in an epoch, counted from 1."""
        passed = [factor for after, factor in self.schedule if epoch > after]
        return passed[-1] if passed else 1.0


def check_schedule(schedule: tuple[tuple[int, float], ...]) -> None:
    """ValueError unless the factors of the learning rate can be followed."""
    changes = [epoch for epoch, _ in schedule]
    if changes != sorted(set(changes)) or any(epoch < 1 or not factor > 0 for epoch, factor in schedule):
        raise ValueError(
            f"schedule is {schedule}; it must be pairs of an epoch from 1, ascending, and a factor above 0"
        )
