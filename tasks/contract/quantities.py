"""Quantities that are written with their unit: `64GB` of memory, a duration of `6h`. In Python, they are numbers."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import ClassVar, Self

SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([kmgt]i?)?b?", re.IGNORECASE)
BYTES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
SIZE_UNITS = ("TB", "TiB", "GB", "GiB", "MB", "MiB", "kB", "KiB")  # in which sizes are printed
DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?")
SECONDS = {"d": 86400, "h": 3600, "m": 60}


class ByteCount(int):
    """A number of bytes, written like `64GB` (10^9 bytes each) or `512MiB` (2^20 bytes each)."""

    words: ClassVar[str] = "size, such as 64GB"

    @classmethod
    def parse(cls, value: str | float) -> Self:
        """Read text or a number of bytes. Raises ValueError if it is no whole number of bytes."""
        if isinstance(value, cls):
            return value
        if isinstance(value, str):
            matched = SIZE.fullmatch(value.strip())
            if matched:
                count = Decimal(matched[1]) * BYTES[(matched[2] or "").lower()]
                if count == int(count):
                    return cls(int(count))
        elif not isinstance(value, bool) and math.isfinite(value) and value == int(value) and value >= 0:
            return cls(value)
        raise ValueError(f"{value!r} is not a size in bytes; write it like 64GB or 512MiB")

    def __str__(self) -> str:
        for unit in SIZE_UNITS:
            count, rest = divmod(int(self), BYTES[unit[:-1].lower()])
            if count > 0 and not rest:
                return f"{count}{unit}"
        return int.__repr__(self)


class Duration(float):
    """A number of seconds, written like `3h50m`, `90s` or `1d`."""

    words: ClassVar[str] = "duration, such as 6h"

    @classmethod
    def parse(cls, value: str | float) -> Self:
        """Read text or a number of seconds. Raises ValueError if it is no duration."""
        if isinstance(value, cls):
            return value
        text = str(value).strip()
        matched = DURATION.fullmatch(text)
        if not text or not matched or isinstance(value, bool):
            raise ValueError(f"{value!r} is not a duration; write it like 3h50m, 90s or 1d")
        days, hours, minutes, seconds = (float(part or 0) for part in matched.groups())
        return cls(days * SECONDS["d"] + hours * SECONDS["h"] + minutes * SECONDS["m"] + seconds)

    def __str__(self) -> str:
        if not self.is_integer():
            return f"{Decimal(float.__repr__(self)):f}s"
        rest = int(self)
        words = ""
        for unit, seconds in SECONDS.items():
            count, rest = divmod(rest, seconds)
            words += f"{count}{unit}" if count else ""
        return words + f"{rest}s" if rest or not words else words


QUANTITIES: tuple[type[ByteCount] | type[Duration], ...] = (ByteCount, Duration)
