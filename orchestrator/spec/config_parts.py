"""Walk the nested parts of a configuration, change them, and convert them to plain data."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from orchestrator.spec.fields import field_types
from tasks.contract.alternatives import TYPE, tag_of
from tasks.contract.quantities import QUANTITIES
from tasks.contract.resources import EXECUTION_ONLY


def parts(value: Any) -> Mapping[str, Any] | None:
    """Return the fields of a configuration by name.

    Returns None for other values, and for values with an `identity`, such as data sets.
    """
    if not dataclasses.is_dataclass(value) or isinstance(value, type) or hasattr(value, "identity"):
        return None
    return {name: getattr(value, name) for name in field_types(type(value))}


def walk(value: Any, parent_path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield a value and all its nested parts with their dotted paths. Tuple elements have the path of the tuple."""
    yield parent_path, value
    if isinstance(value, tuple):
        for part in value:
            yield from walk(part, parent_path)
    for name, part in (parts(value) or {}).items():
        yield from walk(part, f"{parent_path}.{name}" if parent_path else name)


def rebuild(value: Any, change: Callable[[Any, Mapping[Any, Any]], Any]) -> Any:
    """Change the parts (configuration fields or tuple elements) of a value. Returns the same object if none change.

    `change(part, metadata)` returns the new part, where `metadata` is the metadata of its field.
    """
    if isinstance(value, tuple):
        elements = tuple(change(part, {}) for part in value)
        if all(map(operator.is_, elements, value)):
            return value
        return elements
    fields = parts(value)
    if fields is None:
        return value
    metadata = {field.name: field.metadata for field in dataclasses.fields(value)}
    changes = {
        name: new_part for name, part in fields.items() if (new_part := change(part, metadata[name])) is not part
    }
    if changes:
        return dataclasses.replace(value, **changes)
    return value


@functools.cache
def execution_only(kind: Any) -> frozenset[str]:
    """Return the fields of a configuration class that say only how jobs run. No result depends on them."""
    return frozenset(field.name for field in dataclasses.fields(kind) if field.metadata.get(EXECUTION_ONLY))


def plain(value: Any, *, has_execution: bool = True) -> Any:
    """Convert a value to numbers, text, lists and dicts. `coerce` converts them back to an equal value.

    Without `has_execution`, fields that say only how jobs run are left out. Configurations that are then equal have the
    same results.
    """
    if hasattr(value, "identity") or isinstance(value, QUANTITIES):
        return str(value)
    if isinstance(value, tuple | list):
        return [plain(part, has_execution=has_execution) for part in value]
    fields = parts(value)
    if fields is None:
        return value
    kind: Any = type(value)
    forms = {TYPE: tag_of(kind)} if tag_of(kind) else {}
    left_out = frozenset() if has_execution else execution_only(kind)
    for name, part in fields.items():
        if name not in left_out:
            forms[name] = plain(part, has_execution=has_execution)
    return forms


def flatten(value: Any, parent_path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaf values of nested mappings and configurations with their dotted paths. A tuple counts as one value.

    The tag of an alternative has the path of its field.
    """
    fields = value if isinstance(value, Mapping) else parts(value)
    if fields is None:
        yield parent_path, value
        return
    tag = fields.get(TYPE, tag_of(type(value)))
    if tag and parent_path:
        yield parent_path, tag
    for name, part in fields.items():
        if name == TYPE and parent_path:
            continue
        yield from flatten(part, f"{parent_path}.{name}" if parent_path else str(name))


def differing_paths(fields: Sequence[Mapping[str, Any]], prefix: str = "") -> Iterator[str]:
    """Yield the dotted paths at which plain configurations of one type differ.

    Parts of different types differ as a whole.
    """
    for name, first in fields[0].items():
        values = [config[name] for config in fields]
        tags = {value.get(TYPE) for value in values if isinstance(value, Mapping)}
        if all(isinstance(value, Mapping) and value.keys() == first.keys() for value in values) and len(tags) == 1:
            yield from differing_paths(values, f"{prefix}{name}.")
        elif any(value != first for value in values):
            yield f"{prefix}{name}"
