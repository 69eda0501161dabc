"""Read a single configuration field, for answers that are given one at a time."""

from __future__ import annotations

import dataclasses
from typing import Any

from orchestrator.errors import SpecError
from orchestrator.spec.fields import alternatives, coerce, describe_kind, field_types
from tasks.contract.ranges import check_value, field_ranges


def read_field(kind: Any, path: str, value: Any) -> Any:
    """Convert a value to the type declared at this dotted path of the configuration type `kind`, and check its range.

    Other fields are ignored. Raises SpecError for an unknown path or an invalid value.
    """
    *parent_names, name = path.split(".")
    for i, step in enumerate(parent_names):
        kind = _kind_with_fields(kind, step, (*parent_names, name)[i + 1], path)
    if name not in field_types(kind):
        raise SpecError(f"unknown field {path!r}: {describe_kind(kind)} has {', '.join(field_types(kind))}")
    converted = coerce(value, field_types(kind)[name], path)
    try:
        check_value(path, converted, field_ranges(kind).get(name, ()))
    except ValueError as error:
        raise SpecError(str(error)) from None
    return converted


def _kind_with_fields(kind: Any, step: str, below: str, path: str) -> Any:
    """Return the dataclass that field `step` of `kind` may hold, preferring the first that has the field `below`."""
    if step not in field_types(kind):
        raise SpecError(f"unknown field {path!r}: {describe_kind(kind)} has {', '.join(field_types(kind))}")
    inner: list[Any] = [
        kind_of_value
        for kind_of_value in alternatives(field_types(kind)[step])
        if dataclasses.is_dataclass(kind_of_value)
    ]
    if not inner:
        raise SpecError(f"{path}: {step!r} has no fields below it; set it as {step}=VALUE")
    return next((kind_of_value for kind_of_value in inner if below in field_types(kind_of_value)), inner[0])
