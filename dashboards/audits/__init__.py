"""Figures and galleries of individual audits, one module per audit name.

A module may define `figures(run) -> Iterable[Figure | None]`, `gallery(run, show_images) -> Gallery | None`, and, for
the cells of a sweep, `sweep(run) -> Iterable[Figure | None]`. Figures that are None are omitted. Audits without a
module get only the default figures.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType


def find(name: str) -> ModuleType | None:
    """Import the module for this audit. Returns None if it has none."""
    if name not in {module.name for module in pkgutil.iter_modules(__path__)}:
        return None
    return importlib.import_module(f"{__name__}.{name}")
