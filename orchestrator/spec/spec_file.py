"""A specification as a YAML file: `audit, preset, set, sweep, execution`, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.errors import SpecError
from orchestrator.spec import specification
from orchestrator.spec.fields import flat, nearest
from orchestrator.spec.plain_yaml import YamlError, loaded
from tasks.files import FileError, check_regular

LARGEST = 1_000_000  # bytes


def read(path: Path) -> specification.Spec:
    """The specification in this file.

    Raises SpecError in one line for a file that is not there, is not YAML, would build anything but plain values,
    or holds something that is no part of a specification.
    """
    from pydantic import BaseModel, ConfigDict, Field, ValidationError

    class Execution(BaseModel):
        model_config = ConfigDict(extra="forbid", strict=True)

        store: str | None = None
        address: str | None = None
        together: int | str | None = None
        way: str | None = None
        tolerate: int | None = None
        fail_fast: bool | None = None
        stop_after: int | float | str | None = None
        timeout: int | float | str | None = None
        keep: str | None = None
        mlflow: str | None = None
        experiment: str | None = None
        report: bool | None = None
        show_images: bool | None = None

    class File(BaseModel):
        model_config = ConfigDict(extra="forbid", strict=True)

        audit: str
        preset: str | None = None
        fields: dict[str, Any] = Field(default_factory=dict, alias="set")
        sweep: dict[str, list[Any]] = Field(default_factory=dict)
        execution: Execution = Field(default_factory=Execution)

    value = _loaded(path)
    if not isinstance(value, Mapping):
        found = "nothing" if value is None else f"a {type(value).__name__}"
        raise SpecError(f"{path} holds {found}; it must be a mapping with audit, preset, set, sweep, execution")
    # An empty `set:` in YAML is null; it says nothing, as if it were not there.
    given = {name: part for name, part in value.items() if part is not None}
    try:
        file = File.model_validate(given)
    except ValidationError as error:
        names = {"": ["audit", "preset", "set", "sweep", "execution"], "execution": list(Execution.model_fields)}
        raise SpecError(f"{path}: {_problem(error.errors()[0], names)}") from None
    execution = file.execution.model_dump(exclude_none=True)
    store = execution.pop("store", None)
    means = {
        "together": specification.together,
        "stop_after": specification.duration,
        "timeout": specification.duration,
    }
    try:
        for name, meant in means.items():
            if name in execution:
                execution[name] = meant(execution[name])
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from None
    sweep = {name: tuple(values) for name, values in file.sweep.items()}
    for name, values in sweep.items():
        if not values:
            raise SpecError(f"{path}: sweep.{name} has no values")
    return specification.Spec(file.audit, file.preset, dict(flat(file.fields)), sweep, execution, store)


def _loaded(path: Path) -> Any:
    try:
        check_regular(path)
        with path.open("rb") as file:
            text = file.read(LARGEST + 1)
    except FileNotFoundError:
        raise SpecError(f"there is no file {path}") from None
    except FileError as error:
        raise SpecError(str(error)) from None
    except (OSError, ValueError) as error:
        raise SpecError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(text) > LARGEST:
        raise SpecError(f"{path} is larger than {LARGEST:,} bytes; it is no specification")
    try:
        return loaded(text)
    except YamlError as error:
        if error.line is None:
            raise SpecError(f"{path} is not YAML: {error}") from None
        raise SpecError(f"{path}, line {error.line}, column {error.column}: {error}") from None


def _problem(error: Mapping[str, Any], names: Mapping[str, list[str]]) -> str:
    """pydantic's error in our words."""
    *above, last = [str(part) for part in error["loc"]]
    where = ".".join((*above, last))
    if error["type"] == "extra_forbidden":
        known = names[".".join(above)]
        return f"unknown key {where!r}; there are {', '.join(known)}{nearest(last, known)}"
    if error["type"] == "missing":
        return f"{where!r} is missing"
    where = where.split(".int")[0].split(".str")[0]
    message = error["msg"].removeprefix("Input should be ")
    return f"{where} is {error['input']!r}; it must be {message}"
