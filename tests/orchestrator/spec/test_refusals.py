"""Every field of every audit's configuration refuses values of another type or outside its range, with one line.

The test finds the fields from the declared types: a new field needs no line here. The golden file lists the types,
ranges and defaults; a changed bound is a difference there and in `docs/schema/`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import typing
from collections.abc import Iterator
from typing import Any, get_args, get_origin

import pytest

from orchestrator.errors import SpecError
from orchestrator.spec import audits
from orchestrator.spec.config_parts import plain, walk
from orchestrator.spec.fields import alternatives, field_types, replace_fields, required_fields
from tasks.audits.membership.given_config import MemberColumn
from tasks.audits.unique_feature.questions import SomeCanaries
from tasks.contract.ranges import (
    Ascending,
    AtLeast,
    AtMost,
    Between,
    Each,
    Finite,
    Matching,
    MultipleOf,
    OneOf,
    Range,
    Share,
    SomeOf,
    UpTo,
    ZeroOr,
    field_ranges,
    resolve,
)
from tasks.datasets.dataset import Dataset
from tasks.external.model_file import ModelFile
from tasks.programs.function import TrainingFunction
from tasks.worker.files import File
from tests.support.golden import Golden

AUDITS = ("deja_vu", "density", "forgetting", "membership", "relational", "text", "unique_feature")
STEP = 1e-3  # how far beyond a bound of floats
# Texts that one of the patterns of `Matching` does not match.
TEXTS = ("", " ", "?!", "\n", "a b")
# Values of required fields of classes that no preset has an instance of, by class and name or by type.
BY_NAME: dict[str, Any] = {
    "Given.shape": (28, 28, 1),
    "TwoSets.members": Dataset("photos"),
    "MarkedImages.data": Dataset("list:images.csv"),
    "ReferenceRank.references": (ModelFile("one.pt"), ModelFile("two.pt")),
}
BY_TYPE: dict[Any, Any] = {
    Dataset: Dataset("digits"),
    File: File("outputs.csv"),
    ModelFile: ModelFile("model.pt"),
    MemberColumn: MemberColumn("member"),
    TrainingFunction: TrainingFunction("own:train"),
    int: 3,
    float: 0.5,
    str: "JO",
}


def nested_kinds(to: Any) -> Iterator[type]:
    """The classes of configurations in a declared type."""
    if isinstance(to, type) and dataclasses.is_dataclass(to):
        yield to
        return
    for member in get_args(to):
        yield from nested_kinds(member)


@functools.cache
def config_kinds() -> tuple[Any, ...]:
    """Every class of configurations that an audit's specification can name, in the order of declaration."""
    kinds: dict[Any, None] = {}
    waiting = [audits.find(name).audit.config for name in AUDITS]
    while waiting:
        kind = waiting.pop(0)
        if kind not in kinds and not hasattr(kind, "identity"):
            kinds[kind] = None
            for to in typing.get_type_hints(kind).values():
                waiting.extend(nested_kinds(to))
    return tuple(kinds)


@functools.cache
def instances() -> dict[Any, Any]:
    """A valid instance of each class: the first in a preset, or its defaults."""
    by_class: dict[Any, Any] = {}
    for name in AUDITS:
        audit = audits.find(name).audit
        for preset in audit.presets:
            for cell in audit.cells(preset):
                for _, part in walk(cell):
                    by_class.setdefault(type(part), part)
    for kind in config_kinds():
        if kind not in by_class:
            by_class[kind] = kind(**{name: required_value(kind, name) for name in required_fields(kind)})
    return by_class


def required_value(kind: Any, name: str) -> Any:
    to = field_types(kind)[name]
    if f"{kind.__name__}.{name}" in BY_NAME:
        return BY_NAME[f"{kind.__name__}.{name}"]
    return BY_TYPE[to] if to in BY_TYPE else (BY_TYPE[get_args(to)[0]],)


def values_outside(allowed: Range, to: Any) -> list[Any]:
    """Values just outside a range, of the declared type."""
    step = 1 if int in alternatives(to) else STEP
    match allowed:
        case AtLeast(low=low):
            return [low - step]
        case AtMost(high=high):
            return [high + step]
        case UpTo(limit=limit, below=below):
            assert limit is not None
            return [limit if below else limit + step]
        case Between(low=low, high=high):
            return [low - step, high + step]
        case Finite(zero=zero):
            return [-step] if zero else [0.0, -step]
        case Share(zero=zero, one=one):
            return [-step, 1 + step, *([] if zero else [0.0]), *([] if one else [1.0])]
        case MultipleOf(number=number):
            return [0, -number, number + 1, 100 * number + 1]
        case SomeCanaries():
            return [0, -1]
        case ZeroOr(range=inner):
            return [value for value in values_outside(inner, to) if value != 0] or [-step]
        case Ascending(low=low, required=required):
            return [(low + 1, low), (low, low), (low - 1,), *([()] if required else [])]
        case Matching():
            return [next(text for text in TEXTS if not allowed.holds(text))]
        case OneOf():
            return ["no such value"]
        case SomeOf():
            return [(), ("no such value",)]
        case Each(range=inner):
            (element, *_) = get_args(next(member for member in alternatives(to) if get_origin(member) is tuple))
            return [(value,) for value in values_outside(inner, element)]
    raise AssertionError(f"{allowed} has no values here")


def values_at_bounds(allowed: Range) -> list[Any]:
    match allowed:
        case AtLeast(low=low):
            return [low]
        case AtMost(high=high):
            return [high]
        case UpTo(limit=limit, below=False):
            return [limit]
        case Between(low=low, high=high):
            return [low, high]
        case Share(zero=zero, one=one):
            return [0.0] * zero + [1.0] * one
        case MultipleOf(number=number):
            return [number]
        case ZeroOr():
            return [0]
        case Ascending(low=low):
            return [(low, low + 1)]
    return []


def list_ranges() -> list[Any]:
    result = []
    for kind in config_kinds():
        for name, ranges in field_ranges(kind).items():
            for allowed in ranges:
                result.append(pytest.param(kind, name, allowed, id=f"{kind.__name__}.{name} {type(allowed).__name__}"))
    return result


def list_numbers() -> list[Any]:
    """The fields whose values are numbers or truths."""
    numbers = []
    for kind in config_kinds():
        for name, to in field_types(kind).items():
            if set(alternatives(to)) <= {int, float, bool, type(None)}:
                numbers.append(pytest.param(kind, name, id=f"{kind.__name__}.{name}"))
    return numbers


def refusal(kind: Any, name: str, value: Any) -> str:
    with pytest.raises(SpecError) as caught:
        replace_fields(instances()[kind], {name: value})
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert message.startswith((f"{name} is ", f"{name}[0] is "))
    return message


@pytest.mark.parametrize(("kind", "name", "allowed"), list_ranges())
def test_values_outside_a_range_are_refused(kind: Any, name: str, allowed: Range) -> None:
    to = field_types(kind)[name]
    ranges = []
    for declared in field_ranges(kind)[name]:
        ranges.append(resolve(declared, instances()[kind]))
    resolved_range = resolve(allowed, instances()[kind])
    refusing = []
    for value in values_outside(resolved_range, to):
        message = refusal(kind, name, value)
        if isinstance(resolved_range, OneOf | SomeOf) and "; allowed: " in message:
            assert all(str(choice) in message for choice in resolved_range.values)
            refusing.append(resolved_range)
            continue
        refusing.append(next(candidate for candidate in ranges if not candidate.holds(value)))
        subject = "each" if isinstance(refusing[-1], Each) else "it"
        assert message.endswith(f"; {subject} must be {refusing[-1].words}")
    assert resolved_range in refusing
    assert all(resolved_range.holds(value) for value in values_at_bounds(resolved_range))
    if isinstance(resolved_range, Finite | Share):
        assert not any(map(resolved_range.holds, (math.nan, math.inf)))


@pytest.mark.parametrize(("kind", "name"), list_numbers())
def test_values_of_another_type_are_refused(kind: Any, name: str) -> None:
    to = field_types(kind)[name]
    words = {int: "a whole number", float: "a finite number", bool: "true or false"}
    (number,) = set(alternatives(to)) - {type(None)}
    message = refusal(kind, name, "many")
    assert f"it must be {words[number]}" in message
    if number is float:
        for value in (math.nan, math.inf):
            assert words[float] in refusal(kind, name, value)
    if number is int:
        refusal(kind, name, 1.5)


def test_types_ranges_and_defaults_are_known(golden: Golden) -> None:
    for kind in config_kinds():
        descriptions = {}
        for field in dataclasses.fields(kind):
            words = [allowed.words for allowed in field_ranges(kind).get(field.name, ())]
            has_default = field.default is not dataclasses.MISSING
            default = plain(field.default) if has_default else "required or made"
            descriptions[field.name] = [*words, "default", default]
        golden(descriptions, f"{kind.__module__.removeprefix('tasks.')}.{kind.__name__}")
