"""The arguments of `orchestrator.run`, `search` and `open`, checked: Python gives values of any type."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator.errors import SpecError
from orchestrator.spec import specification
from orchestrator.spec.fields import Reader, coerce, text

EXECUTION: Mapping[str, Reader] = {
    "address": lambda value, name: coerce(value, str, name),
    "gpus": lambda value, name: coerce(value, str, name),
    "together": lambda value, _: specification.together(value),
    "way": lambda value, name: coerce(value, str, name),
    "tolerate": lambda value, name: coerce(value, int, name),
    "fail_fast": lambda value, name: coerce(value, bool, name),
    "stop_after": lambda value, _: specification.duration(value),
    "timeout": lambda value, _: specification.duration(value),
    "keep": lambda value, name: coerce(value, str, name),
    "again": lambda value, name: coerce(value, bool, name),
    "mlflow": lambda value, name: coerce(value, str, name),
    "experiment": lambda value, name: coerce(value, str, name),
    "report": lambda value, name: coerce(value, bool, name),
    "show_images": lambda value, name: coerce(value, bool, name),
}


SEARCH: Mapping[str, Reader] = {
    "trials": lambda value, name: coerce(value, int, name),
    "budget": lambda value, _: specification.duration(value),
    "sampler": lambda value, name: coerce(value, str, name),
    "sampler_seed": lambda value, name: coerce(value, int, name),
    "rungs": lambda value, name: coerce(value, tuple[int, ...], name),
    "keep_one_in": lambda value, name: coerce(value, int, name),
    "give_up": lambda value, name: coerce(value, float, name),
    "concurrent": lambda value, name: coerce(value, int, name),
}


def execution(given: Mapping[str, Any]) -> dict[str, Any]:
    """The execution settings that are given; those that are None are left out."""
    return {name: EXECUTION[name](value, name) for name, value in given.items() if value is not None}


def search(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a search that are given; those that are None are left out."""
    return {name: SEARCH[name](value, name) for name, value in given.items() if value is not None}


def search_domains(given: Any) -> dict[str, Any]:
    """What may vary, by field; empty for None."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise SpecError(f"over is {given!r}; it must be a mapping, as in {{'rate': 'log(1e-4..1e-2)', 'wide': [True]}}")
    return {coerce(name, str, "a field of over"): _domain(value) for name, value in given.items()}


def _domain(value: Any) -> Any:
    """Text as it is, values in any collection as a list."""
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping) else value


def sweep(given: Any) -> dict[str, tuple[Any, ...]]:
    """The values of each swept field; empty for None."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise SpecError(f"sweep is {given!r}; it must be a mapping, as in {{'seed': [1, 2]}}")
    return {coerce(name, str, "a field of sweep"): _values(values, f"sweep.{name}") for name, values in given.items()}


def _values(values: Any, where: str) -> tuple[Any, ...]:
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise SpecError(f"{where} is {values!r}; it must be a list of values, as [{text(values)}]")
    if not (listed := tuple(values)):
        raise SpecError(f"{where} has no values")
    return listed


def name_or_path(value: Any, name: str, meaning: str) -> str:
    """A text or path as text. Raises SpecError, with what it means, for anything else, and for an empty text."""
    try:
        found = os.fspath(value)
    except TypeError:
        found = None
    if not isinstance(found, str) or not found:
        raise SpecError(f"{name} is {value!r}; it must be {meaning}")
    return found
