"""A specification as a YAML file: `audit, preset, set, sweep, execution, search`, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.errors import SpecError
from orchestrator.spec import specification
from orchestrator.spec.config_parts import flatten
from orchestrator.spec.fields import Reader, coerce, nearest, text
from orchestrator.spec.options import EXECUTION, SEARCH, Option
from orchestrator.spec.yaml_file import load_yaml


def _reader(option: Option) -> Reader:
    """Read a value as the option does, but refuse text for a number or boolean, which YAML distinguishes."""

    def read(value: Any, where: str) -> Any:
        converted = option.read(value, where)
        if isinstance(option.kind, type) and isinstance(value, str) and not isinstance(converted, str):
            raise SpecError(f"{where} is {value!r}, which is text; write it as {text(converted)}")
        return converted

    return read


def _text(value: Any, where: str) -> str:
    """Check that the value is text."""
    read: str = coerce(value, str, where)
    return read


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    """Check that the value is a mapping whose keys are text."""
    if not isinstance(value, Mapping):
        raise SpecError(f"{where} is {value!r}; it must be a mapping, as in {where}: {{name: value}}")
    for name in value:
        if not isinstance(name, str):
            raise SpecError(f"{where} has the key {name!r}; it must be text")
    return value


def _swept(value: Any, where: str) -> Mapping[str, tuple[Any, ...]]:
    """The values of each swept field."""
    for name, values in _mapping(value, where).items():
        if not isinstance(values, list):
            raise SpecError(f"{where}.{name} is {values!r}; it must be a list of values")
        if not values:
            raise SpecError(f"{where}.{name} has no values")
    return {name: tuple(values) for name, values in value.items()}


IN_FILE = {name: _reader(option) for name, option in EXECUTION.items() if option.is_in_file}
EXECUTION_KEYS: Mapping[str, Reader] = {"store": _text, **IN_FILE}
SEARCH_KEYS: Mapping[str, Reader] = {"over": _mapping, **{name: _reader(option) for name, option in SEARCH.items()}}
FILE: Mapping[str, Reader] = {
    "audit": _text,
    "preset": _text,
    "set": lambda value, where: dict(flatten(_mapping(value, where))),
    "sweep": _swept,
    "execution": lambda value, where: _entries(_mapping(value, where), EXECUTION_KEYS, f"{where}."),
    "search": lambda value, where: _entries(_mapping(value, where), SEARCH_KEYS, f"{where}."),
}


def read(path: Path) -> specification.Spec:
    """The specification in this file.

    Raises SpecError for a file that does not exist, is not YAML, contains anything but plain values, or has keys that
    are not part of a specification.
    """
    value = load_yaml(path)
    if not isinstance(value, Mapping):
        content = "nothing" if value is None else f"a {type(value).__name__}"
        raise SpecError(f"{path} contains {content}; it must be a mapping with {', '.join(FILE)}")
    try:
        file = _entries(value, FILE)
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from None
    if "audit" not in file:
        raise SpecError(f"{path}: 'audit' is missing")
    execution = file.get("execution", {})
    store = execution.pop("store", None)
    return specification.Spec(
        file["audit"],
        file.get("preset"),
        file.get("set", {}),
        file.get("sweep", {}),
        execution,
        store,
        file.get("search", {}),
    )


def _entries(given: Mapping[Any, Any], known: Mapping[str, Reader], above: str = "") -> dict[str, Any]:
    """The entries of a mapping, each converted by its key's reader. Empty entries, null in YAML, are left out."""
    for name in given:
        if name not in known:
            where = f"{above}{name}"
            raise SpecError(f"unknown key {where!r}; the keys are {', '.join(known)}{nearest(str(name), known)}")
    return {name: known[name](value, f"{above}{name}") for name, value in given.items() if value is not None}
