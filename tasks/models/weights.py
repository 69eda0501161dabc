"""A network's weights by name, in memory and in the MODEL table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Weights = Mapping[str, NDArray[np.float32]]


def rows(weights: Weights) -> list[dict[str, Any]]:
    """The weights as the `weights` column of MODEL holds them, in their order."""
    return [
        {"name": name, "shape": list(values.shape), "values": np.ascontiguousarray(values, "<f4").tobytes()}
        for name, values in weights.items()
    ]


def weights_of(model: pa.Table, row: int = 0) -> dict[str, NDArray[np.float32]]:
    """The weights in one row of a MODEL table, read-only."""
    cells = model.column("weights")[row].as_py()
    return {cell["name"]: np.frombuffer(cell["values"], "<f4").reshape(cell["shape"]) for cell in cells}
