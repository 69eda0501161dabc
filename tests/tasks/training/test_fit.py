"""The fit of a single model: what follows its epochs, what ends it, and the states that it continues from."""

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
from tests.support.links import linked

TRAINING, SEED = "a walk", 3


class Walk:
    """A number that is added to three times an epoch; the loss of a step is where it has come to."""

    def __init__(self) -> None:
        self.steps, self.where = 0, torch.zeros(2)

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
    given: Iterable[bytes] = (),
    recorded: tuple[int, ...] = (),
    index: int | None = 0,
    training: str = TRAINING,
) -> tuple[dict[int, float | None], bytes, Mapping[str, object]]:
    """What is recorded up to so many epochs, the state at the end, and what is noted."""
    losses: dict[int, float | None] = {}
    fit = partial(fit_link, Walk(), index, training, SEED, epochs, recorded, losses.__setitem__)
    return losses, *linked(fit, given)[1:]


def test_a_link_goes_on_as_if_it_had_never_stopped_and_records_its_own_epochs() -> None:
    whole, end, noted = walk(5, recorded=(0, 1, 4, 5))
    assert list(whole) == [0, 1, 4, 5]
    assert (None, pytest.approx(16 / 3)) == (whole[0], whole[1])  # the mean of 2, 5 and 9
    assert "continued_from" not in noted
    _, state, _ = walk(3)
    continued, again, noted = walk(5, [state], recorded=(4, 5))
    assert ({4: whole[4], 5: whole[5]}, end) == (continued, again)
    assert (noted["continued_from"], noted["way"], noted["stack"]) == (3, "loop", 1)


def test_states_that_are_damaged_foreign_other_or_too_late_are_passed_over() -> None:
    (_, first, _), (_, second, _), (_, foreign, _) = walk(1), walk(2), walk(1, training="another walk")
    flipped = bytearray(first)
    flipped[len(first) // 2] ^= 1
    state = unpack_state(first, TRAINING)
    assert state is not None
    others = [
        {},
        {"where": np.zeros(3, np.float32)},
        {"where": np.zeros(2)},
        {**state.arrays, "more": np.zeros(1, np.float32)},
    ]
    wrong = [pack_state(replace(state, arrays=arrays), TRAINING) for arrays in others]
    pickled = io.BytesIO()
    np.savez(pickled, training=np.array([{}], object))
    unusable = [b"", first[: len(first) // 2], bytes(flipped), foreign, *wrong, pickled.getvalue()]
    expected, _, _ = walk(3, recorded=(2, 3))
    for given in ([*unusable, second], [second]):  # it is first recorded after epoch 2
        found, _, noted = walk(3, given, recorded=(2, 3))
        assert (expected, False) == (found, "continued_from" in noted)
    found, _, noted = walk(3, [*unusable, second, first], recorded=(2, 3))
    assert (expected, 1) == (found, noted["continued_from"])


def test_without_an_index_no_state_is_taken_and_none_is_left() -> None:
    _, state, _ = walk(1)
    _, left, noted = walk(2, [state], index=None)
    assert (left, "continued_from" in noted) == (b"", False)


def test_a_loss_that_is_not_finite_ends_the_training_with_its_step_and_seed() -> None:
    losses = {1: [1.0, 2.0], 2: [3.0, float("inf")]}
    seen: list[int] = []
    with pytest.raises(TrainingError, match=r"^loss is not finite at step 14 \(seed 3\); try a lower learning rate$"):
        fit(range(1, 4), lambda epoch: map(torch.tensor, losses[epoch]), lambda epoch, _: seen.append(epoch), SEED, 10)
    assert seen == [1]


def test_what_follows_an_epoch_may_end_the_training() -> None:
    seen: list[int] = []

    def after_epoch(epoch: int, losses: Losses) -> bool:
        seen.append(epoch)
        return bool(losses[-1] > 1)

    fit(range(1, 9), lambda epoch: [torch.tensor(0.5 * epoch)], after_epoch, SEED)
    assert seen == [1, 2, 3]


def test_minibatches_hold_every_row_once_an_epoch_in_another_order() -> None:
    made = [rows.tolist() for rows in shuffled_minibatches(7, 3, 2, SEED, "some order")]
    assert list(map(len, made)) == [3, 3, 1, 3, 3, 1]
    epochs = [[row for rows in half for row in rows] for half in (made[:3], made[3:])]
    assert [list(range(7))] * 2 == list(map(sorted, epochs))
    assert epochs[0] != epochs[1]
