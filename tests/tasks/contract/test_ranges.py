"""A value out of its range is refused with the name of its field."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest

from tasks.contract.ranges import (
    Ascending,
    AtLeast,
    AtMost,
    Between,
    Finite,
    Matching,
    MultipleOf,
    OneOf,
    Ranged,
    Share,
    UpTo,
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
    limit: Annotated[int, AtLeast(2)] | None = None
    stops: tuple[Annotated[int, AtLeast(0)], ...] = ()
    speed: Annotated[float, AtMost(200.0, "which is fast")] = 5.0
    run: Annotated[int, UpTo("laps")] = 1
    walk: Annotated[int, UpTo("laps", below=True)] = 1
    laps: int = 3
    charge: Annotated[int, Between(1, 100, "a percentage")] = 50
    gears: Annotated[int, MultipleOf(5, "a wheel having 5")] = 5
    plate: Annotated[str, Matching("[A-Z]+", "capital letters")] = "AB"
    breaks: Annotated[tuple[int, ...], Ascending(1, "laps from 1, ascending")] = ()
    goals: Annotated[tuple[int, ...], Ascending(0, "a lap or more, ascending", required=True)] = (3,)
    name: str = field(default="")

    def conflicts(self) -> Iterator[str]:
        if self.name == self.plate:
            yield f"name is {self.name}; it must not be the plate"
        if self.name == "AB":
            yield "name is never looked at again"


@pytest.mark.parametrize(
    "fields",
    [
        {"steps": 1, "length": 1e-300, "rest": 0.0, "slope": -1.0, "share": 0.0, "limit": None},
        {"slope": 1.0, "share": 0.999, "side": "right", "sides": ("right", "left"), "limit": 2, "stops": (0, 5)},
        {"speed": 200.0, "run": 3, "walk": 2, "charge": 1, "gears": 10, "plate": "Z", "breaks": (1, 2), "goals": (0,)},
    ],
)
def test_ends_of_declared_ranges_are_allowed(fields: dict[str, Any]) -> None:
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
        ("sides", (), "sides is (); it must be one or more of left, right"),
        ("sides", ("left", "up"), "sides is ('left', 'up'); it must be one or more of left, right"),
        ("limit", 1, "limit is 1; it must be at least 2"),
        ("stops", (3, -1), "stops is (3, -1); each must be at least 0"),
        ("speed", 200.1, "speed is 200.1; it must be at most 200, which is fast"),
        ("run", 4, "run is 4; it must be at most laps, which is 3"),
        ("walk", 3, "walk is 3; it must be below laps, which is 3"),
        ("charge", 0, "charge is 0; it must be a percentage from 1 to 100"),
        ("gears", 0, "gears is 0; it must be a multiple of 5, a wheel having 5"),
        ("gears", 7, "gears is 7; it must be a multiple of 5, a wheel having 5"),
        ("plate", "A1", "plate is 'A1'; it must be capital letters"),
        ("breaks", (0, 1), "breaks is (0, 1); it must be laps from 1, ascending"),
        ("breaks", (2, 1), "breaks is (2, 1); it must be laps from 1, ascending"),
        ("breaks", (1, 1), "breaks is (1, 1); it must be laps from 1, ascending"),
        ("goals", (), "goals is (); it must be a lap or more, ascending"),
    ],
)
def test_value_out_of_range_names_allowed_range(name: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Route(**{name: value})
    assert message.endswith(f"must be {describe_range(Route(), name)}")


def test_first_conflict_is_raised_after_range_checks() -> None:
    with pytest.raises(ValueError, match=r"^name is AB; it must not be the plate$"):
        Route(name="AB")
    with pytest.raises(ValueError, match=r"^steps is 0; it must be at least 1$"):
        Route(name="AB", steps=0)


def test_field_without_range_has_no_description() -> None:
    assert describe_range(Route(), "name") == ""


@pytest.mark.parametrize(
    ("zero", "one", "words"),
    [
        (True, True, "a share from 0 to 1"),
        (True, False, "a share from 0 to below 1"),
        (False, True, "above 0 and at most 1"),
        (False, False, "between 0 and 1"),
    ],
)
def test_share_includes_only_its_allowed_ends(zero: bool, one: bool, words: str) -> None:
    share = Share(zero, one)
    refused = {-0.1, 1.1, math.inf, *(set() if zero else {0.0}), *(set() if one else {1.0})}
    assert words == share.words
    assert not any(map(share.holds, [*refused, math.nan]))
    assert all(map(share.holds, {1e-9, 0.5, 1 - 1e-9, 0.0, 1.0} - refused))


@pytest.mark.parametrize("value", [-1e-300, -1.0, math.inf, math.nan])
def test_finite_number_is_not_negative(value: float) -> None:
    assert not Finite().holds(value)
    assert not Finite(zero=True).holds(value)
