"""A number of things in words."""

from __future__ import annotations


def counted(number: int, thing: str) -> str:
    """`1 training`, `12 trainings`, `12 pairs of trainings`: the first word takes the plural."""
    first, blank, rest = thing.partition(" ")
    ending = "" if number == 1 or not first else "es" if first.endswith(("s", "x", "ch", "sh")) else "s"
    return f"{number:,} {first}{ending}{blank}{rest}".rstrip()
