"""What the models said of the query set, model by model, from the tables of their confidences.

A table of CONFIDENCES is one model's answer; several may come as one. Which of them there are decides what can be
compared: a training that failed is not there.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Array = NDArray[np.float64]
Part = Literal["query", "calibration", "target"]


class Name(NamedTuple):
    """Which model: what it is compared as, the number of the target (None for the others) and the replicate."""

    model: str
    target: int | None
    replicate: int


@dataclass(frozen=True, eq=False)
class Model:
    """The confidence of one model in the true class of each image, (n,), and their last printed place.

    The place is 0 for float32.
    """

    confidences: Array
    resolution: float


@dataclass(frozen=True, eq=False)
class Said:
    """All models' confidences about the same images; `groups` (n,) is None where each image is its own."""

    models: Mapping[Name, Model]
    images: int
    groups: NDArray[np.int64] | None

    def names(self, model: Part, target: int | None = None) -> list[Name]:
        """The replicates there are, in their order."""
        return sorted(name for name in self.models if name[:2] == (model, target))

    def alike(self, *parts: Sequence[Name]) -> Iterator[Array]:
        """The confidences of each part, (models, n), all at the coarsest resolution among them."""
        coarsest = max(self.models[name].resolution for part in parts for name in part)
        for part in parts:
            every = [rounded(self.models[name].confidences, coarsest) for name in part]
            yield np.stack(every) if every else np.empty((0, self.images))


def said(tables: Iterable[pa.Table]) -> Said:
    """What all models said, from tables of CONFIDENCES in any order.

    All have the rows of D_Q in the same order, or another task went wrong.
    """
    models: dict[Name, Model] = {}
    rows: NDArray[np.int64] | None = None
    groups = np.empty(0, np.int64)
    for table in tables:
        for name, answers in by_model(table):
            asked = answers["row"].to_numpy()
            if rows is None:
                rows, groups = asked, answers["group"].to_numpy()
            assert np.array_equal(rows, asked), f"{name} was asked about other images than the models before it"
            assert name not in models, f"{name} is there twice"
            place = answers["resolution"][0].as_py()
            models[name] = Model(answers["confidence"].to_numpy(), place)
    if rows is None:
        return Said({}, 0, None)
    return Said(models, len(rows), None if np.array_equal(rows, groups) else groups)


def by_model(table: pa.Table) -> Iterator[tuple[Name, pa.Table]]:
    """Each model of a table whose models come one after another, and its rows."""
    if not table.num_rows:
        return
    target = table["target"].fill_null(-1).to_numpy()
    model = table["model"].combine_chunks().dictionary_encode()
    if isinstance(model, pa.ChunkedArray):
        model = model.combine_chunks()
    which = np.stack([model.indices.to_numpy(), target, table["replicate"].to_numpy()])
    ends = [0, *(np.flatnonzero((which[:, 1:] != which[:, :-1]).any(axis=0)) + 1), table.num_rows]
    for first, end in itertools.pairwise(ends):
        part = table.slice(first, end - first)
        name = (part[column][0].as_py() for column in ("model", "target", "replicate"))
        yield Name(*name), part


def rounded(values: Array, resolution: float) -> Array:
    """The values at a last printed place, and no finer than float32: a softmax of float64 is not yet 1 where it is."""
    printed = values if not resolution else np.round(values, round(-np.log10(resolution)))
    return printed.astype(np.float32).astype(np.float64)
