"""Train one model epoch by epoch, record its losses, and pass its state between processes.

`tasks.training.trainer` trains many models at once. A state is an uncompressed NumPy archive, which is read without
pickle. It contains the digest of its training and is not used for any other.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasks.numerics import seeds
from tasks.training.chains import UNREADABLE, digest
from tasks.training.members import not_finite
from tasks.training.sharded_tensors import copy_values, whole_tensor
from tasks.worker import checkpoints, compute_context

Losses = NDArray[np.float64]  # one per step
Arrays = Mapping[str, NDArray[np.float32]]


def fit(
    epochs: range,
    take_steps: Callable[[int], Iterable[Tensor]],
    after_epoch: Callable[[int, Losses], object],
    seed: int,
    steps: int = 0,
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Train a model for these epochs, counted from 1, after `steps` earlier steps.

    `take_steps(epoch)` takes the steps of an epoch and yields the loss of each, which the device may still be
    computing. `after_epoch(epoch, losses)` is called after each epoch. If it returns True, training stops. `facts`
    are added to the notes on the result. Raises TrainingError if a loss is not finite.
    """
    seconds = 0.0
    before = steps
    for epoch in epochs:
        start_time = time.perf_counter()
        losses = read_losses(take_steps(epoch), seed, steps)
        steps += len(losses)
        seconds += time.perf_counter() - start_time
        if after_epoch(epoch, losses) is True:
            break
        compute_context.advance((epoch + 1 - epochs.start) / len(epochs))
    rate = round((steps - before) / max(seconds, 1e-9), 3)
    notes = dict(facts or {})
    if epochs.start > 1:
        notes["continued_from"] = epochs.start - 1
    compute_context.note(way="loop", stack=1, steps_per_second=rate, **notes)


def read_losses(losses: Iterable[Tensor], seed: int, before: int) -> Losses:
    """Take all steps and return their losses as numbers. Raises TrainingError if a loss is not finite."""
    values = torch.stack(list(losses)).double().cpu().numpy()
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise not_finite("loss", f"at step {before + int(bad[0]) + 1}", seed)
    return values


def shuffled_minibatches(count: int, batch: int, epochs: int, seed: int, stream: str) -> Iterator[Tensor]:
    """Yield the rows of every minibatch, reshuffled for each epoch. The last minibatch of an epoch may be smaller."""
    for epoch in range(epochs):
        yield from torch.split(torch.from_numpy(seeds.generator(seed, stream, epoch).permutation(count)), batch)


# Links of a chain


class Resumable(Protocol):
    """A model in training that another process can continue to train."""

    steps: int  # number of steps taken so far
    parts: int  # number of parts in which a step is computed

    @property
    def planned_parts(self) -> int:
        """The number of parts that the configuration states."""

    def take_steps(self, epoch: int) -> Iterable[Tensor]:
        """Take the steps of an epoch, yielding the loss of each."""

    def mean_loss(self, losses: Losses) -> float:
        """Return the loss of an epoch, in nats, from the losses of its steps."""

    def arrays(self) -> Mapping[str, Tensor]:
        """Return all arrays of a state by name. Changing them in place changes the model."""


def fit_link(
    model: Resumable,
    index: int | None,
    training: str,
    seed: int,
    epochs: int,
    recorded: tuple[int, ...],
    record: Callable[[int, float | None], None],
) -> None:
    """Train up to epoch `epochs` from the latest state of the job with this index, and store a state if requested.

    `training` identifies the training by all of its settings except its length. `record(epoch, loss)` is called after
    the epochs in `recorded`, where 0 stands for before training. Without an index, there are no states.
    """
    latest = min(recorded) - 1 if recorded else epochs  # a state after the first recorded epoch is unusable
    shapes = {name: tuple(array.shape) for name, array in model.arrays().items()}
    if index is None:
        state = None
    else:
        state = nearest(index, training, latest, shapes)
    losses: list[float] = []
    if state is not None:
        losses = list(state.losses)
        model.steps = state.steps
        with torch.no_grad():
            for name, array in model.arrays().items():
                copy_values(array, state.arrays[name])
    if 0 in recorded:
        record(0, None)

    def after_epoch(epoch: int, step_losses: Losses) -> None:
        losses.append(model.mean_loss(step_losses))
        if epoch in recorded:
            record(epoch, losses[-1])

    facts = {}
    if model.parts != model.planned_parts:
        facts = {"parts": model.parts}
    fit(range(len(losses) + 1, epochs + 1), model.take_steps, after_epoch, seed, model.steps, facts)
    if index is not None and checkpoints.is_state_requested(index):
        arrays = {}
        for name, array in model.arrays().items():
            arrays[name] = np.ascontiguousarray(whole_tensor(array.detach()).cpu().numpy())
        checkpoints.leave(index, pack_state(TrainingState(tuple(losses), model.steps, arrays), training))


@dataclass(frozen=True, eq=False)
class TrainingState:
    """A training after `len(losses)` epochs: losses, number of steps, and weights and moments by name."""

    losses: tuple[float, ...]
    steps: int
    arrays: Arrays


def nearest(index: int, training: str, latest: int, shapes: Mapping[str, tuple[int, ...]]) -> TrainingState | None:
    """Return the latest checkpoint from which a call's job may continue, or None if it starts from scratch.

    The checkpoint must belong to this training, be at most at epoch `latest`, and contain arrays of these names and
    shapes.
    """
    for data in checkpoints.earlier_checkpoints(index):
        state = unpack_state(data, training)
        if state is None or len(state.losses) > latest:
            continue
        if dict(shapes) == {name: array.shape for name, array in state.arrays.items()}:
            return state
    return None


def pack_state(state: TrainingState, training: str) -> bytes:
    """Serialise the state. `training` identifies the training by all of its settings except its length."""
    file = io.BytesIO()
    arrays = {f"array {name}": array for name, array in state.arrays.items()}
    losses = np.array(state.losses, np.float64)
    steps = np.array(state.steps, np.int64)
    np.savez(file, training=digest(training), losses=losses, steps=steps, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def unpack_state(data: bytes, training: str) -> TrainingState | None:
    """Return the state in these bytes, or None if they contain no state or that of another training."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            if file["training"].tobytes() != digest(training).tobytes():
                return None
            arrays = {}
            for name in file.files:
                if name.startswith("array "):
                    arrays[name.removeprefix("array ")] = file[name]
            if any(array.dtype != np.float32 for array in arrays.values()):
                return None
            return TrainingState(tuple(map(float, file["losses"])), int(file["steps"]), arrays)
    except UNREADABLE:
        return None
