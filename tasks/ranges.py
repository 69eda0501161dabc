"""The ranges of a config's fields, checked on construction: ValueError names the field, its value, what is allowed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, get_args


def at_least(config: Any, least: Mapping[str, float]) -> None:
    """ValueError unless each field is a number of at least so much."""
    for name, low in least.items():
        if not getattr(config, name) >= low:
            raise ValueError(f"{name} is {getattr(config, name)}; it must be at least {low}")


def above_zero(config: Any, *names: str) -> None:
    """ValueError unless each of these fields is a finite number above 0."""
    for name in names:
        if not 0 < getattr(config, name) < math.inf:
            raise ValueError(f"{name} is {getattr(config, name)}; it must be a finite number above 0")


def one_of(config: Any, name: str, allowed: Any) -> None:
    """ValueError unless the field is one of the values of this Literal."""
    values = get_args(allowed)
    if getattr(config, name) not in values:
        raise ValueError(f"{name} is {getattr(config, name)!r}; it must be one of {', '.join(values)}")


def share(config: Any, *names: str) -> None:
    """ValueError unless each of these fields is a number from 0 to below 1."""
    for name in names:
        if not 0 <= getattr(config, name) < 1:
            raise ValueError(f"{name} is {getattr(config, name)}; it must be from 0 to below 1")
