"""Training states as bytes, so that another process can continue a training where one stopped.

The format is NumPy's uncompressed archive. A state names the training it belongs to and is not used for any other.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks import checkpoints
from tasks.training.members import Epoch, State
from tasks.training.objective import Objective

Arrays = Mapping[str, NDArray[np.floating]]

UNREADABLE = (zipfile.BadZipFile, ValueError, KeyError, TypeError, EOFError, OSError)


def start(index: int, training: str, learning: Objective, latest: int) -> State | None:
    """The nearest checkpoint that a call's job may continue from; None where it starts from scratch.

    It must be of this training (`packed` says which), of a network with such weights, and at epoch `latest` at most:
    a model cannot be evaluated after an epoch that has already passed.
    """
    for data in checkpoints.earlier_checkpoints(index):
        state = unpack(data, training)
        if state is not None and len(state.history) <= latest and shaped(state, learning):
            return state
    return None


def pack(state: State, training: str) -> bytes:
    """The state as bytes; `training` identifies the training by everything that bears on it except its length."""
    arrays: dict[str, NDArray[Any]] = {
        "training": _digest(training),
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


def unpack(data: bytes, training: str) -> State | None:
    """The state in these bytes; None where they hold no state, or the state of another training."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            arrays: dict[str, NDArray[Any]] = {name: file[name] for name in file.files}
        if bytes(arrays["training"]) != bytes(_digest(training)):
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


def shaped(state: State, learning: Objective) -> bool:
    """Whether the state fits a network: weights of the same names and shapes, and moments of learned ones."""
    weights = {name: tuple(weight.shape) for name, weight in learning.weights.items()}
    learned = {name: weights[name] for name, weight in learning.weights.items() if weight.learned}
    return weights == _shapes(state.weights) and all(
        learned.get(name) == shape for moment in state.moments for name, shape in _shapes(moment).items()
    )


def _other(state: State) -> Arrays:
    """The best epoch's weights that differ from the last epoch's; empty for a training without patience."""
    now = state.weights  # compared by their bits: 0.0 and -0.0 are not the same
    return {name: best for name, best in state.best_weights.items() if best.tobytes() != now[name].tobytes()}


def _part(arrays: Mapping[str, NDArray[Any]], part: str) -> dict[str, NDArray[Any]]:
    start = part + "/"
    return {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}


def _shapes(arrays: Arrays) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in arrays.items()}


def _digest(training: str) -> NDArray[np.uint8]:
    return np.frombuffer(hashlib.sha256(training.encode()).digest(), np.uint8)
