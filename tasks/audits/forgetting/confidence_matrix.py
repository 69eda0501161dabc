"""The confidences of all models about the query set, model by model, from their tables.

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
class ConfidenceMatrix:
    """All models' confidences about the same images; `groups` (n,) is None where each image is its own."""

    models: Mapping[Model, Confidences]
    images: int
    groups: NDArray[np.int64] | None

    def replicates(self, kind: Kind, target: int | None = None) -> list[Model]:
        """The models of this kind, or of this target, by their replicates; those that are missing are left out."""
        models = (model for model in self.models if (model.kind, model.target) == (kind, target))
        return sorted(models, key=lambda model: model.replicate)

    def at_one_resolution(self, *parts: Sequence[Model]) -> Iterator[Array]:
        """The confidences of each part, (models, n), all at the coarsest resolution among them."""
        coarsest = max(self.models[model].resolution for part in parts for model in part)
        for part in parts:
            rows = [rounded(self.models[model].values, coarsest) for model in part]
            yield np.stack(rows) if rows else np.empty((0, self.images))


def confidence_matrix(tables: Iterable[pa.Table]) -> ConfidenceMatrix:
    """The confidences of all models, from tables of CONFIDENCES in any order.

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
            resolution = answers["resolution"][0].as_py()
            models[model] = Confidences(answers["confidence"].to_numpy(), resolution)
    if rows is None:
        return ConfidenceMatrix({}, 0, None)
    return ConfidenceMatrix(models, len(rows), None if np.array_equal(rows, groups) else groups)


def by_model(table: pa.Table) -> Iterator[tuple[Model, pa.Table]]:
    """Each model of a table whose models come one after another, and its rows."""
    if not table.num_rows:
        return
    target = table["target"].fill_null(-1).to_numpy()
    kind = table["model"].combine_chunks().dictionary_encode()
    if isinstance(kind, pa.ChunkedArray):
        kind = kind.combine_chunks()
    identity = np.stack([kind.indices.to_numpy(), target, table["replicate"].to_numpy()])
    ends = [0, *(np.flatnonzero((identity[:, 1:] != identity[:, :-1]).any(axis=0)) + 1), table.num_rows]
    for first, end in itertools.pairwise(ends):
        part = table.slice(first, end - first)
        model = (part[column][0].as_py() for column in ("model", "target", "replicate"))
        yield Model(*model), part
