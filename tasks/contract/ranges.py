"""Ranges of config fields, declared in their types and checked on construction.

    @dataclass(frozen=True)
    class Partition(Ranged):
        folds: Annotated[int, AtLeast(2)] = 10
        outliers: Annotated[float, Share(one=False)] = 0.0
        estimator: Literal["kfold", "loo"] = "kfold"

    Partition(folds=1)  # ValueError: folds is 1; it must be at least 2

`engram show` prints the same words. A range inside a tuple applies to each element. A range in a union with `None`
applies to values other than None. A Literal needs no range, because it lists the allowed values.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Protocol, TypeVar, Union, get_args, get_origin, runtime_checkable

T = TypeVar("T", bound="Ranged")

SHARES = {  # (0 is allowed, 1 is allowed) -> words
    (True, True): "a share from 0 to 1",
    (True, False): "a share from 0 to below 1",
    (False, True): "above 0 and at most 1",
    (False, False): "between 0 and 1",
}


@runtime_checkable
class Range(Protocol):
    """The values that a field allows. `words` completes "it must be"."""

    @property
    def words(self) -> str: ...

    def holds(self, value: Any) -> bool:
        """Return whether the value is in the range. False for NaN."""


@dataclass(frozen=True)
class AtLeast:
    """Numbers greater than or equal to `low`."""

    low: float

    @property
    def words(self) -> str:
        return f"at least {self.low}"

    def holds(self, value: float) -> bool:
        return value >= self.low


@dataclass(frozen=True)
class AtMost:
    """Numbers less than or equal to `high`. `reason` explains the limit."""

    high: float
    reason: str

    @property
    def words(self) -> str:
        return f"at most {self.high:g}, {self.reason}"

    def holds(self, value: float) -> bool:
        return value <= self.high


@dataclass(frozen=True)
class UpTo:
    """Numbers up to the value of another config field, or strictly below it if `below` is set."""

    field: str
    below: bool = False
    limit: float | None = None  # value of the other field, once known

    @property
    def words(self) -> str:
        explanation = "" if self.limit is None else f", which is {self.limit}"
        return f"{'below' if self.below else 'at most'} {self.field}{explanation}"

    def holds(self, value: float) -> bool:
        return self.limit is None or value < self.limit or (value == self.limit and not self.below)


@dataclass(frozen=True)
class Between:
    """Numbers from `low` to `high` inclusive. `noun` describes them."""

    low: float
    high: float
    noun: str = ""

    @property
    def words(self) -> str:
        return f"{self.noun} from {self.low} to {self.high}".lstrip()

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True)
class Finite:
    """Finite numbers above 0. 0 is also allowed if `zero` is set."""

    zero: bool = False

    @property
    def words(self) -> str:
        if self.zero:
            return "a finite number of at least 0"
        return "a finite number above 0"

    def holds(self, value: float) -> bool:
        return 0 <= value < math.inf and (self.zero or value > 0)


@dataclass(frozen=True)
class Share:
    """Numbers from 0 to 1. `zero` and `one` state whether 0 and 1 themselves are allowed."""

    zero: bool = True
    one: bool = True

    @property
    def words(self) -> str:
        return SHARES[self.zero, self.one]

    def holds(self, value: float) -> bool:
        return 0 <= value <= 1 and (self.zero or value > 0) and (self.one or value < 1)


@dataclass(frozen=True)
class MultipleOf:
    """Positive multiples of a number. `reason` explains why."""

    number: int
    reason: str

    @property
    def words(self) -> str:
        return f"a multiple of {self.number}, {self.reason}"

    def holds(self, value: int) -> bool:
        return value >= self.number and value % self.number == 0


@dataclass(frozen=True)
class ZeroOr:
    """0, or a value in another range."""

    range: Range

    @property
    def words(self) -> str:
        return f"0 or {self.range.words}"

    def holds(self, value: float) -> bool:
        return value == 0 or self.range.holds(value)


@dataclass(frozen=True)
class Matching:
    """Strings that match a regular expression entirely."""

    pattern: str
    words: str

    def holds(self, value: str) -> bool:
        return re.fullmatch(self.pattern, value) is not None


@dataclass(frozen=True)
class Ascending:
    """Strictly ascending numbers, all at least `low`. An empty tuple is allowed unless `required` is set."""

    low: int
    words: str
    required: bool = False

    def holds(self, value: tuple[int, ...]) -> bool:
        ascending = list(value) == sorted(set(value)) and min(value, default=self.low) >= self.low
        return ascending and bool(value or not self.required)


@dataclass(frozen=True)
class OneOf:
    """The values of a collection that is known at run time."""

    values: tuple[Any, ...]
    description: str = ""

    @property
    def words(self) -> str:
        return self.description or f"one of {', '.join(map(str, self.values))}"

    def holds(self, value: Any) -> bool:
        return value in self.values


@dataclass(frozen=True)
class SomeOf:
    """A non-empty selection of the values: the range of a tuple of Literals."""

    values: tuple[Any, ...]

    @property
    def words(self) -> str:
        return f"one or more of {', '.join(map(str, self.values))}"

    def holds(self, value: tuple[Any, ...]) -> bool:
        return bool(value) and all(item in self.values for item in value)


@dataclass(frozen=True)
class Each:
    """The range of every element of a tuple."""

    range: Range

    @property
    def words(self) -> str:
        return self.range.words

    def holds(self, value: tuple[Any, ...]) -> bool:
        return all(map(self.range.holds, value))


class Ranged:
    """A config that checks, on construction, the ranges in its field types and then its conflicts."""

    def __post_init__(self) -> None:
        _check_ranges(self)
        for conflict in self.conflicts():
            raise ValueError(conflict)

    def conflicts(self) -> Iterator[str]:
        """Yield messages about invalid field combinations. Only the first is raised, so later checks may rely on
        earlier ones.
        """
        yield from ()


def _check_ranges(config: Any) -> None:
    kind: Any = type(config)
    for name, allowed in field_ranges(kind).items():
        check_value(name, getattr(config, name), [resolve(allowed_range, config) for allowed_range in allowed])


def check_value(name: str, value: Any, allowed: Iterable[Range]) -> None:
    """Raise ValueError if the value of the field `name` is outside one of these ranges. None is always allowed."""
    for allowed_range in allowed:
        if value is not None and not allowed_range.holds(value):
            subject = "each" if isinstance(allowed_range, Each) else "it"
            printed = repr(value) if isinstance(value, str) else value
            raise ValueError(f"{name} is {printed}; {subject} must be {allowed_range.words}")


@functools.cache
def field_ranges(kind: Any) -> Mapping[str, tuple[Range, ...]]:
    """Return the ranges of the fields that have any, keyed by field name, in declaration order."""
    hints = typing.get_type_hints(kind, include_extras=True)
    fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(kind)
    ranges = {field.name: tuple(type_ranges(hints[field.name])) for field in fields}
    return {name: allowed for name, allowed in ranges.items() if allowed}


def type_ranges(to: Any) -> Iterator[Range]:
    """Yield the ranges that a declared type implies for values other than None.

    A union of several types has no range, because its members may have different ones.
    """
    origin = get_origin(to)
    members = get_args(to)
    if origin is Annotated:
        yield from (annotation for annotation in to.__metadata__ if isinstance(annotation, Range))
        yield from type_ranges(members[0])
    elif origin is Literal:
        yield OneOf(members)
    elif origin in (Union, types.UnionType):
        value_types = [member for member in members if member is not type(None)]
        if len(value_types) == 1:
            yield from type_ranges(value_types[0])
    elif origin is tuple and members[1:] == (Ellipsis,):
        if get_origin(members[0]) is Literal:
            yield SomeOf(get_args(members[0]))
        else:
            yield from map(Each, type_ranges(members[0]))


def resolve(allowed: Range, config: Any) -> Range:
    """Return the range, with the other field that it refers to replaced by its value."""
    if type(allowed) is UpTo:
        return dataclasses.replace(allowed, limit=getattr(config, allowed.field))
    return allowed


def with_defaults(config: T, names: Iterable[str], **values: Any) -> T:
    """Return the config with the fields in `names` reset to their defaults and other fields set to `values`."""
    default = type(config)()
    changes = {name: getattr(default, name) for name in names} | values
    return dataclasses.replace(config, **changes)  # type: ignore[type-var]  # a config is a dataclass


def describe_range(config: Any, name: str) -> str:
    """Describe the allowed values of a config field. Returns an empty string if only the type restricts them."""
    kind: Any = type(config)
    return ", ".join(resolve(allowed_range, config).words for allowed_range in field_ranges(kind).get(name, ()))
