"""Arrow schemas shared by audits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

# One row per number that an audit reports. Missing values are null.
SUMMARY = pa.schema(
    [
        ("metric", pa.string()),
        ("setting", pa.string()),  # the varied fields, as JSON
        ("estimate", pa.float64()),
        ("low", pa.float64()),  # 95 % interval
        ("high", pa.float64()),
        ("n", pa.int64()),
        ("unit", pa.string()),  # what n counts: the independent training run if there are several
        ("null", pa.float64()),  # expected estimate if nothing is memorised
        ("p_value", pa.float64()),
        ("published", pa.float64()),  # the paper's number, if data and network are those of the paper
    ]
)

# One row: a trained network, the epoch of its weights, and its training history.
MODEL = pa.schema(
    [
        ("seed", pa.int64()),
        (
            "network",
            pa.struct(
                [
                    ("name", pa.string()),
                    ("shape", pa.list_(pa.int32())),  # image shape: height, width, channels
                    ("classes", pa.int32()),
                    ("dropout", pa.bool_()),
                    ("batch_norm", pa.bool_()),
                ]
            ),
        ),
        ("epochs", pa.int32()),  # number of epochs trained
        ("best_epoch", pa.int32()),  # epoch of the weights, counted from 1
        (
            "history",
            pa.list_(
                pa.struct(
                    [
                        ("epoch", pa.int32()),
                        ("train_loss", pa.float64()),  # mean over the epoch's batches, in nats
                        ("validation_loss", pa.float64()),
                        ("validation_accuracy", pa.float64()),
                    ]
                )
            ),
        ),
        (
            "weights",
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

# A MODEL trained with differential privacy, with the epsilon spent by the end of each epoch.
PRIVATE_MODEL = pa.schema([*MODEL, ("epsilons", pa.list_(pa.float64()))])


def add_width(model: pa.Schema, width: float) -> pa.Schema:
    """Add the network width to the schema of a MODEL, unless the width is 1."""
    if width == 1:
        return model
    index = model.get_field_index("network")
    network = pa.struct([*model.field(index).type, ("width", pa.float64())])
    return model.set(index, pa.field("network", network))


def make_table(schema: pa.Schema, /, **columns: Any) -> pa.Table:
    """Make a table with this schema from columns passed by name. A single value is repeated in every row.

    Sequences and arrays are columns; all other values, including strings and None, are single values. The table has one
    row if all values are single. NaN stays NaN unless `nan_as_null` replaces it. Raises ValueError if a column is
    missing or unknown, or if lengths differ.
    """
    missing_columns = [name for name in schema.names if name not in columns]
    unknown_columns = [name for name in columns if name not in schema.names]
    for problem, names in (("missing", missing_columns), ("not in the schema", unknown_columns)):
        if names:
            raise ValueError(f"columns {problem}: {', '.join(names)}. The schema has {', '.join(schema.names)}.")
    lengths = {name: len(values) for name, values in columns.items() if _is_column(values)}
    if len(set(lengths.values())) > 1:
        described_lengths = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise ValueError(f"columns have different lengths: {described_lengths}")
    rows = next(iter(lengths.values()), 1)
    arrays = []
    for field in schema:
        value = columns[field.name]
        arrays.append(value if field.name in lengths else pa.repeat(pa.scalar(value, field.type), rows))
    return pa.table(arrays, schema=schema)


def table_of_rows(schema: pa.Schema, rows: Iterable[Sequence[Any]]) -> pa.Table:
    """Make a table with this schema from rows of values, which must be in schema order."""
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def nan_as_null(values: ArrayLike) -> pa.Array:
    """Make a column of these numbers with null in place of NaN."""
    return pa.array(values, from_pandas=True)


def _is_column(values: Any) -> bool:
    is_text = isinstance(values, str | bytes)
    return not is_text and isinstance(values, Sequence | np.ndarray | pa.Array | pa.ChunkedArray)
