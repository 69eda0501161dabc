"""The fields of an audit's config as a user sets them: type, default, range, published values and meaning of each."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import re
import textwrap
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from orchestrator.errors import SpecError
from orchestrator.spec.config_parts import plain, walk
from orchestrator.spec.fields import alternatives, field_types, nearest, text
from tasks.contract.audit import Audit
from tasks.contract.ranges import Ranged, describe_range
from tasks.datasets.dataset import Dataset
from tasks.datasets.places import DESCRIPTIONS

OURS = "Ours: "  # begins the meaning of a setting that is not the paper's
WORDS = {int: "whole number", float: "number", str: "text", bool: "true or false"}
LONG = 70  # characters of a value
SAMPLES: Mapping[type, Any] = {str: "x", int: 1, float: 1.0}


@functools.cache
def meanings(config: Any) -> Mapping[str, str]:
    """Field -> its meaning in one line; fields without a docstring are left out, as all are without the source."""
    found: dict[str, str] = {}
    for kind in reversed(config.__mro__):
        found.update(_field_docstrings(kind) if kind is not object else {})
    return found


def _field_docstrings(kind: Any) -> dict[str, str]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError, SyntaxError):  # a class without a source
        return {}
    statements = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in itertools.pairwise(statements)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


@dataclass(frozen=True)
class DescribedField:
    """A field by its dotted path.

    `default` is in command-line syntax, `allowed` empty where anything of the type is. `published` are the values of
    the presets that repeat the paper, each with these presets; None for a setting that the paper does not have, and
    below another field. `of` names the kind of value that has the field, where there are several; `below` are the
    fields of its value.
    """

    path: str
    type: str
    default: str
    allowed: str
    published: Mapping[str, tuple[str, ...]] | None
    meaning: str
    of: str
    below: tuple[str, ...]


def describe_fields(audit: Audit) -> dict[str, DescribedField]:
    """Every field of the audit's config by its dotted path, each before those below it."""
    config = _example(audit.config, audit)
    return {field.path: field for field in _fields(audit.config, config, audit, "", "")}


def find_fields(
    fields: Mapping[str, DescribedField], path: str, audit: str, presets: Iterable[str] = ()
) -> list[DescribedField]:
    """The field of this path and all below it. Raises SpecError with the nearest name where there is none."""
    if path not in fields:
        names = [each.rpartition(".")[2] for each in fields]
        near = next((each for each in fields if each.endswith(f".{path}")), "")
        hint = f"; did you mean {near!r}?" if near else nearest(path, [*presets, *fields]) or nearest(path, names)
        raise SpecError(f"{audit} has no field or preset {path!r}{hint or '; engram show ' + audit + ' lists them'}")
    return [field for each, field in fields.items() if each == path or each.startswith(f"{path}.")]


def _fields(kind: Any, value: Any, audit: Audit, above: str, of: str) -> Iterator[DescribedField]:
    """The fields of this kind; `value` is one of it, None where none could be made."""
    means = meanings(kind)
    for name, to in field_types(kind).items():
        path = f"{above}{name}"
        kinds = _configs(to)
        here = getattr(value, name, None)
        below: dict[str, DescribedField] = {}
        for part in sorted(kinds, key=lambda part: not isinstance(here, part)):  # the default's own kind first
            inner = here if isinstance(here, part) else _example(part, audit)
            called = _type_name(part) if len(kinds) > 1 else ""
            for field in _fields(part, inner, audit, f"{path}.", called):
                below.setdefault(field.path, field)
        meaning = means.get(name, "")
        yield DescribedField(
            path,
            _type(to),
            _default(kind, name, here),
            _allowed_values(value, name, to),
            None if above or meaning.startswith(OURS) else _published_values(audit, name),
            meaning,
            of,
            tuple(below),
        )
        yield from below.values()


def _configs(to: Any) -> list[Any]:
    """The dataclasses with fields of their own that a value of this type may be, or its elements."""
    held = [kind for kind in alternatives(to) if dataclasses.is_dataclass(kind) and not hasattr(kind, "identity")]
    for kind in alternatives(to):
        if get_origin(kind) is tuple:
            held.extend(part for member in get_args(kind) if member is not Ellipsis for part in _configs(member))
    return list(dict.fromkeys(held))


def _type_name(kind: Any) -> str:
    """`data set` of Dataset, `model file` of ModelFile."""
    return "data set" if kind is Dataset else re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind.__name__).lower()


def _type(to: Any) -> str:
    """A declared type in words."""
    if to in WORDS:
        return WORDS[to]
    origin, members = get_origin(to), get_args(to)
    if origin is Literal:
        return "one of " + ", ".join(map(str, members))
    if origin is tuple:
        each = [_type(member) for member in members if member is not Ellipsis]
        if Ellipsis not in members:
            return f"[{', '.join(each)}]"
        return "some of " + each[0].removeprefix("one of ") if get_origin(members[0]) is Literal else f"list: {each[0]}"
    if len(alternatives(to)) > 1:
        return " or ".join("none" if each is type(None) else _type(each) for each in alternatives(to))
    return _type_name(to)


def _default(kind: Any, name: str, value: Any) -> str:
    field = next(field for field in dataclasses.fields(kind) if field.name == name)
    if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
        return "required"
    return value_text(value)


def value_text(value: Any) -> str:
    """A value as it is set: a config by its text form or by its fields; empty where these are many."""
    if isinstance(value, tuple):
        return f"[{','.join(map(value_text, value))}]"
    if dataclasses.is_dataclass(value) and not hasattr(value, "identity"):
        kind: Any = type(value)
        if hasattr(kind, "parse") and kind.__str__ is not object.__str__:
            return str(value)
        settings = "{" + ", ".join(f"{name}: {text(plain(getattr(value, name)))}" for name in field_types(kind)) + "}"
        return settings if len(settings) < LONG else ""
    return text(plain(value))


def _allowed_values(value: Any, name: str, to: Any) -> str:
    """The values that the field's type allows, in words; empty where it takes all."""
    if value is None:
        return ""
    kinds: tuple[Any, ...] = alternatives(to)
    if Dataset in kinds:
        return "one of " + ", ".join(DESCRIPTIONS) + ", each perhaps with #HEIGHTxWIDTH, #grey, #rgb or #bits12"
    declared = describe_range(value, name) if isinstance(value, Ranged) else ""
    says = ["" if declared == _type(to) else declared, *(getattr(kind, "choices", "") for kind in kinds)]
    return ", ".join(filter(None, says))


def _try_make(kind: Any, **fields: Any) -> list[Any]:
    try:
        return [kind(**fields)]
    except (ValueError, TypeError):
        return []


def _example(kind: Any, audit: Audit) -> Any:
    """A value of this kind: its defaults, else one from the audit's presets, else a made-up one; None without any."""
    made = _try_make(kind)
    if made:
        return made[0]
    for preset in audit.presets:
        for cell in audit.cells(preset):
            for _, part in walk(cell):
                if type(part) is kind:
                    return part
    hints = typing.get_type_hints(kind)
    none = dataclasses.MISSING
    needed = [
        field.name for field in dataclasses.fields(kind) if field.default is none and field.default_factory is none
    ]
    samples = {name: SAMPLES.get(hints[name]) or _sample(hints[name]) for name in needed}
    return next(iter(_try_make(kind, **samples)), None)


def _sample(to: Any) -> Any:
    return to.parse("x") if hasattr(to, "parse") else None


def _published_values(audit: Audit, name: str) -> dict[str, tuple[str, ...]]:
    """Value -> the presets that repeat the paper with it, in their order; values of many fields are left out."""
    values: dict[str, list[str]] = {}
    for preset in (preset for preset, what in audit.wording.repeats.items() if not what.startswith(OURS.lower())):
        for cell in audit.cells(preset):
            presets = values.setdefault(value_text(getattr(cell, name)), [])
            if preset not in presets:
                presets.append(preset)
    return {value: tuple(presets) for value, presets in values.items() if value}
