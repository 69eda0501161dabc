"""A specification as a YAML file with the keys `audit, preset, set, sweep, execution, search`."""

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
    """Return the option's reader, which rejects text for numbers and booleans because YAML distinguishes them."""

    def read(value: Any, key_path: str) -> Any:
        converted = option.read(value, key_path)
        if isinstance(option.kind, type) and isinstance(value, str) and not isinstance(converted, str):
            raise SpecError(f"{key_path} is {value!r}, which is text; write it as {text(converted)}")
        return converted

    return read


def _text(value: Any, key_path: str) -> str:
    """Return the value after checking that it is text."""
    text: str = coerce(value, str, key_path)
    return text


def _mapping(value: Any, key_path: str) -> Mapping[str, Any]:
    """Return the value after checking that it is a mapping with text keys."""
    if not isinstance(value, Mapping):
        raise SpecError(f"{key_path} is {value!r}; it must be a mapping, as in {key_path}: {{name: value}}")
    for name in value:
        if not isinstance(name, str):
            raise SpecError(f"{key_path} has the key {name!r}; it must be text")
    return value


def _swept(value: Any, key_path: str) -> Mapping[str, tuple[Any, ...]]:
    """Return the values of each swept field."""
    for name, values in _mapping(value, key_path).items():
        if not isinstance(values, list):
            raise SpecError(f"{key_path}.{name} is {values!r}; it must be a list of values")
        if not values:
            raise SpecError(f"{key_path}.{name} has no values")
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
    """Read the specification in this file.

    Raises SpecError if the file does not exist, is not YAML, contains anything but plain values, or has unknown keys.
    """
    value = load_yaml(path)
    if not isinstance(value, Mapping):
        if value is None:
            content = "nothing"
        else:
            content = f"a {type(value).__name__}"
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


def _entries(mapping: Mapping[Any, Any], entry_readers: Mapping[str, Reader], prefix: str = "") -> dict[str, Any]:
    """Convert each entry with the reader for its key. Entries that are null in YAML are omitted."""
    for name in mapping:
        if name not in entry_readers:
            key_path = f"{prefix}{name}"
            raise SpecError(
                f"unknown key {key_path!r}; valid keys are {', '.join(entry_readers)}"
                f"{nearest(str(name), entry_readers)}"
            )
    return {name: entry_readers[name](value, f"{prefix}{name}") for name, value in mapping.items() if value is not None}
