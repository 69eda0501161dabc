"""Corruption: what is taken out of a context, so that the answer can no longer be read in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from tasks.ranges import one_of

Kind = Literal["digits", "names", "pattern", "answers"]
DIGITS = re.compile(r"[0-9]")


@dataclass(frozen=True)
class Corruption:
    """What is taken out of contexts; the question stays as it is.

    `digits`: every digit, and nothing else, so that "23.5%" becomes ".%": Bombari et al. 2022, section 6.1. `names`:
    every whole word or phrase of `names`. `pattern`: every match of the regular expression `pattern`. `answers`: every
    occurrence of a gold answer's span. What is taken out of the last three is replaced by `mask`.
    """

    kind: Kind = "digits"
    names: tuple[str, ...] = ()
    pattern: str = ""
    mask: str = ""

    def __post_init__(self) -> None:
        one_of(self, "kind", Kind)
