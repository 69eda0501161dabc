"""Chains split a long training into links, jobs for "this training up to epoch e" that continue from earlier links.

A link has the same config with fewer `epochs`. Its result does not depend on the state from which it continues: on a
CPU, a chain equals the unbroken training bit by bit, even if training stopped early in an earlier link. States are
passed between processes as uncompressed NumPy archives. Each contains the digest of its training and is not used for
any other.

Planning a chain does not import torch.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tasks.contract.job import Function, Job
from tasks.training.members import Epoch, Member, Spec, State
from tasks.training.recipe import depends_on_length
from tasks.worker import checkpoints

if TYPE_CHECKING:
    from tasks.training.objective import Objective
    from tasks.training.trainer import Outcome

Part = Callable[[Any, int, int], Any]


# Planning


def up_to(config: Any, before: int, end: int) -> Any:  # noqa: ARG001 - records no epochs
    """Return the config of the training up to epoch `end`."""
    return replace(config, epochs=end)


def recording_up_to(config: Any, before: int, end: int) -> Any:
    """Return the config of the training up to epoch `end`, recording only requested epochs after epoch `before`."""
    first = -1 if before == 0 else before
    recorded = tuple(epoch for epoch in config.asked if first < epoch <= end)
    return replace(config, epochs=end, recorded=recorded or None)


def recorded_conflicts(recorded: tuple[int, ...] | None, epochs: int, first: int = 0) -> Iterator[str]:
    """Yield an error unless `recorded` holds ascending epochs from `first` (0: untrained) to `epochs`."""
    recorded_epochs = list(recorded or ())
    if recorded_epochs != sorted(set(recorded_epochs)) or any(
        not first <= epoch <= epochs for epoch in recorded_epochs
    ):
        yield f"recorded is {recorded}; it must be epochs from {first} to {epochs}, ascending"


def chain(
    function: Function, config: Any, link: int, inputs: tuple[Job, ...] = (), part: Part = up_to
) -> tuple[Job, ...]:
    """Plan the training as jobs of `link` epochs each (0: a single job), in order. All jobs are computed.

    A training whose first epochs depend on its length is a single job.

    `part(config, before, end)` is the config of the link from epoch `before` to epoch `end`.
    """
    if not 0 < link < config.epochs or depends_on_length(getattr(config, "optimiser", "")):
        return (Job(function, config, inputs),)
    links: list[Job] = []
    for before in range(0, config.epochs, link):
        end = min(before + link, config.epochs)
        links.append(Job(function, part(config, before, end), inputs, after=links[-1] if links else None, waits=True))
    return tuple(links)


# Training


def without_length(config: Any) -> Any:
    """Return a config that is equal for trainings of which the shorter one is the beginning of the longer one."""
    return config if depends_on_length(config.optimiser) else replace(config, epochs=1)


@dataclass(frozen=True)
class Linked:
    """The states that a member of a call may continue from: states of the same training, up to epoch `latest`.

    `training` identifies the training by all of its settings except its length.
    """

    training: str
    latest: int


def train_chains(spec: Spec, members: Mapping[int, Member], linked: Mapping[int, Linked]) -> Iterator[Outcome]:
    """Run `trainer.train_by_index` for members that continue from their jobs' checkpoints.

    The keys of `members` and `linked` are job indices within the call. Requested states are stored before the outcomes
    are yielded.
    """
    from tasks.training import trainer

    going_on = {
        index: replace(
            member,
            start=nearest_state(index, linked[index].training, spec.learning, linked[index].latest),
            returns_state=checkpoints.is_state_requested(index),
        )
        for index, member in members.items()
    }
    for index, outcome in trainer.train_by_index(spec, going_on):
        if not isinstance(outcome, Exception) and outcome.state is not None:
            checkpoints.leave(index, pack_state(outcome.state, linked[index].training))
        yield index, outcome


Arrays = Mapping[str, NDArray[np.floating]]

UNREADABLE = (zipfile.BadZipFile, ValueError, KeyError, TypeError, EOFError, OSError)


def nearest_state(index: int, training: str, learning: Objective, latest: int) -> State | None:
    """Return the latest checkpoint from which a call's job may continue, or None if it starts from scratch.

    The checkpoint must belong to this training and to a network with these weights. It may be at most at epoch
    `latest`, since a model that has passed an epoch can no longer be evaluated at it.
    """
    for data in checkpoints.earlier_checkpoints(index):
        state = unpack_state(data, training)
        if state is not None and len(state.history) <= latest and fits_network(state, learning):
            return state
    return None


def pack_state(state: State, training: str) -> bytes:
    """Serialise the state. `training` identifies the training by all of its settings except its length."""
    arrays: dict[str, NDArray[Any]] = {
        "training": digest(training),
        "history": np.array([astuple(epoch) for epoch in state.history], np.float64).reshape(-1, 4),
        "progress": np.array([state.best_epoch, state.steps], np.int64),
    }
    parts: dict[str, Arrays] = {"weights": state.weights, "best": _other(state)}
    parts |= {f"moment {number}": moment for number, moment in enumerate(state.moments)}
    for part, values in parts.items():
        arrays |= {f"{part}/{name}": array for name, array in values.items()}
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def unpack_state(data: bytes, training: str) -> State | None:
    """Return the state in these bytes, or None if they contain no state or that of another training."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            arrays: dict[str, NDArray[Any]] = {name: file[name] for name in file.files}
        if bytes(arrays["training"]) != bytes(digest(training)):
            return None
        history = tuple(Epoch(int(row[0]), *map(float, row[1:])) for row in arrays["history"])
        best_epoch, steps = map(int, arrays["progress"])
        weights = _part(arrays, "weights")
        moments: list[Arrays] = []
        while moment := _part(arrays, f"moment {len(moments)}"):
            moments.append(moment)
        return State(history, best_epoch, steps, weights, {**weights, **_part(arrays, "best")}, tuple(moments))
    except UNREADABLE:
        return None


def fits_network(state: State, learning: Objective) -> bool:
    """Return whether the state has this network's weights (names and shapes) and the moments of its learned weights."""
    weights = {name: tuple(weight.shape) for name, weight in learning.weights.items()}
    learned = {name: weights[name] for name, weight in learning.weights.items() if weight.learned}
    return weights == _shapes(state.weights) and all(
        learned.get(name) == shape for moment in state.moments for name, shape in _shapes(moment).items()
    )


def _other(state: State) -> Arrays:
    """Return the best epoch's weights that differ from the last epoch's. Empty for a training without patience."""
    weights = state.weights  # compared bitwise, so that 0.0 and -0.0 differ
    result = {}
    for name, best in state.best_weights.items():
        if best.tobytes() != weights[name].tobytes():
            result[name] = best
    return result


def _part(arrays: Mapping[str, NDArray[Any]], part: str) -> dict[str, NDArray[Any]]:
    prefix = part + "/"
    result = {}
    for name, array in arrays.items():
        if name.startswith(prefix):
            result[name.removeprefix(prefix)] = array
    return result


def _shapes(arrays: Arrays) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in arrays.items()}


def digest(training: str) -> NDArray[np.uint8]:
    return np.frombuffer(hashlib.sha256(training.encode()).digest(), np.uint8)
