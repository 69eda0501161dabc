"""Configurations with settings as on a command line, by full or short names of fields."""

from __future__ import annotations

from typing import Any, TypeVar

from orchestrator.spec.fields import replace_fields
from orchestrator.spec.short_names import find_paths

T = TypeVar("T")


def with_settings(config: T, settings: dict[str, Any] | None = None, /, **more: Any) -> T:
    """The config with these settings: `with_settings(config, epochs=3)` sets `question.training.epochs`."""
    new_settings = {**(settings or {}), **more}
    paths, selected = find_paths(config, new_settings)
    changed: T = replace_fields(config, {**selected, **{paths[name]: value for name, value in new_settings.items()}})
    return changed
