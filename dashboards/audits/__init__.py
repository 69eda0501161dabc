"""Figures and galleries of single audits: a module with the audit's name for each.

A module may define `figures(run) -> Iterable[Figure | None]`, `gallery(run, show_images) -> Gallery | None`, and, for
the cells of a sweep, `sweep(run) -> Iterable[Figure | None]`. A figure that is None is omitted. Audits without a module
have only the default figures.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType


def find(name: str) -> ModuleType | None:
    """The module of this audit; None if it has none."""
    if name not in {module.name for module in pkgutil.iter_modules(__path__)}:
        return None
    return importlib.import_module(f"{__name__}.{name}")
