"""Loads the scripts in `examples/hospital` by path, because `examples` is not a package."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "hospital"


def load_script(name: str) -> ModuleType:
    """Load the module `examples/hospital/NAME.py`."""
    spec = importlib.util.spec_from_file_location(f"hospital_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up their module by name
    spec.loader.exec_module(module)
    return module


make_xrays = load_script("make_xrays")
train_model = load_script("train_model")
