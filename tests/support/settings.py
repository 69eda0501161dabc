"""Configurations with some fields changed by their short names, as on the command line."""

from __future__ import annotations

from typing import Any, TypeVar

from orchestrator.spec.fields import replace_fields
from orchestrator.spec.short_names import find_paths

T = TypeVar("T")


def changed(config: T, fields: dict[str, Any] | None = None, **more: Any) -> T:
    """The config with these fields, each by its path or its short name."""
    settings = {**(fields or {}), **more}
    paths, selected = find_paths(config, settings)
    found: T = replace_fields(config, {**selected, **{paths[name]: value for name, value in settings.items()}})
    return found
