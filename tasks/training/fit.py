"""The fit of one model, epoch by epoch: its losses, what is noted of it, and its state between processes.

Many models at once have a loop of their own (`tasks.training.trainer`). A state is NumPy's uncompressed archive, read
without pickles. It names the training it belongs to and is not used for any other.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasks.numerics import seeds
from tasks.training.chains import UNREADABLE, digest
from tasks.training.members import not_finite
from tasks.worker import checkpoints, compute_context

Losses = NDArray[np.float64]  # one of each step
Arrays = Mapping[str, NDArray[np.float32]]


def fit(
    epochs: range,
    take_steps: Callable[[int], Iterable[Tensor]],
    after_epoch: Callable[[int, Losses], object],
    seed: int,
    steps: int = 0,
) -> None:
    """Train a model through these epochs, counted from 1, after so many steps.

    `take_steps(epoch)` takes an epoch's steps and yields the loss of each, which the device may still be computing.
    `after_epoch(epoch, losses)` follows each epoch; where it returns True, the training is over. TrainingError where a
    loss is not finite.
    """
    seconds, before = 0.0, steps
    for epoch in epochs:
        began = time.perf_counter()
        losses = read_losses(take_steps(epoch), seed, steps)
        steps += len(losses)
        seconds += time.perf_counter() - began
        if after_epoch(epoch, losses) is True:
            break
    rate = round((steps - before) / max(seconds, 1e-9), 3)
    continued = {"continued_from": epochs.start - 1} if epochs.start > 1 else {}
    compute_context.note(way="loop", stack=1, steps_per_second=rate, **continued)


def read_losses(losses: Iterable[Tensor], seed: int, before: int) -> Losses:
    """The losses of steps as numbers, once all are taken; TrainingError where one of them is not finite."""
    found = torch.stack(list(losses)).double().cpu().numpy()
    bad = np.flatnonzero(~np.isfinite(found))
    if len(bad):
        raise not_finite("loss", f"at step {before + int(bad[0]) + 1}", seed)
    return found


def shuffled_minibatches(count: int, batch: int, epochs: int, seed: int, stream: str) -> Iterator[Tensor]:
    """The rows of every minibatch of so many epochs, each in an order of its own; an epoch's last may be smaller."""
    for epoch in range(epochs):
        yield from torch.split(torch.from_numpy(seeds.generator(seed, stream, epoch).permutation(count)), batch)


# Links of a chain


class Resumable(Protocol):
    """A model in training that another process can continue."""

    steps: int  # taken so far

    def take_steps(self, epoch: int) -> Iterable[Tensor]:
        """Take the steps of an epoch; yield the loss of each."""

    def mean_loss(self, losses: Losses) -> float:
        """The loss of an epoch with these losses of its steps, in nats."""

    def arrays(self) -> Mapping[str, Tensor]:
        """All that a state holds, by name; what changes these changes the model."""


def fit_link(
    model: Resumable,
    index: int | None,
    training: str,
    seed: int,
    epochs: int,
    recorded: tuple[int, ...],
    record: Callable[[int, float | None], None],
) -> None:
    """Train up to epoch `epochs`, from the nearest state given to the job of this index, and leave a state if wanted.

    `training` identifies the training by everything that bears on it except its length. `record(epoch, loss)` follows
    the epochs `recorded`; 0 is before training. Without an index there are no states.
    """
    latest = min(recorded) - 1 if recorded else epochs  # no state beyond the first epoch that is recorded is of use
    shapes = {name: tuple(array.shape) for name, array in model.arrays().items()}
    state = None if index is None else nearest(index, training, latest, shapes)
    losses: list[float] = []
    if state is not None:
        losses, model.steps = list(state.losses), state.steps
        with torch.no_grad():
            for name, array in model.arrays().items():
                array.copy_(torch.from_numpy(state.arrays[name].copy()))
    if 0 in recorded:
        record(0, None)

    def after_epoch(epoch: int, found: Losses) -> None:
        losses.append(model.mean_loss(found))
        if epoch in recorded:
            record(epoch, losses[-1])

    fit(range(len(losses) + 1, epochs + 1), model.take_steps, after_epoch, seed, model.steps)
    if index is not None and checkpoints.wanted(index):
        held = {name: np.ascontiguousarray(array.detach().cpu().numpy()) for name, array in model.arrays().items()}
        checkpoints.leave(index, pack_state(TrainingState(tuple(losses), model.steps, held), training))


@dataclass(frozen=True, eq=False)
class TrainingState:
    """A training after `len(losses)` epochs: each one's loss, the steps taken, weights and moments by name."""

    losses: tuple[float, ...]
    steps: int
    arrays: Arrays


def nearest(index: int, training: str, latest: int, shapes: Mapping[str, tuple[int, ...]]) -> TrainingState | None:
    """The nearest checkpoint that a call's job may continue from; None where it starts from its beginning.

    It must be of this training, after epoch `latest` at most, and hold arrays of these names and shapes.
    """
    for data in checkpoints.earlier_checkpoints(index):
        state = unpack_state(data, training)
        if state is None or len(state.losses) > latest:
            continue
        if dict(shapes) == {name: array.shape for name, array in state.arrays.items()}:
            return state
    return None


def pack_state(state: TrainingState, training: str) -> bytes:
    """The state as bytes; `training` identifies the training by everything that bears on it except its length."""
    file = io.BytesIO()
    arrays = {f"array {name}": array for name, array in state.arrays.items()}
    losses, steps = np.array(state.losses, np.float64), np.array(state.steps, np.int64)
    np.savez(file, training=digest(training), losses=losses, steps=steps, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def unpack_state(data: bytes, training: str) -> TrainingState | None:
    """The state in these bytes; None where they hold no state, or the state of another training."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            if file["training"].tobytes() != digest(training).tobytes():
                return None
            arrays = {name.removeprefix("array "): file[name] for name in file.files if name.startswith("array ")}
            if any(array.dtype != np.float32 for array in arrays.values()):
                return None
            return TrainingState(tuple(map(float, file["losses"])), int(file["steps"]), arrays)
    except UNREADABLE:
        return None
