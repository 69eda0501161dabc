"""What the models said of the query set, model by model, from the tables of their confidences.

A table of CONFIDENCES is one model's answer; several may come as one. Which of them there are decides what can be
compared: a training that failed is not there.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.forgetting.trainings import Kind, Model
from tasks.external.confidences import Confidences, rounded

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Said:
    """All models' confidences about the same images; `groups` (n,) is None where each image is its own."""

    models: Mapping[Model, Confidences]
    images: int
    groups: NDArray[np.int64] | None

    def named(self, kind: Kind, target: int | None = None) -> list[Model]:
        """The replicates there are, in their order."""
        found = (model for model in self.models if (model.kind, model.target) == (kind, target))
        return sorted(found, key=lambda model: model.replicate)

    def alike(self, *parts: Sequence[Model]) -> Iterator[Array]:
        """The confidences of each part, (models, n), all at the coarsest resolution among them."""
        coarsest = max(self.models[model].resolution for part in parts for model in part)
        for part in parts:
            every = [rounded(self.models[model].values, coarsest) for model in part]
            yield np.stack(every) if every else np.empty((0, self.images))


def said(tables: Iterable[pa.Table]) -> Said:
    """What all models said, from tables of CONFIDENCES in any order.

    All have the rows of D_Q in the same order, or another task went wrong.
    """
    models: dict[Model, Confidences] = {}
    rows: NDArray[np.int64] | None = None
    groups = np.empty(0, np.int64)
    for table in tables:
        for model, answers in by_model(table):
            asked = answers["row"].to_numpy()
            if rows is None:
                rows, groups = asked, answers["group"].to_numpy()
            assert np.array_equal(rows, asked), f"{model} was asked about other images than the models before it"
            assert model not in models, f"{model} is there twice"
            place = answers["resolution"][0].as_py()
            models[model] = Confidences(answers["confidence"].to_numpy(), place)
    if rows is None:
        return Said({}, 0, None)
    return Said(models, len(rows), None if np.array_equal(rows, groups) else groups)


def by_model(table: pa.Table) -> Iterator[tuple[Model, pa.Table]]:
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
        which_one = (part[column][0].as_py() for column in ("model", "target", "replicate"))
        yield Model(*which_one), part
