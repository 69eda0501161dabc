"""What one audit draws beside the default figures: a module here with the audit's name.

It may offer `figures(run) -> Iterable[Figure]`, `gallery(run, show_images) -> Gallery | None`, and for a sweep's cells
together `sweep(run) -> Iterable[Figure]`. An audit without one has the default figures alone.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType


def find(name: str) -> ModuleType | None:
    """The module of the audit of this name, if it has one here."""
    if name not in {each.name for each in pkgutil.iter_modules(__path__)}:
        return None
    return importlib.import_module(f"{__name__}.{name}")
