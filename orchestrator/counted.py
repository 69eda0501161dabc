"""A number of things in words."""

from __future__ import annotations

import re


def counted(number: int, thing: str) -> str:
    """`1 training`, `12 trainings`, `12 pairs of trainings`, `12 canaries`: the first word takes the plural."""
    first, blank, rest = thing.partition(" ")
    ending = "" if number == 1 or not first else "es" if first.endswith(("s", "x", "ch", "sh")) else "s"
    if ending and re.search("[^aeiou]y$", first):
        first, ending = first[:-1], "ies"
    return f"{number:,} {first}{ending}{blank}{rest}".rstrip()
