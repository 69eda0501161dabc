"""What is out of its range is refused by the name of the field."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import pytest

from tasks.ranges import above_zero, at_least, one_of, share

Side = Literal["left", "right"]


@dataclass
class Walk:
    steps: int = 1
    length: float = 0.5
    side: str = "left"


def test_the_ends_of_a_range_are_allowed() -> None:
    at_least(Walk(steps=0), {"steps": 0})
    above_zero(Walk(length=1e-300), "length")
    one_of(Walk(side="right"), "side", Side)
    share(Walk(length=0.0), "length")


@pytest.mark.parametrize("steps", [0, math.nan])
def test_a_number_that_is_too_small_or_none_is_named(steps: float) -> None:
    with pytest.raises(ValueError, match=f"^steps is {steps}; it must be at least 1$"):
        at_least(Walk(steps=steps), {"length": 0, "steps": 1})  # type: ignore[arg-type]


@pytest.mark.parametrize("length", [0.0, -1.0, math.inf, math.nan])
def test_a_number_that_is_not_above_0_is_named(length: float) -> None:
    with pytest.raises(ValueError, match=f"^length is {length}; it must be a finite number above 0$"):
        above_zero(Walk(length=length), "steps", "length")


def test_a_word_that_is_not_among_the_allowed_is_named() -> None:
    with pytest.raises(ValueError, match=r"^side is 'up'; it must be one of left, right$"):
        one_of(Walk(side="up"), "side", Side)


@pytest.mark.parametrize("length", [-0.1, 1.0, math.nan])
def test_a_number_that_is_no_share_is_named(length: float) -> None:
    with pytest.raises(ValueError, match=f"^length is {length}; it must be from 0 to below 1$"):
        share(Walk(length=length), "length")
