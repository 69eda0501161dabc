"""Columns of tables as numpy has them, whatever chunks, gaps and types they are of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dashboards.columns import integers, numbers, texts


def chunked(*parts: list[Any], kind: pa.DataType) -> pa.Table:
    return pa.table({"c": pa.chunked_array([pa.array(part, kind) for part in parts], kind)})


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32(), pa.int32()])
def test_numbers_that_are_not_there_are_nan(kind: pa.DataType) -> None:
    table = chunked([1, None, 3], [], [None, None], [4], kind=kind)
    found = numbers(table, "c")
    assert np.float64 == found.dtype
    np.testing.assert_array_equal([1, np.nan, 3, np.nan, np.nan, 4], found)
    np.testing.assert_array_equal([np.nan, 3, np.nan], numbers(table.slice(1, 3), "c"))


def test_infinite_numbers_are_nan_and_a_missing_column_is_empty() -> None:
    table = chunked([np.inf, -np.inf, np.nan, 0.5], kind=pa.float64())
    np.testing.assert_array_equal([np.nan, np.nan, np.nan, 0.5], numbers(table, "c"))
    assert (0,) == numbers(table, "d").shape
    assert (0,) == numbers(chunked(kind=pa.float64()), "c").shape


def test_whole_numbers_are_exact_and_truths_are_0_and_1() -> None:
    large = 2**62 + 1
    found = integers(chunked([large, None], [-3, 7], kind=pa.int64()), "c")
    assert ([large, 0, -3, 7], np.int64) == (found.tolist(), found.dtype)
    assert [1, 0, 0, 1] == integers(chunked([True, False], [None, True], kind=pa.bool_()), "c").tolist()
    assert [0, 1] == integers(chunked([True, False, True, False], kind=pa.bool_()).slice(1, 2), "c").tolist()


def test_texts_that_are_not_there_are_empty() -> None:
    found = texts(chunked(["a", None], ["ε"], kind=pa.string()), "c")
    assert (["a", "", "ε"], "U") == (found.tolist(), found.dtype.kind)
    assert "U" == texts(chunked(kind=pa.string()), "c").dtype.kind
