"""What is out of its range is refused by the name of the field."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

import pytest

from tasks.ranges import above_zero, check_minimums, not_negative, one_of, share, some_of

Side = Literal["left", "right"]


@dataclass
class Walk:
    steps: int = 1
    length: float = 0.5
    side: str = "left"
    sides: tuple[str, ...] = ("left",)


def test_the_ends_of_a_range_are_allowed() -> None:
    check_minimums(Walk(steps=0), {"steps": 0})
    above_zero(Walk(length=1e-300), "length")
    not_negative(Walk(length=0.0), "length")
    one_of(Walk(side="right"), "side", Side)
    some_of(Walk(sides=("right", "left")), "sides", Side)


@pytest.mark.parametrize("steps", [0, math.nan])
def test_a_number_that_is_too_small_or_none_is_named(steps: float) -> None:
    with pytest.raises(ValueError, match=f"^steps is {steps}; it must be at least 1$"):
        check_minimums(Walk(steps=steps), {"length": 0, "steps": 1})  # type: ignore[arg-type]


@pytest.mark.parametrize("length", [0.0, -1.0, math.inf, math.nan])
def test_a_number_that_is_not_above_0_is_named(length: float) -> None:
    with pytest.raises(ValueError, match=f"^length is {length}; it must be a finite number above 0$"):
        above_zero(Walk(length=length), "steps", "length")


def test_a_word_that_is_not_among_the_allowed_is_named() -> None:
    with pytest.raises(ValueError, match=r"^side is 'up'; it must be one of left, right$"):
        one_of(Walk(side="up"), "side", Side)


@pytest.mark.parametrize("sides", [(), ("left", "up")])
def test_words_that_are_not_among_the_allowed_or_none_are_named(sides: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(f'sides is {sides}; it must be some of left, right')}$"):
        some_of(Walk(sides=sides), "sides", Side)


@pytest.mark.parametrize(
    ("zero", "one", "allowed"),
    [
        (True, True, "a share from 0 to 1"),
        (True, False, "a share from 0 to below 1"),
        (False, True, "above 0 and at most 1"),
        (False, False, "between 0 and 1"),
    ],
)
def test_a_share_lies_between_0_and_1_with_the_ends_that_are_allowed(zero: bool, one: bool, allowed: str) -> None:
    refused = [-0.1, 1.1, math.nan, math.inf, *([] if zero else [0.0]), *([] if one else [1.0])]
    for length in refused:
        with pytest.raises(ValueError, match=f"^length is {length}; it must be {allowed}$"):
            share(Walk(length=length), "steps" if one else "length", "length", zero=zero, one=one)
    for length in {1e-9, 0.5, 1 - 1e-9, 0.0, 1.0} - set(refused):
        share(Walk(length=length), "length", zero=zero, one=one)


@pytest.mark.parametrize("length", [-1e-300, math.inf, math.nan])
def test_a_number_that_may_be_0_is_finite_and_not_below(length: float) -> None:
    with pytest.raises(ValueError, match=f"length is {length}; it must be a finite number of at least 0"):
        not_negative(Walk(length=length), "length")
