"""Makes a name refer to Engram's package in this process, even if another module comes first on the path."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def load(name: str) -> None:
    """Import Engram's package of this name; replace another module imported under this name."""
    own = ROOT / name / "__init__.py"
    loaded = sys.modules.get(name)
    if loaded is not None and Path(getattr(loaded, "__file__", None) or "").resolve() == own:
        return
    spec = importlib.util.spec_from_file_location(name, own, submodule_search_locations=[str(own.parent)])
    assert spec is not None
    assert spec.loader is not None
    for other in [each for each in sys.modules if each == name or each.startswith(f"{name}.")]:
        del sys.modules[other]
    package = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
