"""The fields of an audit's config as a user sets them: type, default, range, published values and meaning."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import operator
import re
import textwrap
import typing
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args, get_origin

from orchestrator.errors import SpecError
from orchestrator.spec.config_parts import plain, walk
from orchestrator.spec.fields import alternatives, field_types, most_similar, required_fields, text
from tasks.contract.alternatives import TYPE, tag_of, tagged_members
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
    """Field -> its meaning in one line, without fields that have no docstring; empty if the source is unavailable."""
    docstrings: dict[str, str] = {}
    for kind in reversed(config.__mro__):
        docstrings.update(_field_docstrings(kind) if kind is not object else {})
    return docstrings


def _field_docstrings(kind: Any) -> dict[str, str]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    except (OSError, TypeError, SyntaxError):  # a class without a source
        return {}
    statements = []
    if isinstance(tree.body[0], ast.ClassDef):
        statements = tree.body[0].body
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
    """A field by its dotted path.

    `default` is in command-line syntax. `allowed` is empty if the whole type is allowed. `published` maps the values of
    the presets that repeat the paper to these presets; None for a setting that the paper does not have, and below
    another field. `of` names the kinds of value that have the field, if there are several. `below` are the fields of
    its value. `choices` maps the tags of its alternatives to their descriptions.
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
    """Every field of the audit's config by its dotted path, each before those below it.

    With a tag, only the alternative with this tag is included.
    """
    config = _example(audit.config, audit)
    fields = {}
    for described in _fields(audit.config, config, audit, "", "", tag):
        fields[described.path] = described
    return fields


def find_part(audit: Audit, name: str, part: str) -> list[DescribedField]:
    """The field of this path and all below it, or the fields of the alternative with this tag; empty for a preset.

    `name` is the audit's. Raises SpecError, with the nearest name, if the audit has none of these.
    """
    fields = describe_fields(audit)
    choice = next((field.path for field in fields.values() if part in field.choices), None)
    if part not in fields and choice is not None:
        return find_fields(describe_fields(audit, part), choice, name)
    if part not in fields and part in audit.presets:
        return []
    return find_fields(fields, part, name, audit.presets)


def find_fields(
    fields: Mapping[str, DescribedField], path: str, audit: str, presets: Iterable[str] = ()
) -> list[DescribedField]:
    """The field of this path and all below it. Raises SpecError with the nearest name if there is none."""
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
    """The field or preset most similar to a wrong path: by its end, its whole, or its last part; empty for none."""
    ends: dict[str, str] = {}
    for field_path in fields:
        if field_path.endswith(f".{path}"):
            return field_path
        ends.setdefault(field_path.rpartition(".")[2], field_path)
    return most_similar(path, [*presets, *fields]) or ends.get(most_similar(path, ends), "")


def _fields(
    kind: Any, value: Any, audit: Audit, prefix: str, kinds_with_field: str, tag: str = ""
) -> Iterator[DescribedField]:
    """The fields of this kind; `value` is an instance, or None if none could be created."""
    field_meanings = meanings(kind)
    for name, declared_type in field_types(kind).items():
        path = f"{prefix}{name}"
        kinds = _configs(declared_type)
        members = tagged_members(declared_type)
        if tag in members:
            kinds = [members[tag]]
        default = getattr(value, name, None)
        below: dict[str, DescribedField] = {}
        for part in sorted(kinds, key=lambda part: not isinstance(default, part)):  # the default's own kind first
            if isinstance(default, part):
                part_value = default
            else:
                part_value = _example(part, audit)
            type_name = ""
            if len(kinds) > 1 or members:
                type_name = _type_name(part)
            for described in _fields(part, part_value, audit, f"{path}.", type_name, tag):
                earlier = below.setdefault(described.path, described)
                is_own = described.path.count(".") == path.count(".") + 1  # fields below it name their own alternatives
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
    """The dataclasses with fields that a value of this type, or an element of it, may be."""
    kinds = [
        kind for kind in alternatives(declared_type) if dataclasses.is_dataclass(kind) and not hasattr(kind, "identity")
    ]
    for kind in alternatives(declared_type):
        if get_origin(kind) is tuple:
            kinds.extend(part for member in get_args(kind) if member is not Ellipsis for part in _configs(member))
    return list(dict.fromkeys(kinds))


def _type_name(kind: Any) -> str:
    """`data set` of Dataset, `model file` of ModelFile; the tag of an alternative."""
    if tag_of(kind):
        return tag_of(kind)
    if kind is Dataset:
        return "data set"
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind.__name__).lower()


def summary_of(kind: Any) -> str:
    """The first line of the docstring of a class of configurations."""
    return (inspect.getdoc(kind) or "").partition("\n")[0]


def _type(declared_type: Any) -> str:
    """A declared type as text."""
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
    """A value in command-line syntax: a config by its text form or its fields; empty if that is long."""
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
    """The values that the field's type allows, as text; empty if it allows all."""
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
    """A value of this kind: its defaults, else one from the audit's presets, else a made-up one; None without any."""
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
    """A value of this type as it is read from text; None if it is not read from any text."""
    with suppress(ValueError):
        if hasattr(declared_type, "parse"):
            return declared_type.parse("x")
        return None
    return None


def _published_values(audit: Audit, path: str) -> dict[str, tuple[str, ...]] | None:
    """Value -> the presets that repeat the paper with it, in order; values with many fields are omitted.

    None for a field below one whose value is read from text, or is optional.
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
            except AttributeError:  # the cell has another alternative
                continue
            presets = values.setdefault(value_text(value), [])
            if preset not in presets:
                presets.append(preset)
    published = {value: tuple(presets) for value, presets in values.items() if value}
    if "." not in path:
        return published
    return published or None


def _is_plain_path(kind: Any, parent_names: list[str]) -> bool:
    """Whether each of these fields, one below another, holds an alternative or a group of fields."""
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
