"""The table of an encoder's weights after some epochs of its training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Weights = Mapping[str, NDArray[np.float32]]

# One row per recorded epoch of a training or of one of its links.
SNAPSHOTS = pa.schema(
    [
        ("epoch", pa.int64()),  # number of trained epochs; 0: before training
        ("train_loss", pa.float64()),  # mean over the epoch's steps; null before training
        (
            "weights",  # parameters, and means and variances of batch norm
            pa.list_(
                pa.struct(
                    [
                        ("name", pa.string()),
                        ("shape", pa.list_(pa.int32())),
                        ("values", pa.large_binary()),  # little-endian float32, row-major
                    ]
                )
            ),
        ),
    ]
)


def row(epoch: int, train_loss: float | None, weights: Weights) -> dict[str, Any]:
    """Return one row of SNAPSHOTS."""
    from tasks.models.networks import weight_rows

    return {"epoch": epoch, "train_loss": train_loss, "weights": weight_rows(weights)}


def epochs(snapshots: pa.Table) -> list[int]:
    """Return the epoch of each row."""
    epoch_list: list[int] = snapshots["epoch"].to_pylist()
    return epoch_list


def weights_of(snapshots: pa.Table, row: int) -> dict[str, NDArray[np.float32]]:
    """Return the weights in one row by name, read-only.

    Read one row at a time, since the weights of a large network need a gigabyte.
    """
    from tasks.models.networks import weights_of_model

    return weights_of_model(snapshots, row)
