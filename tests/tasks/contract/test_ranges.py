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
    describe_range,
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


@pytest.mark.parametrize(
    ("zero", "one", "words"),
    [
        (True, True, "a share from 0 to 1"),
        (True, False, "a share from 0 to below 1"),
        (False, True, "above 0 and at most 1"),
        (False, False, "between 0 and 1"),
    ],
)
def test_a_share_lies_between_0_and_1_with_the_ends_that_are_allowed(zero: bool, one: bool, words: str) -> None:
    share = Share(zero, one)
    refused = {-0.1, 1.1, math.inf, *(set() if zero else {0.0}), *(set() if one else {1.0})}
    assert words == share.words
    assert not any(map(share.holds, [*refused, math.nan]))
    assert all(map(share.holds, {1e-9, 0.5, 1 - 1e-9, 0.0, 1.0} - refused))


@pytest.mark.parametrize("value", [-1e-300, -1.0, math.inf, math.nan])
def test_a_finite_number_is_not_below_0(value: float) -> None:
    assert not Finite().holds(value)
    assert not Finite(zero=True).holds(value)
