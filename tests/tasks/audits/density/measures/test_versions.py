"""What the tasks compute, beside their versions: neither may change without the other.

A test here that fails says that stored results are no longer what the task would compute. If that is meant, raise the
task's version and write the new numbers below.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from tasks.audits.density.measures.distribution import Distribution, distribution
from tasks.audits.density.measures.duplicates import Duplicates, duplicates
from tasks.audits.density.measures.kernel_density import Kernel, kernel, points
from tasks.audits.density.measures.learning import Constant, learning
from tasks.audits.density.measures.losses import losses
from tasks.audits.density.measures.neighbours import Neighbouring, Ratios, neighbours, ratios
from tasks.audits.density.measures.outliers import Outliers, outliers
from tasks.audits.density.measures.scores import Scores, scores
from tasks.contract.job import NoSettings, marks
from tasks.datasets.catalog import load
from tasks.models.catalog import DensityModel
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


# Fewer permutations and draws than there are, so that chance has a part.
@pytest.mark.parametrize(
    ("function", "version", "computed", "rows", "floats", "expected"),
    [
        (
            scores, 5, lambda: scores(Scores(MODELS, 2, permutations=99, draws=6, seed=3), trainings()),
            90, True, -9416827.398623072,
        ),
        (
            distribution, 2, lambda: distribution(Distribution(MODELS, (1, 2), draws=6, seed=3), trainings()),
            242, True, 9672.83613773,
        ),
        (
            learning, 1, lambda: learning(CONSTANT, [scores(Scores(MODELS, 2, permutations=9, draws=2), trainings())]),
            1, True, 902.8810688199735,
        ),
        (losses, 1, lambda: losses(NoSettings(), trainings()), 6, True, 77868.37833707),
        (outliers, 2, lambda: outliers(Outliers(seed=3), [scored()]), 18, False, 97397.34998335),
        (neighbours, 1, near, 100, False, 834089.42673458),
        (ratios, 3, lambda: ratios(Ratios(), [scored(), near()]), 11, False, 7679.22329066),
        (duplicates, 1, lambda: duplicates(Duplicates(DIGITS, 300), ()), 20, False, 75121.53335315),
        (kernel, 1, lambda: kernel(Kernel(grid=50), ()), 50, False, 475.05196657),
        (points, 1, lambda: points(Kernel(), ()), 21, False, -190.61030052),
    ],
)  # fmt: skip
def test_a_task_computes_what_its_version_says(
    function: Callable[..., pa.Table],
    version: int,
    computed: Callable[[], pa.Table],
    rows: int,
    floats: bool,
    expected: float,
) -> None:
    table = computed()
    assert (f"density.{function.__name__}", version, rows) == (
        marks(function).name,
        marks(function).version,
        table.num_rows,
    )
    assert expected == pytest.approx(total(table, floats), rel=1e-6)
