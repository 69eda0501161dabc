"""A state is the same after it was bytes, and bytes of anything else are no state."""

from __future__ import annotations

import dataclasses
import io
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tasks import checkpoints
from tasks.checkpoints import Link
from tasks.training.members import Epoch, State
from tasks.training.states import pack, shaped, start, unpack


def state(epochs: int, best: float = 1.0) -> State:
    history = tuple(Epoch(at, 0.1 * at, 0.2 / at, math.nan if at == 1 else 0.5) for at in range(1, epochs + 1))
    weights = {"w": np.array([[1.0, 2.0]], np.float32), "mean": np.array([3.0])}
    moments = tuple({"w": np.array([[at, at + 0.5]], np.float32)} for at in (7, 8))
    return State(history, max(epochs - 1, 0), 40 + epochs, weights, weights | {"mean": np.array([3.0 * best])}, moments)


def learning(**shapes: tuple[int, ...]) -> Any:
    """A network's weights by their shapes; those whose name begins with m are not learned."""
    weights = {name: SimpleNamespace(shape=shape, learned=name[0] != "m") for name, shape in shapes.items()}
    return SimpleNamespace(weights=weights)


NETWORK = learning(w=(1, 2), mean=(1,))


def told(found: State | None) -> Any:
    assert found is not None
    parts = (found.weights, found.best_weights, *found.moments)
    arrays = [{name: (array.dtype.str, array.tolist()) for name, array in part.items()} for part in parts]
    return repr(found.history), found.best_epoch, found.steps, arrays


@pytest.mark.parametrize("made", [state(0), state(1), state(3), state(3, best=2.0)])
def test_a_state_comes_back_as_it_was(made: State) -> None:
    assert told(made) == told(unpack(pack(made, "this"), "this"))


def test_what_the_best_epoch_shares_with_the_last_is_kept_once() -> None:
    assert len(pack(state(3), "this")) < len(pack(state(3, best=2.0), "this"))


def test_the_bytes_of_another_training_or_of_nothing_are_no_state() -> None:
    data = pack(state(2), "this")
    assert unpack(data, "that") is None
    for broken in (b"", b"not an archive", data[: len(data) // 2], data[:-1]):
        assert unpack(broken, "this") is None
    other = io.BytesIO()
    np.savez(other, something=np.zeros(2))
    assert unpack(other.getvalue(), "this") is None


def test_a_training_goes_on_from_the_nearest_state_that_is_its_own_and_not_too_late() -> None:
    there = [b"none", pack(state(9), "this"), pack(state(6), "that"), pack(state(5), "this")]
    there.append(pack(state(2), "this"))
    with checkpoints.use_links([Link(), Link(given=lambda: there)]):
        assert [5, 9, 2] == [len(told(start(1, "this", NETWORK, end))[0].split("Epoch(")) - 1 for end in (5, 9, 4)]
        assert start(1, "this", NETWORK, 1) is None
        assert start(0, "this", NETWORK, 9) is None
        assert start(1, "this", learning(w=(2, 1), mean=(1,)), 9) is None


@pytest.mark.parametrize(
    ("moments", "fits"),
    [
        ((), True),
        (({"w": np.zeros((1, 2))},), True),
        (({"w": np.zeros((1, 1))}, {"w": np.zeros((1, 2))}), False),
        (({"w": np.zeros(2)},), False),
        (({"w": np.zeros((2, 2))},), False),
        (({"mean": np.zeros(1)},), False),  # not learned
    ],
)
def test_moments_have_their_weights_shapes(moments: tuple[Any, ...], fits: bool) -> None:
    assert fits == shaped(dataclasses.replace(state(1), moments=moments), NETWORK)


@pytest.mark.parametrize(
    ("network", "fits"),
    [
        (NETWORK, True),
        (learning(w=(1, 2)), False),
        (learning(w=(1, 2), mean=(2,)), False),
        (learning(w=(1, 2), mean=(1,), more=(1,)), False),
        (learning(w=(1, 2), v=(1,)), False),
    ],
)
def test_a_state_fits_a_network_of_the_same_weights(network: Any, fits: bool) -> None:
    assert fits is shaped(state(1), network)


def test_the_moments_are_of_the_learned_weights_alone() -> None:
    moments = ({"w": np.zeros((1, 2)), "mean": np.zeros(1)},)
    assert not shaped(dataclasses.replace(state(1), moments=moments), NETWORK)
    assert shaped(dataclasses.replace(state(1), moments=()), NETWORK)
