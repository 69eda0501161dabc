"""Conversion of values to JSON's types."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import Any


def jsonable(value: Any) -> Any:
    """The value in JSON's types: NaN and infinities become null, bytes base64, times ISO 8601."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): jsonable(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(part) for part in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if value is None or isinstance(value, bool | int | str):
        return value
    return str(value)
