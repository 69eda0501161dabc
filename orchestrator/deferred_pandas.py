"""Keeps pyarrow from importing pandas, which takes 0.3 s in each process, until something else imports it.

`pyarrow.array` imports pandas to find out whether its argument is a pandas object. Without pandas in the process, there
are none. When pandas is imported, pyarrow is told at once and behaves as usual.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

PANDAS = "pandas"


class _Refusal:
    """A finder that hides pandas."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:  # noqa: ARG004
        if name == PANDAS:
            raise ModuleNotFoundError(name)


class _Announcement:
    """A finder that tells pyarrow once pandas has been imported."""

    @classmethod
    def find_spec(
        cls,
        name: str,
        path: Sequence[str] | None = None,  # noqa: ARG003
        target: ModuleType | None = None,  # noqa: ARG003
    ) -> ModuleSpec | None:
        if name != PANDAS or cls not in sys.meta_path:
            return None
        sys.meta_path.remove(cls)
        spec = importlib.util.find_spec(PANDAS)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_tell(module: ModuleType) -> None:
            execute(module)
            _shim().pd  # noqa: B018  # imports pandas into pyarrow

        spec.loader.exec_module = execute_and_tell  # type: ignore[method-assign]
        return spec


def defer_pandas() -> None:
    """Make pyarrow use pandas only after something else has imported it. Does nothing if pandas is imported."""
    import pyarrow

    if PANDAS in sys.modules or _Announcement in sys.meta_path or not hasattr(pyarrow.lib, "_pandas_api"):
        return
    sys.meta_path.insert(0, _Refusal)
    try:
        pyarrow.array([0])  # pyarrow looks for pandas only once
    finally:
        sys.meta_path.remove(_Refusal)
    sys.meta_path.insert(0, _Announcement)


def _shim() -> Any:
    import pyarrow

    return pyarrow.lib._pandas_api
