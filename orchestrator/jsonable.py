"""A value as JSON has it."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import Any


def jsonable(value: Any) -> Any:
    """The value as JSON has it: what is not a number is null, bytes are base64, times are ISO 8601."""
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
