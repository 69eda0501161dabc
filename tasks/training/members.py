"""The contract between audits and the training of many models.

    train_many(spec, members)

yields each member's index with its outcome, as it ends, in any order. A member's outcome depends on the spec and on
the member alone, never on the members trained beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tasks.datasets.images import PictureSet
from tasks.numerics import seeds
from tasks.training.recipe import Recipe

if TYPE_CHECKING:
    from torch import Tensor

    from tasks.training.objective import Objective
    from tasks.worker.hardware import MemoryKind


class TrainingError(RuntimeError):
    """A training cannot continue; `exhausted` is the memory that ran out, if that is why."""

    exhausted: MemoryKind | None = None


def not_finite(what: str, where: str, seed: int) -> TrainingError:
    return TrainingError(f"{what} is not finite {where} (seed {seed}); try a lower learning rate")


@dataclass(frozen=True)
class Epoch:
    epoch: int  # from 1
    # In nats: the mean over the epoch's minibatches of their rows' mean loss; where a minibatch's loss is a sum over
    # rows, the mean over all the epoch's rows.
    train_loss: float
    validation_loss: float  # mean over the test split, in nats
    validation_accuracy: float  # NaN where nothing is classified


@dataclass(frozen=True, eq=False)
class State:
    """The state of a training at the end of an epoch, from which it continues as if it had never stopped.

    Its random numbers need no state of their own: they are functions of the seed and of the steps taken.
    """

    history: tuple[Epoch, ...]
    best_epoch: int  # 0 before the first
    steps: int  # minibatches taken
    weights: Mapping[str, NDArray[np.floating]]
    best_weights: Mapping[str, NDArray[np.floating]]
    moments: tuple[Mapping[str, NDArray[np.floating]], ...]  # of the optimiser, each by names of learned weights


@dataclass(frozen=True, eq=False)
class Member:
    """One model to train: its seed, the training images it sees, and the images that replace some of them.

    A chain of links trains one model with stops. A link trains up to epoch `until` (the recipe's last by default) from
    `start`, or from where the member of the same call that it comes `after` (by index) ends, without its state leaving
    the device; the links of a chain differ in nothing else. One that `returns_state` gives the state at its end.
    """

    seed: int
    rows: NDArray[np.int64]  # of the training split, in the order that the epochs' shuffles refer to
    replaced: Mapping[int, NDArray[np.uint8]] = field(default_factory=dict)  # row -> image (h, w, c)
    learning_rate: float | None = None  # None: the recipe's
    start: State | None = None
    until: int | None = None
    after: int | None = None
    returns_state: bool = False


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model: its weights, the epoch they were taken from, and the losses of every epoch."""

    best_epoch: int
    history: tuple[Epoch, ...]
    weights: Mapping[str, NDArray[np.floating]]  # in the recipe's precision
    state: State | None = None
    epsilons: tuple[float, ...] | None = None  # of differential privacy, spent by the end of each epoch


# Called after every epoch with (index of the member, epoch) of each model in a stack that has just ended an epoch, and
# the tensors (models, *shape) as they are; it may read them and must not change them.
Watch = Callable[[Sequence[tuple[int, int]], Mapping[str, "Tensor"]], None]


@dataclass(frozen=True, eq=False)
class Spec:
    """What members share: the objective, the recipe and the images."""

    learning: Objective
    recipe: Recipe
    images: PictureSet
    watch: Watch | None = None


Order = NDArray[np.int32]  # (minibatches, batch), -1 where there is no row


def minibatches(rows: int, batch: int) -> int:
    return -(-rows // batch)


def order(member: Member, epoch: int, batch: int, aliases: Mapping[int, int]) -> Order:
    """The member's rows in the order of that epoch (from 1), the last minibatch padded; `aliases` stand in for rows."""
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
