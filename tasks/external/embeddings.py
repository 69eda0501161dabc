"""Embeddings of pictures in a table that an encoder's owner sends: Parquet, with the columns `image` and `embedding`.

`image` has the ids of the handout (`tasks.external.embedding_handout`), `embedding` a list of numbers, as many in every
row. Other columns are not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tasks.external import sent_table
from tasks.external.sent_table import Sent
from tasks.files import File

EMBEDDING = "embedding"


@dataclass(frozen=True, eq=False)
class SentEmbeddings:
    """The embeddings of a table, (rows, d) float32, and the ids of the rows."""

    sent: Sent
    values: NDArray[np.float32]

    def select(self, images: Sequence[str]) -> NDArray[np.float32]:
        """The embeddings of these pictures, in this order; ValueError, in one line, where any is missing."""
        chosen: NDArray[np.float32] = self.values[self.sent.rows(images)]
        return chosen


def read(file: File) -> SentEmbeddings:
    """The table in a file, checked row by row.

    ValueError, in one line, for a file that cannot be read or has no such columns, pictures without an id or with two
    rows, embeddings of different lengths, and those with a number missing or not finite in float32.
    """
    if PurePath(file.path).suffix.lower() != ".parquet":
        raise ValueError(f"embeddings are {file.path}; they must be a .parquet file")
    sent = sent_table.read(file, "embeddings")
    if EMBEDDING not in sent.columns:
        has = ", ".join(sent.columns) or "image alone"
        raise ValueError(f"{sent.name} has no column {EMBEDDING}; it has {has}")
    return SentEmbeddings(sent, values(sent, sent.column(EMBEDDING)))


def values(sent: Sent, column: pa.ChunkedArray) -> NDArray[np.float32]:
    """The lists of a column as rows (n, d)."""
    kind = column.type
    number = kind.value_type if sent_table.is_list(kind) else None
    if number is None or not (pa.types.is_floating(number) or pa.types.is_integer(number)):
        raise ValueError(f"{sent.name} has {kind} in its column {EMBEDDING}; it must be lists of numbers")
    rows = column.cast(pa.large_list(number)).combine_chunks()  # more numbers than 32 bits count
    lengths = pc.list_value_length(rows).to_numpy(zero_copy_only=False)
    if rows.null_count:
        first = sent.ids[int(np.argmax(np.isnan(lengths)))]
        raise ValueError(f"{sent.name}: image {first!r} has no embedding; {rows.null_count} have none")
    width = int(lengths[0])
    other = np.flatnonzero(lengths != width)
    if len(other) or not width:
        at = int(other[0]) if len(other) else 0
        raise ValueError(
            f"{sent.name}: the embedding of {sent.ids[at]!r} has {int(lengths[at])} numbers and that of "
            f"{sent.ids[0]!r} {width}; all must have equally many, at least one"
        )
    with np.errstate(over="ignore"):
        # A number that is missing becomes NaN.
        flat = pc.cast(pc.list_flatten(rows), pa.float64() if pa.types.is_integer(number) else number)
        found: NDArray[np.float32] = np.asarray(flat.to_numpy(zero_copy_only=False), np.float32)
    table = found.reshape(len(rows), width)
    wrong = np.flatnonzero(~np.isfinite(table).all(axis=1))
    if len(wrong):
        raise ValueError(
            f"{sent.name}: the embedding of {sent.ids[wrong[0]]!r} has a number that is missing or not finite; "
            f"{len(wrong)} of {len(table)} have"
        )
    return table
