"""JSON Schema (draft 2020-12) of an audit's specification file, for editors and for programs that write such files.

Fields, types, ranges, defaults and meanings come from the audit's configuration. As on the command line, a field can be
nested in the fields that contain it, or given by its dotted path or a short name. Conditions that involve several
fields are not part of the schema; `engram run FILE --dry-run` checks them.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from importlib import metadata
from typing import Any, Literal, get_args, get_origin, get_type_hints

from orchestrator.spec.config_parts import plain
from orchestrator.spec.field_descriptions import meanings, summary_of
from orchestrator.spec.fields import alternatives, field_types, required_fields
from orchestrator.spec.resolve import SCALE, SCALES
from orchestrator.spec.spec_file import EXECUTION_KEYS, SEARCH_KEYS
from tasks.contract.alternatives import TYPE, tag_of, tagged_members
from tasks.contract.audit import Audit
from tasks.contract.quantities import QUANTITIES
from tasks.contract.ranges import (
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
    type_ranges,
)

Schema = dict[str, Any]
DRAFT = "https://json-schema.org/draft/2020-12/schema"
SCALARS: Mapping[Any, str] = {bool: "boolean", int: "integer", float: "number", str: "string"}
TEXT: Schema = {"type": "string"}
NULL: Schema = {"enum": [None, "none", "null"]}


def describe_specification(name: str, audit: Audit) -> Schema:
    """Return the schema of a YAML file that runs this audit."""
    definitions: Schema = {}
    fields = _config_properties(audit.config, definitions)
    settings = fields | _dotted_fields(audit.config, definitions)
    settings[SCALE] = {
        "enum": list(SCALES),
        "description": "With tiny, the audit uses less data and training, and takes only seconds.",
    }
    tags = sorted(_all_tags(audit.config))
    search: Schema = {**{key: {} for key in SEARCH_KEYS}, "over": {"type": "object"}}
    execution: Schema = {**{key: {} for key in EXECUTION_KEYS}, "store": TEXT}
    return {
        "$schema": DRAFT,
        "$id": schema_address(name),
        "title": f"Engram: {name}",
        "type": "object",
        "required": ["audit"],
        "properties": {
            "audit": {"const": name},
            "preset": {"enum": list(audit.presets)},
            "set": _object(settings, tags),
            "sweep": {"type": "object", "additionalProperties": {"type": "array", "minItems": 1}},
            "execution": _object(execution),
            "search": _object(search),
        },
        "additionalProperties": False,
        "$defs": definitions,
    }


def schema_address(audit: str) -> str:
    """Return the address at which the schema of an audit is published."""
    return f"{_repository()}/raw/HEAD/docs/schema/{audit}.json"


@functools.cache
def _repository() -> str:
    """Return the repository address from the metadata of the installed package."""
    entries: list[str] = metadata.metadata("engram-audit").get_all("Project-URL") or []
    addresses = dict(entry.split(", ", 1) for entry in entries)
    return addresses["Repository"]


def _object(properties: Mapping[str, Any], tags: Iterable[str] = ()) -> Schema:
    schema = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    begin = "|".join(tags)
    return schema | ({"patternProperties": {rf"^({begin})\.": {}}} if begin else {})


def _config_properties(kind: Any, definitions: Schema) -> dict[str, Schema]:
    """Return the schema of each field of a configuration class."""
    hints = get_type_hints(kind, include_extras=True)
    words = meanings(kind)
    properties = {}
    for field in dataclasses.fields(kind):
        schema = _type_schema(hints[field.name], definitions)
        if words.get(field.name):
            schema = schema | {"description": words[field.name]}
        if field.name not in required_fields(kind) and field.default is not dataclasses.MISSING:
            schema = schema | {"default": plain(field.default)}
        properties[field.name] = schema
    return properties


def _type_schema(declared_type: Any, definitions: Schema) -> Schema:
    """Return the schema of a declared type, including its ranges if JSON Schema can express them."""
    schema = _plain_schema(declared_type, definitions)
    if len(alternatives(declared_type)) > 1:  # each member has its own ranges
        return schema
    for allowed in type_ranges(declared_type):
        schema = schema | _range_schema(allowed, schema)
    return schema


def _plain_schema(declared_type: Any, definitions: Schema) -> Schema:
    members = tagged_members(declared_type)
    if members:
        choices: list[Schema] = [{"const": tag, "description": summary_of(kind)} for tag, kind in members.items()]
        choices += [_reference(kind, definitions) for kind in members.values()]
        optional = type(None) in alternatives(declared_type)
        return {"anyOf": [*choices, NULL] if optional else choices}
    origin = get_origin(declared_type)
    arguments = get_args(declared_type)
    if hasattr(declared_type, "__metadata__"):
        return _plain_schema(arguments[0], definitions)
    if declared_type in SCALARS:
        return {"type": SCALARS[declared_type]}
    if declared_type in QUANTITIES:
        return {"type": ["number", "string"]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is tuple:
        return _list_schema(arguments, definitions)
    if len(alternatives(declared_type)) > 1:
        schemas = []
        for kind in alternatives(declared_type):
            schemas.append(NULL if kind is type(None) else _type_schema(kind, definitions))
        return {"anyOf": schemas}
    if hasattr(declared_type, "identity"):
        return TEXT
    reference = _reference(declared_type, definitions)
    if hasattr(declared_type, "parse"):
        return {"anyOf": [TEXT, reference]}
    return reference


def _list_schema(arguments: tuple[Any, ...], definitions: Schema) -> Schema:
    """Return the schema of a list, which may also be text in command-line syntax."""
    if arguments[1:] == (Ellipsis,):
        list_schema: Schema = {"type": "array", "items": _type_schema(arguments[0], definitions)}
    else:
        parts = [_type_schema(element, definitions) for element in arguments]
        list_schema = {"type": "array", "prefixItems": parts, "minItems": len(parts), "maxItems": len(parts)}
    return {"anyOf": [list_schema, TEXT]}


def _reference(kind: Any, definitions: Schema) -> Schema:
    """Return a reference to the definition of a configuration class, and add the definition if it is missing."""
    name = kind.__name__
    if name not in definitions:
        definitions[name] = {}  # a class may contain itself
        properties = _config_properties(kind, definitions)
        if tag_of(kind):
            properties = {TYPE: {"const": tag_of(kind)}, **properties}
        required = sorted(required_fields(kind))
        definitions[name] = _object(properties) | {"description": summary_of(kind)}
        if required:
            definitions[name]["required"] = required
    return {"$ref": f"#/$defs/{name}"}


def _range_schema(allowed: Range, schema: Schema) -> Schema:
    """Return the schema keywords for a range. Returns an empty dict if JSON Schema cannot express it."""
    match allowed:
        case AtLeast(low=low):
            return {"minimum": low}
        case AtMost(high=high):
            return {"maximum": high}
        case Between(low=low, high=high):
            return {"minimum": low, "maximum": high}
        case Finite(zero=zero):
            if zero:
                return {"minimum": 0}
            return {"exclusiveMinimum": 0}
        case Share(zero=zero, one=one):
            return {"minimum" if zero else "exclusiveMinimum": 0, "maximum" if one else "exclusiveMaximum": 1}
        case MultipleOf(number=number):
            return {"minimum": number, "multipleOf": number}
        case Matching(pattern=pattern):
            return {"pattern": f"^(?:{pattern})$"}
        case OneOf(values=values) if all(isinstance(value, str | int | float) for value in values):
            return {"enum": list(values)}
        case Each(range=range_of_each) if "anyOf" in schema:
            list_schema, text = schema["anyOf"]
            items = list_schema["items"] | _range_schema(range_of_each, list_schema["items"])
            return {"anyOf": [{**list_schema, "items": items}, text]}
        case SomeOf() if "anyOf" in schema:
            list_schema, text = schema["anyOf"]
            return {"anyOf": [{**list_schema, "minItems": 1}, text]}
    return {}


def _dotted_fields(config: Any, definitions: Schema) -> dict[str, Schema]:
    """Return the nested fields by dotted path and by last name, unless a top-level field has that name."""
    dotted: dict[str, list[Schema]] = {}
    for path, schema in _paths_below(config, "", definitions):
        names = dict.fromkeys((path, path.rpartition(".")[2]))
        for name in names:
            dotted.setdefault(name, []).append(schema)
    top = field_types(config)
    return {name: _any_of(schemas) for name, schemas in dotted.items() if name not in top}


def _any_of(schemas: list[Schema]) -> Schema:
    different = []
    for i, schema in enumerate(schemas):
        if schema not in schemas[:i]:
            different.append(schema)
    if len(different) == 1:
        return different[0]
    return {"anyOf": different}


def _paths_below(kind: Any, prefix: str, definitions: Schema) -> Iterable[tuple[str, Schema]]:
    for name, declared_type in field_types(kind).items():
        members = []
        for each in alternatives(declared_type):
            if dataclasses.is_dataclass(each) and not hasattr(each, "identity"):
                members.append(each)
        for member in members:
            for below, schema in _config_properties(member, definitions).items():
                yield f"{prefix}{name}.{below}", schema
            yield from _paths_below(member, f"{prefix}{name}.", definitions)


def _all_tags(kind: Any) -> set[str]:
    tags: set[str] = set()
    for declared_type in field_types(kind).values():
        tags |= set(tagged_members(declared_type))
        for member in _members_with_fields(declared_type):
            tags |= _all_tags(member)
    return tags


def _members_with_fields(declared_type: Any) -> list[Any]:
    fields = []
    for kind in alternatives(declared_type):
        if dataclasses.is_dataclass(kind) and not hasattr(kind, "identity"):
            fields.append(kind)
    return fields
