"""What is out of its range is refused by the name of the field."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest

from tasks.contract.ranges import (
    AtLeast,
    Between,
    Finite,
    OneOf,
    Ranged,
    Share,
    above_zero,
    check_minimums,
    describe_range,
    not_negative,
    one_of,
    share,
    some_of,
)

Side = Literal["left", "right"]


@dataclass(frozen=True)
class Route(Ranged):
    steps: Annotated[int, AtLeast(1)] = 1
    length: Annotated[float, Finite()] = 0.5
    rest: Annotated[float, Finite(zero=True)] = 0.0
    slope: Annotated[float, Between(-1, 1)] = 0.0
    share: Annotated[float, Share(one=False)] = 0.0
    letter: Annotated[str, OneOf(("A", "B"), "one letter from A to B")] = "A"
    side: Side = "left"
    sides: tuple[Side, ...] = ("left",)
    most: Annotated[int, AtLeast(2)] | None = None
    stops: tuple[Annotated[int, AtLeast(0)], ...] = ()
    name: str = field(default="")


@pytest.mark.parametrize(
    "fields",
    [
        {"steps": 1, "length": 1e-300, "rest": 0.0, "slope": -1.0, "share": 0.0, "most": None},
        {"slope": 1.0, "share": 0.999, "side": "right", "sides": ("right", "left"), "most": 2, "stops": (0, 5)},
    ],
)
def test_the_ends_of_the_declared_ranges_are_allowed(fields: dict[str, Any]) -> None:
    assert fields.items() <= vars(Route(**fields)).items()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("steps", 0, "steps is 0; it must be at least 1"),
        ("steps", math.nan, "steps is nan; it must be at least 1"),
        ("length", 0.0, "length is 0.0; it must be a finite number above 0"),
        ("length", math.inf, "length is inf; it must be a finite number above 0"),
        ("rest", -0.1, "rest is -0.1; it must be a finite number of at least 0"),
        ("rest", math.nan, "rest is nan; it must be a finite number of at least 0"),
        ("slope", 1.01, "slope is 1.01; it must be from -1 to 1"),
        ("share", 1.0, "share is 1.0; it must be a share from 0 to below 1"),
        ("share", math.nan, "share is nan; it must be a share from 0 to below 1"),
        ("letter", "C", "letter is 'C'; it must be one letter from A to B"),
        ("side", "up", "side is 'up'; it must be one of left, right"),
        ("sides", (), "sides is (); it must be some of left, right"),
        ("sides", ("left", "up"), "sides is ('left', 'up'); it must be some of left, right"),
        ("most", 1, "most is 1; it must be at least 2"),
        ("stops", (3, -1), "stops is (3, -1); each must be at least 0"),
    ],
)
def test_a_value_out_of_its_declared_range_is_named_with_what_is_allowed(name: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Route(**{name: value})
    assert message.endswith(f"must be {describe_range(Route, name)}")


def test_a_field_without_a_range_has_no_words() -> None:
    assert "" == describe_range(Route, "name")


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
