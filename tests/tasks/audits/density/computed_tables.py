"""Tables of each task, for the test that compares their fingerprints with the task's version."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tasks.audits.density.measures.distribution import Distribution, distribution
from tasks.audits.density.measures.duplicates import Duplicates, duplicates
from tasks.audits.density.measures.kernel_density import Kernel, kernel, points
from tasks.audits.density.measures.learning import Constant, learning
from tasks.audits.density.measures.losses import losses
from tasks.audits.density.measures.neighbours import Neighbouring, Ratios, neighbours, ratios
from tasks.audits.density.measures.outliers import Outliers, outliers
from tasks.audits.density.measures.scores import Scores, scores
from tasks.contract.job import NoSettings
from tasks.datasets.catalog import load
from tasks.models.catalog import DensityModel
from tests.support.fingerprint import Computed
from tests.tasks.audits.density import made_up

DIGITS = made_up.DIGITS
MODELS = made_up.folds(90, 3, 5)
CONSTANT = Constant(DIGITS, DensityModel("vae"), 90, "train")


def trainings() -> list[pa.Table]:
    log_p = made_up.noise(np.random.default_rng(7), 90, 3, 5, 4.0, 2.0)
    return made_up.fold_tables(MODELS, {1: log_p - 5, 2: log_p})


def score_table() -> pa.Table:
    draws = np.random.default_rng(8)
    return made_up.scores(draws.normal(-100, 30, 100), draws.normal(4, 3, 100))


def neighbour_table() -> pa.Table:
    samples = np.random.default_rng(9).random(load(DIGITS).test_images.shape, np.float32)
    return neighbours(Neighbouring(DIGITS, 100), [made_up.fitted_table(samples)])


def weighted_sum(table: pa.Table, floats: bool) -> float:
    """A sum of all numbers, weighted by column and row, so that every change and move of a number shows.

    With `floats`, only columns of floats and of lists count, and infinity counts as 1,000: the value if no memory
    could be detected.
    """
    total = 0.0
    weight = 0
    for column in table.columns:
        is_counted = pa.types.is_list(column.type) or pa.types.is_floating(column.type)
        weight += is_counted or not floats
        while pa.types.is_list(column.type):
            column = column.combine_chunks().flatten()
        if pa.types.is_floating(column.type) or (pa.types.is_integer(column.type) and not floats):
            numbers = column.to_numpy(zero_copy_only=False).astype(np.float64)
            numbers = np.where(np.isinf(numbers), 1000.0, numbers) if floats else numbers
            total += weight * np.nansum(numbers * (1 + np.arange(len(numbers)) % 7))
    return total


def weigh_floats(table: pa.Table) -> float:
    return weighted_sum(table, floats=True)


def weigh_all(table: pa.Table) -> float:
    return weighted_sum(table, floats=False)


# Fewer permutations and draws than possible, so that the results depend on the seed.
def scores_by_seed() -> pa.Table:
    return scores(Scores(MODELS, 2, permutations=99, draws=6, seed=3), trainings())


def distribution_by_seed() -> pa.Table:
    return distribution(Distribution(MODELS, (1, 2), draws=6, seed=3), trainings())


def learning_by_seed() -> pa.Table:
    return learning(CONSTANT, [scores(Scores(MODELS, 2, permutations=9, draws=2), trainings())])


TABLES = [
    Computed(scores, scores_by_seed, weigh_floats),
    Computed(distribution, distribution_by_seed, weigh_floats),
    Computed(learning, learning_by_seed, weigh_floats),
    Computed(losses, lambda: losses(NoSettings(), trainings()), weigh_floats),
    Computed(outliers, lambda: outliers(Outliers(seed=3), [score_table()]), weigh_all),
    Computed(neighbours, neighbour_table, weigh_all),
    Computed(ratios, lambda: ratios(Ratios(), [score_table(), neighbour_table()]), weigh_all),
    Computed(duplicates, lambda: duplicates(Duplicates(DIGITS, 300), ()), weigh_all),
    Computed(kernel, lambda: kernel(Kernel(grid=50), ()), weigh_all),
    Computed(points, lambda: points(Kernel(), ()), weigh_all),
]
