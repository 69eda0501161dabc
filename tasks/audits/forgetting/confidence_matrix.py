"""Confidences of all models on D_Q and the control set, read from tables of CONFIDENCES.

A table may contain the answers of one or several models. Models whose training failed are missing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.forgetting.trainings import Kind, ModelId
from tasks.external.confidences import round_confidences

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ModelAnswers:
    """One model's answers on the images. All arrays have shape (n,)."""

    confidence: Array
    right: NDArray[np.bool_] | None  # whether the true class is most probable; None if unknown
    repeat_confidence: Array  # confidence on the second copy of the image; NaN if there is none
    resolution: float  # unit of the last decimal place that is compared; 0: float32
    printed: float  # unit of the last decimal place that was printed; 0: float32


@dataclass(frozen=True, eq=False)
class ConfidenceMatrix:
    """All models' answers on the same n images. `groups`, `is_control` and `labels` have shape (n,)."""

    models: Mapping[ModelId, ModelAnswers]
    groups: NDArray[np.int64]
    is_control: NDArray[np.bool_]
    labels: NDArray[np.int64]

    @property
    def images(self) -> int:
        """Number of images in D_Q."""
        return int((~self.is_control).sum())

    def replicates(self, kind: Kind, target: int | None = None) -> list[ModelId]:
        """Return the existing models of this kind or target, ordered by replicate."""
        models = (model for model in self.models if (model.kind, model.target) == (kind, target))
        return sorted(models, key=lambda model: model.replicate)

    def confidences(self, models: Sequence[ModelId]) -> Array:
        """Return the unrounded confidences of these models on all images, (models, n)."""
        rows = [self.models[model].confidence for model in models]
        return np.stack(rows) if rows else np.empty((0, len(self.groups)))

    def published_confidences(self, *parts: Sequence[ModelId]) -> Iterator[Array]:
        """Yield each part's confidences on D_Q, (models, images), rounded like the coarsest of the models' tables."""
        yield from self._round_parts(parts, max(self.models[model].printed for part in parts for model in part))

    def rounded_confidences(self, *parts: Sequence[ModelId]) -> Iterator[Array]:
        """Yield each part's confidences on D_Q, rounded to the decimals that the audit compares, or coarser."""
        yield from self._round_parts(parts, max(self.models[model].resolution for part in parts for model in part))

    def _round_parts(self, parts: Sequence[Sequence[ModelId]], resolution: float) -> Iterator[Array]:
        for part in parts:
            yield round_confidences(self.confidences(part)[:, ~self.is_control], resolution)


def confidence_matrix(tables: Iterable[pa.Table]) -> ConfidenceMatrix:
    """Collect the confidences of all models from tables of CONFIDENCES, in any order.

    Asserts that all models were evaluated on the same images in the same order.
    """
    models: dict[ModelId, ModelAnswers] = {}
    rows: NDArray[np.int64] | None = None
    groups = np.empty(0, np.int64)
    is_control = np.empty(0, np.bool_)
    labels = np.empty(0, np.int64)
    for table in tables:
        for model, answers in _tables_by_model(table):
            model_rows = answers["row"].to_numpy()
            if rows is None:
                rows = model_rows
                groups = answers["group"].to_numpy()
                is_control = answers["set"].to_numpy() == "control"
                labels = answers["label"].to_numpy().astype(np.int64)
            assert np.array_equal(rows, model_rows), f"{model} answered about other images than the models before it"
            assert model not in models, f"{model} occurs twice"
            right = answers["right"]
            models[model] = ModelAnswers(
                confidence=answers["confidence"].to_numpy(),
                right=None if right.null_count else right.to_numpy(),
                repeat_confidence=answers["again"].to_numpy(),
                resolution=answers["resolution"][0].as_py(),
                printed=answers["printed"][0].as_py(),
            )
    return ConfidenceMatrix(models, groups, is_control, labels)


def _tables_by_model(table: pa.Table) -> Iterator[tuple[ModelId, pa.Table]]:
    """Split a table into its models, which are stored one after another."""
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
        yield ModelId(*model), part
