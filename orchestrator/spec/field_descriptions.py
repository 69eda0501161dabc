"""Configuration fields of an audit as a user sets them: type, default, range, published values and meaning."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import operator
import re
import sys
import typing
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args, get_origin

from orchestrator.errors import SpecError
from orchestrator.spec.config_parts import plain, walk
from orchestrator.spec.fields import alternatives, field_types, most_similar, required_fields, text
from orchestrator.spec.short_names import find_paths
from tasks.contract.alternatives import TYPE, tag_of, tagged_members
from tasks.contract.audit import Audit
from tasks.contract.quantities import ByteCount, Duration
from tasks.contract.ranges import Ranged, describe_range
from tasks.datasets.dataset import Dataset
from tasks.datasets.places import DESCRIPTIONS

OURS = "Ours: "  # starts the meaning of a setting that does not come from the paper
WORDS: Mapping[Any, str] = {
    int: "whole number",
    float: "number",
    str: "text",
    bool: "true or false",
    ByteCount: ByteCount.words,
    Duration: Duration.words,
}
LONG = 70  # maximum characters of a value
SAMPLES: Mapping[type, Any] = {str: "x", int: 1, float: 1.0}


@functools.cache
def meanings(config: Any) -> Mapping[str, str]:
    """Map each documented field to its one-line meaning. Returns an empty mapping if the source is unavailable."""
    docstrings: dict[str, str] = {}
    for kind in reversed(config.__mro__):
        docstrings.update(_field_docstrings(kind) if kind is not object else {})
    return docstrings


def _field_docstrings(kind: Any) -> Mapping[str, str]:
    try:
        source = inspect.getsource(sys.modules[kind.__module__])
        return _documented_classes(source).get(kind.__qualname__, {})
    except (KeyError, OSError, TypeError, SyntaxError):  # the source of the module is unavailable
        return {}


@functools.cache  # to have `inspect` find a class, the whole module is parsed, and most modules have several
def _documented_classes(source: str) -> Mapping[str, Mapping[str, str]]:
    """Map the qualified name of each class in a module's source to its documented fields."""
    fields_by_class: dict[str, Mapping[str, str]] = {}
    waiting: deque[tuple[str, ast.AST]] = deque([("", ast.parse(source))])
    while waiting:
        prefix, node = waiting.popleft()
        if isinstance(node, ast.ClassDef):
            fields_by_class.setdefault(prefix + node.name, _documented_fields(node.body))
            prefix += f"{node.name}."
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            prefix += f"{node.name}.<locals>."
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.expr):
                waiting.append((prefix, child))
    return fields_by_class


def _documented_fields(statements: Sequence[ast.stmt]) -> Mapping[str, str]:
    return {
        statement.target.id: " ".join(text.value.value.split())
        for statement, text in itertools.pairwise(statements)
        if isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


@dataclass(frozen=True)
class DescribedField:
    """A configuration field, identified by its dotted path.

    `default` uses command-line syntax. `allowed` is empty if every value of the type is allowed. `published` maps the
    values used in presets that repeat the paper to these presets. It is None for a setting that the paper lacks, and
    may be None for a nested field. If there are several kinds of value, `of` names the kinds that have the field.
    `below` lists the fields nested in its value. `choices` maps the tags of its alternatives to their descriptions.
    """

    path: str
    type: str
    default: str
    allowed: str
    published: Mapping[str, tuple[str, ...]] | None
    meaning: str
    of: str
    below: tuple[str, ...]
    choices: Mapping[str, str] = field(default_factory=dict)


def describe_fields(audit: Audit, tag: str = "") -> dict[str, DescribedField]:
    """Return every configuration field of the audit by dotted path, each before its nested fields.

    If a tag is given, only the alternative with this tag is included.
    """
    config = _example(audit.config, audit)
    fields = {}
    for described in _fields(audit.config, config, audit, "", "", tag):
        fields[described.path] = described
    return fields


def usual_fields(audit: Audit, fields: Mapping[str, DescribedField]) -> dict[str, str]:
    """Map the usual fields of an audit, as declared, to their paths. `Audit.usual` may contain short names.

    Raises SpecError if a name belongs to none of the audit's `fields`.
    """
    config = _example(audit.config, audit)
    paths = {}
    for name in audit.usual:
        resolved, _ = find_paths(config, {name: None})
        if resolved[name] not in fields:
            raise SpecError(f"usual has {name!r}; it must contain fields of the audit")
        paths[name] = resolved[name]
    return paths


def find_part(audit: Audit, name: str, part: str) -> list[DescribedField]:
    """Return a field and its nested fields, or the fields of the alternative with this tag.

    A field may have its short name. Returns an empty list for a preset. `name` is the name of the audit. Raises
    SpecError, which suggests the nearest name, if the audit has no such part.
    """
    fields = describe_fields(audit)
    choice = next((field.path for field in fields.values() if part in field.choices), None)
    if part not in fields and choice is not None:
        return find_fields(describe_fields(audit, part), choice, name)
    if part not in fields and part in audit.presets:
        return []
    with suppress(SpecError):  # an ambiguous name is refused below, with the nearest path
        paths, _ = find_paths(_example(audit.config, audit), {part: None})
        if paths[part] in fields:
            part = paths[part]
    return find_fields(fields, part, name, audit.presets)


def find_fields(
    fields: Mapping[str, DescribedField], path: str, audit: str, presets: Iterable[str] = ()
) -> list[DescribedField]:
    """Return the field with this path and its nested fields.

    Raises SpecError, which suggests the nearest name, if missing.
    """
    if path not in fields:
        similar_path = _most_similar_path(path, fields, presets)
        if similar_path:
            hint = f"did you mean {similar_path!r}?"
        else:
            hint = f"engram show {audit} lists them"
        raise SpecError(f"{audit} has no field or preset {path!r}; {hint}")
    result = []
    for field_path, described in fields.items():
        if field_path == path or field_path.startswith(f"{path}."):
            result.append(described)
    return result


def _most_similar_path(path: str, fields: Iterable[str], presets: Iterable[str]) -> str:
    """Return the field or preset most similar to a wrong path, or an empty string if none is similar.

    Compares the end of the path, then the whole path, then its last part.
    """
    ends: dict[str, str] = {}
    for field_path in fields:
        if field_path.endswith(f".{path}"):
            return field_path
        ends.setdefault(field_path.rpartition(".")[2], field_path)
    return most_similar(path, [*presets, *fields]) or ends.get(most_similar(path, ends), "")


def _fields(
    kind: Any, value: Any, audit: Audit, prefix: str, kinds_with_field: str, tag: str = ""
) -> Iterator[DescribedField]:
    """Yield the fields of this kind. `value` is an instance, or None if none could be created."""
    field_meanings = meanings(kind)
    for name, declared_type in field_types(kind).items():
        path = f"{prefix}{name}"
        kinds = _configs(declared_type)
        members = tagged_members(declared_type)
        if tag in members:
            kinds = [members[tag]]
        default = getattr(value, name, None)
        below: dict[str, DescribedField] = {}
        for part in sorted(kinds, key=lambda part: not isinstance(default, part)):  # the kind of the default first
            if isinstance(default, part):
                part_value = default
            else:
                part_value = _example(part, audit)
            type_name = ""
            if len(kinds) > 1 or members:
                type_name = _type_name(part)
            for described in _fields(part, part_value, audit, f"{path}.", type_name, tag):
                earlier = below.setdefault(described.path, described)
                is_own = described.path.count(".") == path.count(".") + 1  # deeper fields name their own alternatives
                if earlier is not described and is_own and earlier.of and type_name not in earlier.of.split(", "):
                    below[described.path] = replace(earlier, of=f"{earlier.of}, {type_name}")
        meaning = field_meanings.get(name, "")
        yield DescribedField(
            path,
            _type(declared_type),
            _default(kind, name, default),
            _allowed_values(value, name, declared_type),
            None if meaning.startswith(OURS) else _published_values(audit, path),
            meaning,
            kinds_with_field,
            tuple(below),
            {described: summary_of(member) for described, member in members.items()},
        )
        yield from below.values()


def _configs(declared_type: Any) -> list[Any]:
    """Return the configuration dataclasses that a value of this type, or an element of it, may be."""
    kinds = [
        kind for kind in alternatives(declared_type) if dataclasses.is_dataclass(kind) and not hasattr(kind, "identity")
    ]
    for kind in alternatives(declared_type):
        if get_origin(kind) is tuple:
            kinds.extend(part for member in get_args(kind) if member is not Ellipsis for part in _configs(member))
    return list(dict.fromkeys(kinds))


def _type_name(kind: Any) -> str:
    """Return the tag of an alternative, or else the type name in words, such as `model file` for ModelFile."""
    if tag_of(kind):
        return tag_of(kind)
    if kind is Dataset:
        return "data set"
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind.__name__).lower()


def summary_of(kind: Any) -> str:
    """Return the first docstring line of a configuration class."""
    return (inspect.getdoc(kind) or "").partition("\n")[0]


def _type(declared_type: Any) -> str:
    """Describe a declared type in words."""
    choices = tagged_members(declared_type)
    if choices:
        return "one of " + ", ".join(choices)
    if declared_type in WORDS:
        return WORDS[declared_type]
    origin = get_origin(declared_type)
    members = get_args(declared_type)
    if origin is Literal:
        return "one of " + ", ".join(map(str, members))
    if origin is tuple:
        member_types = [_type(member) for member in members if member is not Ellipsis]
        if Ellipsis not in members:
            return f"[{', '.join(member_types)}]"
        if get_origin(members[0]) is Literal:
            return "one or more of " + member_types[0].removeprefix("one of ")
        return f"list: {member_types[0]}"
    if len(alternatives(declared_type)) > 1:
        return " or ".join(
            "none" if member_types is type(None) else _type(member_types)
            for member_types in alternatives(declared_type)
        )
    return _type_name(declared_type)


def _default(kind: Any, name: str, value: Any) -> str:
    if name in required_fields(kind):
        return "required"
    return value_text(value)


def value_text(value: Any) -> str:
    """Format a value in command-line syntax.

    A configuration becomes its text form or its fields, or empty text if too long.
    """
    if isinstance(value, tuple):
        return f"[{','.join(map(value_text, value))}]"
    if dataclasses.is_dataclass(value) and not hasattr(value, "identity"):
        kind: Any = type(value)
        if hasattr(kind, "parse") and kind.__str__ is not object.__str__:
            return str(value)
        if tag_of(kind) and _try_make(kind) == [value]:
            return tag_of(kind)
        tag = []
        if tag_of(kind):
            tag = [f"{TYPE}: {tag_of(kind)}"]
        parts = []
        for name in field_types(kind):
            parts.append(f"{name}: {text(plain(getattr(value, name)))}")
        settings = "{" + ", ".join(tag + parts) + "}"
        return settings if len(settings) < LONG else ""
    return text(plain(value))


def _allowed_values(value: Any, name: str, declared_type: Any) -> str:
    """Describe the allowed values of the field. Returns an empty string if the whole type is allowed."""
    if value is None:
        return ""
    kinds: tuple[Any, ...] = alternatives(declared_type)
    if Dataset in kinds:
        return "one of " + ", ".join(DESCRIPTIONS) + ", optionally followed by #HEIGHTxWIDTH, #grey, #rgb or #bits12"
    declared = ""
    if isinstance(value, Ranged):
        declared = describe_range(value, name)
    texts = ["" if declared == _type(declared_type) else declared, *(getattr(kind, "choices", "") for kind in kinds)]
    return ", ".join(filter(None, texts))


def _try_make(kind: Any, **fields: Any) -> list[Any]:
    try:
        return [kind(**fields)]
    except (ValueError, TypeError):
        return []


def _example(kind: Any, audit: Audit) -> Any:
    """Return an example: the default instance, else one from the audit's presets, else a synthetic one, else None."""
    values = _try_make(kind)
    if values:
        return values[0]
    for preset in audit.presets:
        for cell in audit.cells(preset):
            for _, part in walk(cell):
                if type(part) is kind:
                    return part
    hints = typing.get_type_hints(kind)
    samples = {}
    for name in required_fields(kind):
        samples[name] = SAMPLES.get(hints[name]) or _sample(hints[name])
    if None in samples.values():
        return None
    return next(iter(_try_make(kind, **samples)), None)


def _sample(declared_type: Any) -> Any:
    """Return a sample value of a type that can be parsed from text, or None for other types."""
    with suppress(ValueError):
        if hasattr(declared_type, "parse"):
            return declared_type.parse("x")
        return None
    return None


def _published_values(audit: Audit, path: str) -> dict[str, tuple[str, ...]] | None:
    """Map each published value to the presets that use it, in order. Values with many fields are omitted.

    Returns None for a field nested in an optional value or in a value parsed from text.
    """
    if not _is_plain_path(audit.config, path.split(".")[:-1]):
        return None
    values: dict[str, list[str]] = {}
    for preset in (
        preset for preset, description in audit.wording.repeats.items() if not description.startswith(OURS.lower())
    ):
        for cell in audit.cells(preset):
            try:
                value = operator.attrgetter(path)(cell)
            except AttributeError:  # this cell uses another alternative
                continue
            presets = values.setdefault(value_text(value), [])
            if preset not in presets:
                presets.append(preset)
    published = {value: tuple(presets) for value, presets in values.items() if value}
    if "." not in path:
        return published
    return published or None


def _is_plain_path(kind: Any, parent_names: list[str]) -> bool:
    """Return whether every field along the path holds an alternative or a group of fields."""
    kinds = [kind]
    for name in parent_names:
        types = [field_types(parent)[name] for parent in kinds if name in field_types(parent)]
        members = [member for declared_type in types for member in tagged_members(declared_type).values()]
        groups = [
            declared_type
            for declared_type in types
            if dataclasses.is_dataclass(declared_type) and not hasattr(declared_type, "parse")
        ]
        kinds = members or groups
        if not kinds:
            return False
    return True
