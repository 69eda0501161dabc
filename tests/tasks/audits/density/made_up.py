"""Synthetic models with the log densities that a test needs, their tables, and tables with known numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.density.log_densities import Folds, LeaveOneOut
from tasks.audits.density.measures.neighbours import NEIGHBOURS
from tasks.audits.density.measures.scores import SCORES
from tasks.datasets.catalog import pin
from tasks.datasets.dataset import Dataset
from tasks.training.density import FITTED, Evaluation, density_table
from tasks.training.density_config import DensityTraining, Fold, Row, fold_of
from tasks.training.members import Epoch

Array = NDArray[np.float64]

DIGITS = pin(Dataset("digits"))


def noise(rng: np.random.Generator, n: int, repetitions: int, folds: int, sd: float, quality: float = 0.0) -> Array:
    """log p (n, L, K) without any effect of training.

    Observations differ in likelihood and in the disagreement of models; models differ in quality.
    """
    likely = rng.normal(-100, 20, (n, 1, 1))
    spread = sd * rng.gamma(4, 0.25, (n, 1, 1)) if quality else sd
    return (
        likely + quality * rng.normal(size=(1, repetitions, folds)) + spread * rng.normal(size=(n, repetitions, folds))
    )


def partitions(rng: np.random.Generator, n: int, repetitions: int, folds: int) -> NDArray[np.int64]:
    """The model of each repetition that held out each observation, (n, L): folds of equal sizes, up to one
    observation.
    """
    return np.stack([rng.permutation(np.arange(n) % folds) for _ in range(repetitions)], axis=1)


def folds(n: int = 60, repetitions: int = 3, number: int = 4) -> Folds:
    return Folds(DIGITS, n, tuple(range(100, 100 + repetitions)), number)


def single_row_models(rows: tuple[int, ...] = (3, 7, 20), n: int = 24, repetitions: int = 4) -> LeaveOneOut:
    return LeaveOneOut(DIGITS, n, rows, repetitions)


def table(
    held_out: Fold | Row | None,
    seed: int,
    log_p_by_epoch: Mapping[int, Array],
    epochs: int,
    effective: Mapping[int, Array] | None = None,
) -> pa.Table:
    """The table of a training with these log densities at these epochs; its losses are 1 / epoch.

    `effective` is the effective number of samples behind each log p, by epoch.
    """
    config = DensityTraining(
        DIGITS, seed=seed, held_out=held_out, epochs=epochs, recorded=tuple(sorted(log_p_by_epoch))
    )
    history = []
    for epoch in range(1, epochs + 1):
        history.append(Epoch(epoch, 1 / epoch + seed, 2 / epoch + seed, float("nan")))
    log_p = {}
    for epoch, values in log_p_by_epoch.items():
        log_p[epoch] = values.astype(np.float32)
    samples = {}
    for epoch, values in (effective or {}).items():
        samples[epoch] = values.astype(np.float32)
    return density_table(config, history, Evaluation(log_p, effective_samples=samples))


def fold_tables(models: Folds, log_p_by_epoch: Mapping[int, Array]) -> list[pa.Table]:
    """The tables of all folds' trainings, from their log densities at each epoch, (n, L, K)."""
    repetitions, number = models.shape
    tables = []
    for repetition in range(repetitions):
        for fold in range(number):
            tables.append(
                table(
                    Fold(models.partitions[repetition], number, fold),
                    1000 * repetition + fold,
                    {epoch: log_p[:, repetition, fold] for epoch, log_p in log_p_by_epoch.items()},
                    max(log_p_by_epoch),
                )
            )
    return tables


def held_out(models: Folds) -> NDArray[np.int64]:
    """The model of each repetition that held out each observation, (n, L)."""
    return np.stack([fold_of(seed, models.observations, models.folds) for seed in models.partitions], 1).astype(int)


def single_row_tables(models: LeaveOneOut, of_all_data: Array, without_row: Array, epoch: int = 2) -> list[pa.Table]:
    """The tables of all trainings: log densities of models of all data (T, n) and of models without each row (rows,
    T, n).
    """
    tables = []
    for trial, values in enumerate(of_all_data):
        tables.append(table(None, trial, {epoch: values}, epoch))
    for row, models_without in zip(models.left_out, without_row, strict=True):
        tables += [
            table(Row(row), 100 * (row + 1) + trial, {epoch: values}, epoch)
            for trial, values in enumerate(models_without)
        ]
    return tables


def scores(u: Sequence[float | None], m: Sequence[float | None], rows: Sequence[int] | None = None) -> pa.Table:
    """A SCORES table of these U and M, the published score equal to the matched-count score; other columns are null."""
    numbers = range(len(u)) if rows is None else rows
    m_column = pa.array(m, pa.float64())
    given_columns = {
        "row": pa.array(numbers),
        "log_p_trained": pa.array(u, pa.float64()),
        "m": m_column,
        "m_matched": m_column,
    }
    columns = []
    for field in SCORES:
        columns.append(given_columns.get(field.name, pa.nulls(len(u), field.type)))
    return pa.Table.from_arrays(columns, schema=SCORES)


def neighbours(ratios: Sequence[float | None], rows: Sequence[int] | None = None) -> pa.Table:
    """A NEIGHBOURS table of these ratios, each with a sample at distance 1 unless the ratio is None."""
    return pa.Table.from_pylist(
        [
            {"row": row, "to_validation": ratio or 0.0, "to_sample": float(ratio is not None), "ratio": ratio}
            for row, ratio in zip(range(len(ratios)) if rows is None else rows, ratios, strict=True)
        ],
        NEIGHBOURS,
    )


def fitted_table(samples: NDArray[Any] | None) -> pa.Table:
    """A FITTED table of two epochs, with these samples after the second."""
    sample_bytes = None if samples is None else samples.astype(np.float32).tobytes()
    rows = []
    for epoch in (1, 2):
        rows.append({"seed": 0, "epoch": epoch, "samples": sample_bytes if epoch == 2 else None})
    return pa.Table.from_pylist(rows, FITTED)
