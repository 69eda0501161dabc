"""What the tasks around the score compute, beside their versions: neither may change without the other.

A test here that fails says that stored results are no longer what the task would compute. If that is meant, raise the
task's version and write the new numbers below.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from tasks.audits.density.measures.duplicates import Duplicates, duplicates
from tasks.audits.density.measures.kernel_density import Kernel, kernel, points
from tasks.audits.density.measures.nearest_neighbours import Neighbouring, neighbours
from tasks.audits.density.measures.outliers import Outliers, outliers
from tasks.audits.density.measures.ratios import Ratios, ratios
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.job import marks
from tests.tasks.audits.density import made_up_scores


def scores() -> pa.Table:
    draws = np.random.default_rng(8)
    return made_up_scores.scores(draws.normal(-100, 30, 100), draws.normal(4, 3, 100))


def of_outliers() -> pa.Table:
    return outliers(Outliers(seed=3), [scores()])


def of_neighbours() -> pa.Table:
    data = pin(Dataset("digits"))
    samples = np.random.default_rng(9).random(load(data).test_images.shape, np.float32)
    return neighbours(Neighbouring(data, 100), [made_up_scores.fitted(samples)])


def of_ratios() -> pa.Table:
    return ratios(Ratios(), [scores(), of_neighbours()])


def of_duplicates() -> pa.Table:
    return duplicates(Duplicates(pin(Dataset("digits")), 300), ())


def of_kernel() -> pa.Table:
    return kernel(Kernel(grid=50), ())


def of_points() -> pa.Table:
    return points(Kernel(), ())


def total(table: pa.Table) -> float:
    """One number that every number of a table moves, and where it stands: a sum weighed by column and by row."""
    together = 0.0
    for weight, column in enumerate(table.columns, start=1):
        while pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type):
            column = column.combine_chunks().flatten()
        if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
            numbers = column.to_numpy(zero_copy_only=False).astype(np.float64)
            together += weight * np.nansum(numbers * (1 + np.arange(len(numbers)) % 7))
    return together


@pytest.mark.parametrize(
    ("function", "name", "version", "computed", "rows", "expected"),
    [
        (outliers, "density.outliers", 2, of_outliers, 18, 97397.34998335),
        (neighbours, "density.neighbours", 1, of_neighbours, 100, 834089.42673458),
        (ratios, "density.ratios", 3, of_ratios, 11, 7679.22329066),
        (duplicates, "density.duplicates", 1, of_duplicates, 20, 75121.53335315),
        (kernel, "density.kernel", 1, of_kernel, 50, 475.05196657),
        (points, "density.points", 1, of_points, 21, -190.61030052),
    ],
)
def test_a_task_computes_what_its_version_says(
    function: Callable[..., pa.Table],
    name: str,
    version: int,
    computed: Callable[[], pa.Table],
    rows: int,
    expected: float,
) -> None:
    table = computed()
    assert (name, version, rows) == (marks(function).name, marks(function).version, table.num_rows)
    assert expected == pytest.approx(total(table), rel=1e-6)
