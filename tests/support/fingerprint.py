"""A number that distinguishes one table of results from another, and the test that holds a task's version to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pytest

from tasks.contract.job import marks

# A task, its version, what computes a table of it, the table's rows and its fingerprint.
Case = tuple[Callable[..., pa.Table], int, Callable[[], pa.Table], int, float]

# How far what a training gives may be from what is written, relative to it. Processors and libraries differ in the last
# bit of a sum: with every sum of a training off by up to 1.2e-7, the fingerprints move by 5e-5 at most; an image of 180
# that is classified otherwise would be 7e-4 (tests/tasks/test_other_processors.py runs them so).
TRAINED = 2e-3


def total(table: pa.Table) -> float:
    """One number that all measured ones of a table move: their sum, each column counted once more than the last."""
    columns = [table[name] for name in table.column_names if pa.types.is_floating(table[name].type)]
    return float(
        sum(
            weight * np.nansum(column.to_numpy(zero_copy_only=False).astype(np.float64))
            for weight, column in enumerate(columns, start=1)
        )
    )


def version_test(cases: Sequence[Case], tolerance: float = 1e-6) -> Callable[..., None]:
    """A test that each task computes what its version says; if it fails, raise the version and write the new number."""

    @pytest.mark.parametrize(("function", "version", "computed", "rows", "expected"), cases)
    def test(
        function: Callable[..., pa.Table], version: int, computed: Callable[[], pa.Table], rows: int, expected: float
    ) -> None:
        table = computed()
        found = marks(function).version, table.num_rows, total(table)
        assert (version, rows, pytest.approx(expected, rel=tolerance)) == found, found  # pytest explains nothing here

    return test
