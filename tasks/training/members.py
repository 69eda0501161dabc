"""The contract between audits and the training of many models.

    train_many(spec, members)

yields each member's index with its outcome when it ends, in any order. The outcome depends only on the spec and the
member, never on the other members.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tasks.datasets.images import Splits
from tasks.numerics import seeds
from tasks.training.recipe import Recipe

if TYPE_CHECKING:
    from torch import Tensor

    from tasks.training.objective import Objective
    from tasks.worker.hardware import MemoryKind


class TrainingError(RuntimeError):
    """A training cannot continue. If it ran out of memory, `exhausted` is the kind of memory."""

    exhausted: MemoryKind | None = None


def not_finite(quantity: str, moment: str, seed: int) -> TrainingError:
    return TrainingError(f"{quantity} is not finite {moment} (seed {seed}); try a lower learning rate")


@dataclass(frozen=True)
class Epoch:
    epoch: int  # counted from 1
    # In nats: the mean over minibatches of the mean loss of their rows. If a minibatch's loss is a sum over rows, it is
    # the mean over all rows of the epoch.
    train_loss: float
    validation_loss: float  # mean over the test split, in nats
    validation_accuracy: float  # NaN without classification


@dataclass(frozen=True, eq=False)
class State:
    """The state of a training after an epoch, from which training continues exactly as if it had not been interrupted.

    Random numbers have no state: they are functions of the seed and the number of steps.
    """

    history: tuple[Epoch, ...]
    best_epoch: int  # 0 before the first epoch
    steps: int  # number of minibatches processed
    weights: Mapping[str, NDArray[np.floating]]
    best_weights: Mapping[str, NDArray[np.floating]]
    moments: tuple[Mapping[str, NDArray[np.floating]], ...]  # moments of the optimiser, by names of learned weights


@dataclass(frozen=True, eq=False)
class Member:
    """One model to train: its seed, its training images, and replacements for some of these images.

    A chain trains one model in several links. A link trains up to epoch `until` (default: the recipe's last). It
    continues from the state `start`, or from the end of the member `after` (an index) in the same call, whose state
    then stays on the device. Apart from this, the links of a chain are equal. With `returns_state`, the outcome
    contains the final state.
    """

    seed: int
    rows: NDArray[np.int64]  # of the training split; each epoch shuffles this order
    replaced: Mapping[int, NDArray[np.uint8]] = field(default_factory=dict)  # row -> image (h, w, c)
    learning_rate: float | None = None  # None: the recipe's rate
    start: State | None = None
    until: int | None = None
    after: int | None = None
    returns_state: bool = False


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model: its weights, the epoch they are from, and the losses of every epoch."""

    best_epoch: int
    history: tuple[Epoch, ...]
    weights: Mapping[str, NDArray[np.floating]]  # float32, or float64 if that is the recipe's precision
    state: State | None = None
    epsilons: tuple[float, ...] | None = None  # of differential privacy, spent by the end of each epoch


# Called at the end of every epoch with (member index, epoch) of each model of a stack that has finished an epoch, and
# with the tensors (models, *shape), which it must not change.
Watch = Callable[[Sequence[tuple[int, int]], Mapping[str, "Tensor"]], None]


@dataclass(frozen=True, eq=False)
class Spec:
    """What all members share: the objective, the recipe and the images.

    `divided` is the number of pieces into which each of the recipe's parts of a step is divided further, for lack of
    memory. It does not affect results, except for rounding.
    """

    learning: Objective
    recipe: Recipe
    images: Splits
    watch: Watch | None = None
    divided: int = 1

    @property
    def parts(self) -> int:
        """The number of parts in which a step is computed."""
        return self.recipe.accumulate * self.divided


Order = NDArray[np.int32]  # (minibatches, batch), -1 for padding


def minibatches(rows: int, batch: int) -> int:
    return -(-rows // batch)


def order(member: Member, epoch: int, batch: int, aliases: Mapping[int, int]) -> Order:
    """Return the member's rows in the order of an epoch (from 1), with padding in the last minibatch.

    `aliases` maps rows to the rows that replace them.
    """
    shuffle = seeds.generator(member.seed, "batch order", epoch).permutation(len(member.rows))
    rows = member.rows[shuffle]
    if aliases:
        stands_in = np.arange(rows.max() + 1)
        for row, alias in aliases.items():
            if row < len(stands_in):
                stands_in[row] = alias
        rows = stands_in[rows]
    padded = np.full(minibatches(len(rows), batch) * batch, -1, np.int32)
    padded[: len(rows)] = rows
    return padded.reshape(-1, batch)
