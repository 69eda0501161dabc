"""Configurations with changed fields, which may be named as on the command line."""

from __future__ import annotations

from typing import Any, TypeVar

from orchestrator.spec.fields import replace_fields
from orchestrator.spec.short_names import find_paths

C = TypeVar("C")


def change(config: C, **settings: Any) -> C:
    """The configuration with these fields set by short names: `change(config, epochs=3)`."""
    paths, selected = find_paths(config, settings)
    fields = {paths[name]: value for name, value in settings.items()}
    changed: C = replace_fields(config, {**selected, **fields})
    return changed
