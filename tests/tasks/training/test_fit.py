"""Fitting a single model: callbacks after epochs, errors, and states to continue from."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from tasks.training.fit import Losses, fit, fit_link, pack_state, shuffled_minibatches, unpack_state
from tasks.training.members import TrainingError
from tasks.worker.compute_context import ComputeContext, use_context
from tests.support.links import linked

TRAINING = "a walk"
SEED = 3


class Walk:
    """A number that grows three times per epoch; the loss of a step is its current value."""

    def __init__(self) -> None:
        self.steps = 0
        self.parts = self.planned_parts = 1
        self.where = torch.zeros(2)

    def take_steps(self, epoch: int) -> Iterator[Tensor]:
        for _ in range(3):
            self.steps += 1
            self.where += torch.tensor([epoch, self.steps])
            yield self.where.sum()

    def mean_loss(self, losses: Losses) -> float:
        return float(losses.mean())

    def arrays(self) -> Mapping[str, Tensor]:
        return {"where": self.where}


def walk(
    epochs: int,
    states: Iterable[bytes] = (),
    recorded: tuple[int, ...] = (),
    index: int | None = 0,
    training: str = TRAINING,
) -> tuple[dict[int, float | None], bytes, Mapping[str, object]]:
    """The losses recorded up to `epochs`, the final state, and the notes."""
    losses: dict[int, float | None] = {}
    fit = partial(fit_link, Walk(), index, training, SEED, epochs, recorded, losses.__setitem__)
    return losses, *linked(fit, states)[1:]


def test_link_continues_exactly_and_records_its_epochs() -> None:
    full_losses, end, noted = walk(5, recorded=(0, 1, 4, 5))
    assert list(full_losses) == [0, 1, 4, 5]
    # the mean of 2, 5 and 9
    assert full_losses[0] is None
    assert full_losses[1] == pytest.approx(16 / 3)
    assert "continued_from" not in noted
    _, state, _ = walk(3)
    continued, final_state, noted = walk(5, [state], recorded=(4, 5))
    assert continued == {4: full_losses[4], 5: full_losses[5]}
    assert final_state == end
    assert noted["continued_from"] == 3
    assert noted["way"] == "loop"
    assert noted["stack"] == 1


def test_unusable_states_are_skipped() -> None:
    (_, first, _), (_, second, _), (_, foreign, _) = walk(1), walk(2), walk(1, training="another walk")
    flipped = bytearray(first)
    flipped[len(first) // 2] ^= 1
    state = unpack_state(first, TRAINING)
    assert state is not None
    other_arrays = [
        {},
        {"where": np.zeros(3, np.float32)},
        {"where": np.zeros(2)},
        {**state.arrays, "more": np.zeros(1, np.float32)},
    ]
    wrong_states = []
    for arrays in other_arrays:
        wrong_states.append(pack_state(replace(state, arrays=arrays), TRAINING))
    pickled = io.BytesIO()
    np.savez(pickled, training=np.array([{}], object))
    unusable = [b"", first[: len(first) // 2], bytes(flipped), foreign, *wrong_states, pickled.getvalue()]
    expected, _, _ = walk(3, recorded=(2, 3))
    for states in ([*unusable, second], [second]):  # the first record is after epoch 2
        losses, _, noted = walk(3, states, recorded=(2, 3))
        assert (expected, False) == (losses, "continued_from" in noted)
    losses, _, noted = walk(3, [*unusable, second, first], recorded=(2, 3))
    assert losses == expected
    assert noted["continued_from"] == 1


def test_training_without_index_ignores_states() -> None:
    _, state, _ = walk(1)
    _, saved_state, noted = walk(2, [state], index=None)
    assert (saved_state, "continued_from" in noted) == (b"", False)


def test_infinite_loss_names_step_and_seed() -> None:
    losses = {1: [1.0, 2.0], 2: [3.0, float("inf")]}
    epochs: list[int] = []
    with pytest.raises(TrainingError, match=r"^loss is not finite at step 14 \(seed 3\); try a lower learning rate$"):
        fit(
            range(1, 4), lambda epoch: map(torch.tensor, losses[epoch]), lambda epoch, _: epochs.append(epoch), SEED, 10
        )
    assert epochs == [1]


def test_epoch_callback_may_end_training() -> None:
    epochs: list[int] = []

    def after_epoch(epoch: int, losses: Losses) -> bool:
        epochs.append(epoch)
        return bool(losses[-1] > 1)

    fit(range(1, 9), lambda epoch: [torch.tensor(0.5 * epoch)], after_epoch, SEED)
    assert epochs == [1, 2, 3]


def test_minibatches_contain_every_row_once_per_epoch() -> None:
    minibatches = []
    for rows in shuffled_minibatches(7, 3, 2, SEED, "some order"):
        minibatches.append(rows.tolist())
    assert list(map(len, minibatches)) == [3, 3, 1, 3, 3, 1]
    epochs = []
    for half in (minibatches[:3], minibatches[3:]):
        epochs.append([row for rows in half for row in rows])
    assert [list(range(7))] * 2 == list(map(sorted, epochs))
    assert epochs[0] != epochs[1]


def test_each_epoch_advances_the_training() -> None:
    advances: list[float] = []
    model = Walk()
    with use_context(ComputeContext(advance=advances.append)):
        fit(range(3, 7), model.take_steps, lambda *_: None, SEED)
    assert advances == [0.25, 0.5, 0.75, 1.0]
