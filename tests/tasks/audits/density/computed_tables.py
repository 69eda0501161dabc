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

DIGITS, MODELS = made_up.DIGITS, made_up.folds(90, 3, 5)
CONSTANT = Constant(DIGITS, DensityModel("vae"), 90, "train")


def trainings() -> list[pa.Table]:
    log_p = made_up.noise(np.random.default_rng(7), 90, 3, 5, 4.0, 2.0)
    return made_up.of_folds(MODELS, {1: log_p - 5, 2: log_p})


def scored() -> pa.Table:
    draws = np.random.default_rng(8)
    return made_up.scores(draws.normal(-100, 30, 100), draws.normal(4, 3, 100))


def near() -> pa.Table:
    samples = np.random.default_rng(9).random(load(DIGITS).test_images.shape, np.float32)
    return neighbours(Neighbouring(DIGITS, 100), [made_up.fitted(samples)])


def total(table: pa.Table, floats: bool) -> float:
    """One number that every number of a table moves, and where it stands: a sum weighed by column and by row.

    With `floats` of the columns of floats and of lists alone, in which infinity stands for 1,000: where no memory
    could be found.
    """
    together, weight = 0.0, 0
    for column in table.columns:
        counted = pa.types.is_list(column.type) or pa.types.is_floating(column.type)
        weight += counted or not floats
        while pa.types.is_list(column.type):
            column = column.combine_chunks().flatten()
        if pa.types.is_floating(column.type) or (pa.types.is_integer(column.type) and not floats):
            numbers = column.to_numpy(zero_copy_only=False).astype(np.float64)
            numbers = np.where(np.isinf(numbers), 1000.0, numbers) if floats else numbers
            together += weight * np.nansum(numbers * (1 + np.arange(len(numbers)) % 7))
    return together


def weigh_floats(table: pa.Table) -> float:
    return total(table, floats=True)


def weigh_all(table: pa.Table) -> float:
    return total(table, floats=False)


# Fewer permutations and draws than there are, so that chance has a part.
def of_scores() -> pa.Table:
    return scores(Scores(MODELS, 2, permutations=99, draws=6, seed=3), trainings())


def of_distribution() -> pa.Table:
    return distribution(Distribution(MODELS, (1, 2), draws=6, seed=3), trainings())


def of_learning() -> pa.Table:
    return learning(CONSTANT, [scores(Scores(MODELS, 2, permutations=9, draws=2), trainings())])


TABLES = [
    Computed(scores, of_scores, weigh_floats),
    Computed(distribution, of_distribution, weigh_floats),
    Computed(learning, of_learning, weigh_floats),
    Computed(losses, lambda: losses(NoSettings(), trainings()), weigh_floats),
    Computed(outliers, lambda: outliers(Outliers(seed=3), [scored()]), weigh_all),
    Computed(neighbours, near, weigh_all),
    Computed(ratios, lambda: ratios(Ratios(), [scored(), near()]), weigh_all),
    Computed(duplicates, lambda: duplicates(Duplicates(DIGITS, 300), ()), weigh_all),
    Computed(kernel, lambda: kernel(Kernel(grid=50), ()), weigh_all),
    Computed(points, lambda: points(Kernel(), ()), weigh_all),
]
