"""Numbers of things, and durations, as text."""

from __future__ import annotations

import re

MORE = "more "


def format_count(number: int, thing: str) -> str:
    """`1 training`, `12 trainings`, `12 pairs of trainings`, `12 canaries`: the first word is put into the plural.

    `2 more jobs`: of `more job` the second.
    """
    if thing.startswith(MORE):
        count, _, things = format_count(number, thing.removeprefix(MORE)).partition(" ")
        return f"{count} {MORE}{things}"
    first, blank, rest = thing.partition(" ")
    ending = "" if number == 1 or not first else "es" if first.endswith(("s", "x", "ch", "sh")) else "s"
    if ending and re.search("[^aeiou]y$", first):
        first, ending = first[:-1], "ies"
    return f"{number:,} {first}{ending}{blank}{rest}".rstrip()


def format_duration(seconds: float) -> str:
    """A duration as text: 45 s, 3 min 20 s, 2 h 5 min."""
    whole = round(seconds)
    if whole < 1:
        return "under 1 s"
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
