"""Models that nobody trained, which say of the observations what a test wants; and the tables of their trainings."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.density.log_densities import Folds, LeaveOneOut
from tasks.datasets.catalog import pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.partitions import fold_of
from tasks.training.density import Evaluation, density_table
from tasks.training.density_config import DensityTraining, Fold, Row
from tasks.training.members import Epoch

Array = NDArray[np.float64]

DIGITS = pin(Dataset("digits"))


def noise(chance: np.random.Generator, n: int, repetitions: int, folds: int, sd: float, quality: float = 0.0) -> Array:
    """log p (n, L, K) that no model's training has to do with: of observations that differ in how likely they are, and
    in how far models disagree on them, by models that differ in how good they are."""
    likely = chance.normal(-100, 20, (n, 1, 1))
    spread = sd * chance.gamma(4, 0.25, (n, 1, 1)) if quality else sd
    return (
        likely
        + quality * chance.normal(size=(1, repetitions, folds))
        + spread * chance.normal(size=(n, repetitions, folds))
    )


def partitions(chance: np.random.Generator, n: int, repetitions: int, folds: int) -> NDArray[np.int64]:
    """Which model of each repetition held each observation out, (n, L): folds of equal sizes, to within one."""
    return np.stack([chance.permutation(np.arange(n) % folds) for _ in range(repetitions)], axis=1)


def folds(n: int = 60, repetitions: int = 3, number: int = 4) -> Folds:
    return Folds(DIGITS, n, tuple(range(100, 100 + repetitions)), number)


def alone(rows: tuple[int, ...] = (3, 7, 20), n: int = 24, repetitions: int = 4) -> LeaveOneOut:
    return LeaveOneOut(DIGITS, n, rows, repetitions)


def table(
    held_out: Fold | Row | None,
    seed: int,
    said: Mapping[int, Array],
    epochs: int,
    effective: Mapping[int, Array] | None = None,
) -> pa.Table:
    """The table of a training that at these epochs said this of every observation; its losses are 1 / epoch.

    `effective` are the numbers of samples that log p is effectively from, by epoch.
    """
    config = DensityTraining(DIGITS, seed=seed, held_out=held_out, epochs=epochs, recorded=tuple(sorted(said)))
    history = [Epoch(epoch, 1 / epoch + seed, 2 / epoch + seed, float("nan")) for epoch in range(1, epochs + 1)]
    log_p, samples = (
        {epoch: each.astype(np.float32) for epoch, each in told.items()} for told in (said, effective or {})
    )
    return density_table(config, history, Evaluation(log_p, effective_samples=samples))


def of_folds(models: Folds, said: Mapping[int, Array]) -> list[pa.Table]:
    """The tables of all folds' trainings, from what they say at each epoch, (n, L, K)."""
    repetitions, number = models.shape
    return [
        table(
            Fold(models.partitions[repetition], number, fold),
            1000 * repetition + fold,
            {epoch: log_p[:, repetition, fold] for epoch, log_p in said.items()},
            max(said),
        )
        for repetition in range(repetitions)
        for fold in range(number)
    ]


def held_out(models: Folds) -> NDArray[np.int64]:
    """Which model of each repetition held each observation out, (n, L)."""
    return np.stack([fold_of(seed, models.observations, models.folds) for seed in models.partitions], 1).astype(int)


def of_alone(models: LeaveOneOut, whole: Array, without: Array, epoch: int = 2) -> list[pa.Table]:
    """The tables of all trainings: what models of all data say, (T, n), and those without each row, (rows, T, n)."""
    tables = [table(None, trial, {epoch: each}, epoch) for trial, each in enumerate(whole)]
    for row, models_without in zip(models.left_out, without, strict=True):
        tables += [
            table(Row(row), 100 * (row + 1) + trial, {epoch: each}, epoch) for trial, each in enumerate(models_without)
        ]
    return tables
