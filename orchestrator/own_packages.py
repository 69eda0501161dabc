"""Makes a package name refer to Engram's own package in this process, even if another module shadows it on the path."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def load(name: str) -> None:
    """Import Engram's own package of this name, replacing any other module imported under this name."""
    package_file = ROOT / name / "__init__.py"
    loaded = sys.modules.get(name)
    if loaded is not None and Path(getattr(loaded, "__file__", None) or "").resolve() == package_file:
        return
    spec = importlib.util.spec_from_file_location(
        name, package_file, submodule_search_locations=[str(package_file.parent)]
    )
    assert spec is not None
    assert spec.loader is not None
    for module_name in [module for module in sys.modules if module == name or module.startswith(f"{name}.")]:
        del sys.modules[module_name]
    package = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
