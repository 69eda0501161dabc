"""Convert values to the declared types of their fields, or raise a one-line error.

    coerce("3", int, "canaries")       -> 3
    coerce(1, float, "learning_rate")  -> 1.0
    coerce("digits", Dataset, "data")  -> Dataset("digits")

Command lines supply text, YAML supplies typed values and Python supplies either. All of them are converted to the same
value and therefore the same key.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import itertools
import json
import math
import operator
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Union

from orchestrator.errors import SpecError
from orchestrator.spec.yaml_text import YamlError, parse_yaml
from tasks.contract.alternatives import TYPE, from_text, tag_of, tagged_members, text_forms
from tasks.contract.quantities import QUANTITIES, ByteCount, Duration

Reader = Callable[[Any, str], Any]  # (value, its dotted path) -> value of the declared type
NONE = "none"  # tag of the alternative that null also selects
TRUTHS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def nearest(word: str, names: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` if a similar name exists, otherwise an empty string."""
    name = most_similar(word, names)
    if name:
        return f"; did you mean {name!r}?"
    return ""


def most_similar(word: str, names: Iterable[str]) -> str:
    """Return the known name most similar to a word, or an empty string if none is similar."""
    return next(iter(difflib.get_close_matches(word, list(names), n=1, cutoff=0.5)), "")


def alternatives(declared_type: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the type itself."""
    if typing.get_origin(declared_type) in (Union, types.UnionType):
        return typing.get_args(declared_type)
    return (declared_type,)


@functools.cache
def field_types(config: Any) -> Mapping[str, Any]:
    """Map field names to declared types, in declaration order."""
    hints = typing.get_type_hints(config)
    return {field.name: hints[field.name] for field in dataclasses.fields(config)}


def coerce(value: Any, declared_type: Any, field_path: str) -> Any:
    """Convert a value to `declared_type`. Raises SpecError, naming `field_path`, if this is impossible."""
    return reader(declared_type)(value, field_path)


@functools.cache
def readers(config: Any) -> Mapping[str, Reader]:
    """Map each field name to the reader for its declared type.

    Cached because a large plan reads many configurations.
    """
    result = {}
    for name, declared_type in field_types(config).items():
        result[name] = reader(declared_type)
    return result


@functools.cache
def kinds(config: Any) -> Mapping[str, frozenset[Any]]:
    """Map each field name to the dataclasses that its declared type allows."""
    result = {}
    for name, declared_type in field_types(config).items():
        result[name] = frozenset(filter(dataclasses.is_dataclass, alternatives(declared_type)))
    return result


def reader(declared_type: Any) -> Reader:
    """Return a function that applies `coerce` for this type.

    Results are not cached by type: unions compare equal in any order, but the order affects the result.
    """
    if declared_type in _SCALARS:
        return _SCALARS[declared_type]
    if declared_type in QUANTITIES:
        return lambda value, field_path: _quantity(value, declared_type, field_path)
    origin = typing.get_origin(declared_type)
    members = typing.get_args(declared_type)
    if origin is Literal:
        return lambda value, field_path: _literal(value, members, field_path)
    if origin in (Union, types.UnionType):
        return _union(members)
    if origin is tuple:
        return _tuple(members)
    if dataclasses.is_dataclass(declared_type) and isinstance(declared_type, type):
        return lambda value, field_path: _dataclass(value, declared_type, field_path)

    def refuse(value: Any, field_path: str) -> Any:  # noqa: ARG001
        raise SpecError(
            f"{field_path}: fields of type {declared_type!r} have no stable form; use numbers, text, tuples or "
            "dataclasses"
        )

    return refuse


def text(value: Any) -> str:
    """Format a plain value in command-line syntax. A mapping is formatted as JSON."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{','.join(map(text, value))}]"
    if isinstance(value, Mapping):
        return json.dumps(value)
    return str(value)


def split_list(text: str) -> list[str]:
    """Split a list in command-line syntax, such as `1,2`, `[1,2]`, `[[5,0.1],[9,0.01]]` or `[{query: 1},{outside: 1}]`.

    If the brackets match, commas inside brackets do not separate values.
    """
    text = text.strip()
    open_at = _open_brackets(text)
    if text and (open_at[-1] or min(open_at) < 0):
        values = text.strip("[]()").split(",")
    else:
        outer = int(text[:1] in ("[", "(") and 0 not in open_at[:-1])
        cuts = []
        for position, count in enumerate(open_at):
            if text[position] == "," and count == outer:
                cuts.append(position)
        ends = [outer - 1, *cuts, len(text) - outer]
        values = [text[start + 1 : end] for start, end in itertools.pairwise(ends)]
    return [value for value in map(str.strip, values) if value]


def _open_brackets(text: str) -> list[int]:
    """Return the number of open brackets after each character."""
    return list(itertools.accumulate((character in "[({") - (character in "])}") for character in text))


def replace_fields(config: Any, changes: Mapping[str, Any]) -> Any:
    """Set all of these dotted paths at once, so that ranges are checked on the final configuration."""
    paths = {tuple(path.split(".")): value for path, value in changes.items()}
    if paths:
        return _replace_below(config, paths, ())
    return config


def _replace_below(
    config: Any, changes: Mapping[tuple[str, ...], Any], parent_path: tuple[str, ...], declared: Any = None
) -> Any:
    """Return the configuration with fields changed.

    `declared` is the type of its parent field, which lists alternatives.
    """
    kind: Any = type(config)
    types = field_types(kind)
    values = {name: getattr(config, name) for name in types}
    changes_by_field: dict[str, dict[tuple[str, ...], Any]] = {}
    for (name, *nested_names), value in changes.items():
        full_path = ".".join((*parent_path, name, *nested_names))
        if name not in types:
            fields = ", ".join(types) or "no fields"
            hint = _alternatives_with(name, declared, ".".join(parent_path)) or nearest(name, types)
            raise SpecError(f"unknown field {full_path!r}: {describe_kind(kind)} has {fields}{hint}")
        if nested_names:
            changes_by_field.setdefault(name, {})[tuple(nested_names)] = value
        elif isinstance(value, str) and value in tagged_members(types[name]):
            values[name] = _select(values[name], tagged_members(types[name])[value], changes, (*parent_path, name))
        else:
            values[name] = coerce(value, types[name], full_path)
    for name, nested_changes in changes_by_field.items():
        nested_path = (*parent_path, name)
        if (name,) in changes:
            new_kind = None
        else:
            new_kind = _other_kind(values[name], types[name], nested_changes)
        if new_kind is not None:
            values[name] = coerce(_unflatten(nested_changes), new_kind, ".".join(nested_path))
        elif not dataclasses.is_dataclass(values[name]) or hasattr(values[name], "identity"):
            full_path = ".".join((*nested_path, *next(iter(nested_changes))))
            raise SpecError(f"{full_path}: {name!r} has no fields below it; set it as {name}=VALUE")
        else:
            values[name] = _replace_below(values[name], nested_changes, nested_path, types[name])
    return _build(kind, values, ", ".join(".".join((*parent_path, *path)) for path in changes))


def _alternatives_with(name: str, declared: Any, path: str) -> str:
    """Return `; it is a field of question=documents` if another alternative has the field, else an empty string."""
    tags = []
    for tag, member in tagged_members(declared).items():
        if name in field_types(member):
            tags.append(tag)
    if tags:
        return f"; it is a field of {' or '.join(f'{path}={tag}' for tag in tags)}"
    return ""


def _select(value: Any, kind: Any, changes: Mapping[tuple[str, ...], Any], path: tuple[str, ...]) -> Any:
    """Return the current value if it is of the chosen alternative, otherwise a new one with the required fields set.

    `changes` apply to the configuration that contains the field, and `path` is the path of the field itself.
    """
    if type(value) is kind:
        return value
    needed_names = required_fields(kind)
    required = {}
    for (name, *nested_names), new in changes.items():
        if name == path[-1] and nested_names and nested_names[0] in needed_names:
            required[tuple(nested_names)] = new
    return coerce(_unflatten(required), kind, ".".join(path))


def describe_kind(kind: Any) -> str:
    """Return the tag of an alternative, or the class name of any other configuration class."""
    return tag_of(kind) or str(kind.__name__)


def _other_kind(value: Any, declared_type: Any, below: Iterable[tuple[str, ...]]) -> Any:
    """Return the type of the value to build from the fields in `below`, or None if they modify the current `value`.

    A value is built if there is none yet, or if `declared_type` is a union and a field is set that another member
    requires: `feature.words` replaces a glyph by words. A tagged alternative is replaced only by giving another tag.
    """
    if tagged_members(declared_type) and value is not None:
        return None
    kinds = []
    for kind in alternatives(declared_type):
        if dataclasses.is_dataclass(kind) and not hasattr(kind, "identity"):
            kinds.append(kind)
    if value is None:
        return declared_type if kinds else None
    if len(kinds) < 2 or type(value) not in kinds:
        return None
    current: Any = type(value)
    names = {first for first, *_ in below} - set(field_types(current))
    return next((kind for kind in kinds if names & required_fields(kind)), None)


def required_fields(kind: Any) -> set[str]:
    """Return the names of the fields without a default."""
    none = dataclasses.MISSING
    result = set()
    for field in dataclasses.fields(kind):
        if field.default is none and field.default_factory is none:
            result.add(field.name)
    return result


def _unflatten(below: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    """Convert values by path to nested mappings. The tag of an alternative is stored as `type` among its fields."""
    tree: dict[str, Any] = {}
    for (*path, last), value in sorted(below.items(), key=lambda entry: len(entry[0])):
        inner = tree
        for name in path:
            if isinstance(inner.get(name), str):
                inner[name] = {TYPE: inner[name]}
            inner = inner.setdefault(name, {})
        inner[last] = value
    return tree


def _build(declared_type: type, values: Mapping[str, Any], field_path: str) -> Any:
    try:
        return declared_type(**values)
    except (ValueError, TypeError) as error:  # ranges are checked when the object is constructed
        message = str(error)
        is_named = any(message.startswith(path.rpartition(".")[2]) for path in field_path.split(", "))
        raise SpecError(message if is_named and "." not in field_path else f"{field_path}: {message}") from None


def _dataclass(value: Any, declared_type: type, field_path: str) -> Any:
    if isinstance(value, declared_type):
        if hasattr(declared_type, "identity"):
            return value
        fields = {
            name: convert(getattr(value, name), f"{field_path}.{name}")
            for name, convert in readers(declared_type).items()
        }
        is_unchanged = type(value) is declared_type and all(
            getattr(value, name) is part for name, part in fields.items()
        )
        if is_unchanged:
            return value
        return _build(declared_type, fields, field_path)
    if isinstance(value, str) and value.startswith("{") and not hasattr(declared_type, "identity"):
        value = _mapping(value, field_path)
    if tag_of(declared_type):
        value = _without_tag(value, declared_type, field_path)
    if isinstance(value, str) and hasattr(declared_type, "parse"):
        try:
            return declared_type.parse(value)
        except ValueError as error:
            raise SpecError(f"{field_path} is {value!r}: {error}") from None
    if not isinstance(value, Mapping):
        raise SpecError(f"{field_path} is {value!r}; its fields are {', '.join(field_types(declared_type))}")
    types = field_types(declared_type)
    for name in value:
        if name not in types:
            raise SpecError(
                f"unknown field {field_path}.{name}: {field_path} has {', '.join(types)}{nearest(str(name), types)}"
            )
    for name in types:
        if name in required_fields(declared_type) - set(value):
            present = ""
            if value:
                present = f"; only {', '.join(value)} is given"
            raise SpecError(f"{field_path}.{name} is missing{present}")
    return _build(
        declared_type,
        {name: readers(declared_type)[name](v, f"{field_path}.{name}") for name, v in value.items()},
        field_path,
    )


def _without_tag(value: Any, declared_type: type, field_path: str) -> Any:
    """Return the fields of an alternative selected by its tag, given as text or as the `type` entry of a mapping."""
    if isinstance(value, Mapping):
        given_tag = value.get(TYPE, tag_of(declared_type))
    else:
        given_tag = value
    if given_tag != tag_of(declared_type):
        raise SpecError(f"{field_path} is {given_tag!r}; it must be {tag_of(declared_type)}")
    if isinstance(value, Mapping):
        return {name: part for name, part in value.items() if name != TYPE}
    return {}


def _mapping(text: str, field_path: str) -> Any:
    """Parse the fields of a YAML or JSON mapping such as `{query: 1.0, calibration: 1.0}`."""
    try:
        return parse_yaml(text)
    except YamlError:
        raise SpecError(f"{field_path} is {text!r}; write it as {{name: value, ...}}") from None


def _literal(value: Any, allowed: tuple[Any, ...], field_path: str) -> Any:
    for choice in allowed:
        if value == choice and isinstance(value, bool) == isinstance(choice, bool):
            return choice
        if isinstance(value, str) and not isinstance(choice, str) and value == str(choice):
            return choice
    names = ", ".join(map(str, allowed))
    raise SpecError(f"{field_path} is {value!r}; allowed: {names}{nearest(str(value), map(str, allowed))}")


def _union(members: tuple[Any, ...]) -> Reader:
    optional = type(None) in members
    reads = [(member, reader(member)) for member in members if member is not type(None)]
    tagged = {tag_of(member): as_member for member, as_member in reads if tag_of(member)}
    members_by_tag = {tag_of(member): member for member, _ in reads if tag_of(member)}

    def read(value: Any, field_path: str) -> Any:
        if optional and (value is None or value in ("null", "none", "None")):
            return None
        if tagged and isinstance(value, str) and value.startswith("{"):
            value = _mapping(value, field_path)
        if NONE in tagged and (value is None or value == "null"):
            value = NONE
        if isinstance(value, Mapping):
            tag = value.get(TYPE)
        else:
            tag = value
        if tagged and isinstance(tag, str):
            if tag in tagged:
                return tagged[tag](value, field_path)
            built = value_of_text(members_by_tag, tag, field_path)
            if built is not None:
                return built
            if len(tagged) == len(reads):
                forms = [*tagged, *text_forms(members_by_tag)]
                raise SpecError(f"{field_path} is {tag!r}; allowed: {', '.join(forms)}{nearest(tag, tagged)}")
        reasons = []
        for member, as_member in reads:
            try:
                return as_member(value, field_path)
            except SpecError as error:
                reasons.append((_fit(value, member), str(error)))
        fit, reason = max(reasons, key=lambda refusal: refusal[0])  # the first one if several fit equally well
        raise SpecError(reason + (_other_forms(value, [member for member, _ in reads]) if fit <= 0 else ""))

    return read


def value_of_text(members: Mapping[str, Any], text: str, field_path: str) -> Any:
    """Return the alternative that text other than a tag builds, or None. Raises SpecError if the text is invalid."""
    try:
        return from_text(members, text)
    except ValueError as error:
        raise SpecError(f"{field_path} is {text!r}: {error}") from None


def _fit(value: Any, member: Any) -> float:
    """Score how well a rejected value fits a union member. The error of the best-fitting member is reported."""
    if not isinstance(member, type) or not dataclasses.is_dataclass(member):
        return 0
    if isinstance(value, member):
        return math.inf
    if isinstance(value, str):
        prefix = getattr(member, "prefix", "")
        if value.startswith(prefix):
            return len(prefix)
        return 0
    if isinstance(value, Mapping):
        names = set(field_types(member))
        required_names = required_fields(member)
        # Fields unique to one member are stronger evidence than the number of shared fields.
        return (
            len(names & set(value))
            - len(set(value) - names)
            + len(required_names & set(value))
            - len(required_names - set(value))
        )
    return 0


def _other_forms(value: Any, members: Iterable[Any]) -> str:
    """Return `, or begin with words: or picture:` for text without any member's prefix, otherwise an empty string."""
    prefixes = [member.prefix for member in members if hasattr(member, "prefix")]
    if not isinstance(value, str) or not prefixes:
        return ""
    hint = ""
    if ":" in value:
        hint = nearest(value.partition(":")[0] + ":", prefixes)
    return f", or begin with {' or '.join(prefixes)}{hint}"


def _tuple(members: tuple[Any, ...]) -> Reader:
    is_any_length = len(members) == 2 and members[1] is Ellipsis
    reads = [reader(member) for member in (members[:1] if is_any_length else members)]

    def read(value: Any, field_path: str) -> Any:
        if isinstance(value, str):
            value = split_list(value)
        if not isinstance(value, list | tuple):
            raise SpecError(f"{field_path} is {value!r}; it must be a list")
        if not is_any_length and len(value) != len(reads):
            raise SpecError(f"{field_path} has {len(value)} values; it must have {len(reads)}")
        if is_any_length:
            element_readers = reads * len(value)
        else:
            element_readers = reads
        elements = tuple(
            as_member(part, f"{field_path}[{i}]")
            for i, (part, as_member) in enumerate(zip(value, element_readers, strict=True))
        )
        if isinstance(value, tuple) and all(map(operator.is_, elements, value)):
            return value
        return elements

    return read


def _bool(value: Any, field_path: str) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in TRUTHS:
        return TRUTHS[value.lower()]
    raise SpecError(f"{field_path} is {value!r}; it must be true or false")


def _int(value: Any, field_path: str) -> int:
    if type(value) is int:
        return value
    problem = SpecError(f"{field_path} is {value!r}; it must be a whole number")
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise problem
    if isinstance(value, float):
        if not value.is_integer():
            raise problem
        return int(value)
    try:
        return int(value)
    except ValueError:
        raise problem from None


def _float(value: Any, field_path: str) -> float:
    if type(value) is float and value and math.isfinite(value):
        return value
    problem = SpecError(f"{field_path} is {value!r}; it must be a finite number")
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise problem
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise problem from None
    if not math.isfinite(number):
        raise problem
    return number + 0.0  # -0.0 becomes 0.0, so that both have the same key


def _quantity(value: Any, declared_type: type[ByteCount] | type[Duration], field_path: str) -> ByteCount | Duration:
    try:
        return declared_type.parse(value)
    except (ValueError, TypeError):
        raise SpecError(f"{field_path} is {value!r}; it must be a {declared_type.words}") from None


def _str(value: Any, field_path: str) -> str:
    if not isinstance(value, str):
        raise SpecError(f"{field_path} is {value!r}; it must be text")
    return value


_SCALARS: Mapping[Any, Reader] = {bool: _bool, int: _int, float: _float, str: _str}
