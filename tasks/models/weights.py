"""A network and its weights by name, in memory and in the MODEL table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from torch import Tensor

from tasks.models.networks import Architecture
from tasks.models.regularisers import Regularisers

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


def model_weights(tensors: Mapping[str, Tensor], model: int) -> dict[str, NDArray[np.float32]]:
    """A copy of one model's weights, from tensors (models, *shape) by name on any device."""
    values = {name: tensor[model].detach().cpu().numpy() for name, tensor in tensors.items()}
    return {name: array.astype(np.float32) for name, array in values.items()}  # astype copies


def network_row(architecture: Architecture) -> dict[str, Any]:
    """The network as the `network` column of MODEL holds it."""
    row = {
        "name": architecture.name,
        "shape": list(architecture.shape),
        "classes": architecture.classes,
        "dropout": architecture.regularisers.dropout,
        "batch_norm": architecture.regularisers.batch_norm,
    }
    return row if architecture.width == 1 else row | {"width": architecture.width}  # see `schemas.of_width`


def architecture_of(model: pa.Table, row: int = 0) -> Architecture:
    """The network in one row of a MODEL table."""
    cell = model.column("network")[row].as_py()
    height, width, channels = cell["shape"]
    regularisers = Regularisers(cell["dropout"], cell["batch_norm"])
    shape, factor = (height, width, channels), cell.get("width", 1.0)
    return Architecture(cell["name"], shape, cell["classes"], regularisers, factor)
