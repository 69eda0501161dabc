"""The setting of a row of a summary: JSON of what was varied, such as `{"images": "probe"}`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def parse_setting(setting: str | None) -> dict[str, Any] | None:
    """What was varied, empty where nothing was; None for a setting that is no JSON object."""
    try:
        found = json.loads(setting or "{}")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def format_setting(setting: str | None, value: Callable[[Any], str] = str, equals: str = "=") -> str:
    """The setting in a line, `images=probe, k=5`, values written by `value`; as it is if it is no JSON object."""
    found = parse_setting(setting)
    return str(setting) if found is None else ", ".join(f"{name}{equals}{value(each)}" for name, each in found.items())
