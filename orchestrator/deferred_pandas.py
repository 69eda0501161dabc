"""Keeps pyarrow and MLflow from importing pandas, which takes 0.3 s in each process, until something else imports it.

Both look for pandas once and work without it. When pandas is imported later, pyarrow is told at once and behaves as
usual.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType

PANDAS = "pandas"


class _Refusal:
    """A finder that hides pandas. An entry of None in `sys.modules` would do so too, but not for compiled code."""

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
            import pyarrow

            execute(module)
            pyarrow.table({}).to_pandas()  # which needs pandas, so pyarrow looks for it again

        spec.loader.exec_module = execute_and_tell  # type: ignore[method-assign]
        return spec


@contextmanager
def without_pandas() -> Iterator[None]:
    """Hide pandas from imports inside the block, unless it has been imported."""
    sys.meta_path.insert(0, _Refusal)
    try:
        yield
    finally:
        sys.meta_path.remove(_Refusal)


def defer_pandas() -> None:
    """Make pyarrow use pandas only after something else has imported it. Does nothing if pandas is imported.

    `pyarrow.array` imports pandas to find out whether its argument is a pandas object. Without pandas in the process,
    there are none.
    """
    import pyarrow

    if PANDAS in sys.modules or _Announcement in sys.meta_path:
        return
    with without_pandas():
        pyarrow.array([0])  # pyarrow looks for pandas only once
    sys.meta_path.insert(0, _Announcement)
