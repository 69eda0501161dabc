"""pyarrow accepts pandas objects although pandas was hidden from it at first."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import sys
import pyarrow
from orchestrator.deferred_pandas import defer_pandas
{calls}
assert pyarrow.Table.from_pylist([{{"a": 1}}]).to_pylist() == [{{"a": 1}}]
assert "pandas" not in sys.modules
{statement}
assert "pandas" in sys.modules
assert not any("deferred_pandas" in getattr(finder, "__module__", "") for finder in sys.meta_path)
"""
SERIES = """
import pandas
assert pyarrow.array(pandas.Series([1.0, None])).null_count == 1
"""
FRAME = """
assert list(pyarrow.table({"a": [1]}).to_pandas()["a"]) == [1]
"""


@pytest.mark.parametrize("statement", [SERIES, FRAME])
@pytest.mark.parametrize("calls", ["defer_pandas()", "defer_pandas(); defer_pandas()"])
def test_pandas_is_imported_only_when_used(calls: str, statement: str) -> None:
    subprocess.run([sys.executable, "-c", CODE.format(calls=calls, statement=statement)], check=True)
