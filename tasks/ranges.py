"""The ranges of a config's fields, checked on construction: ValueError names the field, its value, what is allowed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, get_args

SHARES = {  # by whether 0 and 1 are among them
    (True, True): "a share from 0 to 1",
    (True, False): "a share from 0 to below 1",
    (False, True): "above 0 and at most 1",
    (False, False): "between 0 and 1",
}


def check_minimums(config: Any, least: Mapping[str, float]) -> None:
    """ValueError unless each field is a number of at least so much."""
    for name, low in least.items():
        if not getattr(config, name) >= low:
            raise ValueError(f"{name} is {getattr(config, name)}; it must be at least {low}")


def above_zero(config: Any, *names: str) -> None:
    """ValueError unless each of these fields is a finite number above 0."""
    for name in names:
        if not 0 < getattr(config, name) < math.inf:
            raise ValueError(f"{name} is {getattr(config, name)}; it must be a finite number above 0")


def not_negative(config: Any, *names: str) -> None:
    """ValueError unless each of these fields is a finite number, 0 or above."""
    for name in names:
        if not 0 <= getattr(config, name) < math.inf:
            raise ValueError(f"{name} is {getattr(config, name)}; it must be a finite number of at least 0")


def share(config: Any, *names: str, zero: bool = True, one: bool = True) -> None:
    """ValueError unless each of these fields is a number from 0 to 1, these two included or not."""
    allowed = SHARES[zero, one]
    for name in names:
        value = getattr(config, name)
        if not (0 <= value <= 1 and (zero or value) and (one or value < 1)):
            raise ValueError(f"{name} is {value}; it must be {allowed}")


def one_of(config: Any, name: str, allowed: Any) -> None:
    """ValueError unless the field is one of the values of this Literal."""
    values = get_args(allowed)
    if getattr(config, name) not in values:
        raise ValueError(f"{name} is {getattr(config, name)!r}; it must be one of {', '.join(values)}")


def some_of(config: Any, name: str, allowed: Any) -> None:
    """ValueError unless the field, a tuple, has at least one of the values of this Literal, and nothing else."""
    values, chosen = get_args(allowed), getattr(config, name)
    if not chosen or any(value not in values for value in chosen):
        raise ValueError(f"{name} is {chosen}; it must be some of {', '.join(values)}")
