"""States of a training of one model as bytes, so that another process continues where one stopped.

The format is NumPy's uncompressed archive, read without pickles. A state names the training it belongs to and is not
used for any other.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks import checkpoints

Arrays = Mapping[str, NDArray[np.float32]]
UNREADABLE = (zipfile.BadZipFile, ValueError, KeyError, TypeError, EOFError, OSError)


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


def digest(training: str) -> NDArray[np.uint8]:
    return np.frombuffer(hashlib.sha256(training.encode()).digest(), np.uint8)
