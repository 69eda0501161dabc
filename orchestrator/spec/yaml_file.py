"""YAML files of plain values, with one-line errors, and the prices file."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.errors import SpecError
from orchestrator.spec.fields import coerce, nearest
from orchestrator.spec.yaml_text import YamlError, parse_yaml
from tasks.worker.files import FileError, check_regular

LARGEST = 1_000_000  # bytes


@dataclass(frozen=True)
class Prices:
    """Hourly prices of a whole GPU and of a processor, in any currency."""

    gpu: float = 0.0
    cpu: float = 0.0
    currency: str = ""


def read_prices(file: Any) -> Prices:
    """Read `gpu` and `cpu` prices per hour (default 0) and `currency` from a YAML file. Raises SpecError otherwise."""
    path = Path(coerce(os.fspath(file) if isinstance(file, os.PathLike) else file, str, "prices"))
    content = load_yaml(path)
    if not isinstance(content, Mapping) or not content:
        raise SpecError(
            f"{path} does not contain any prices; add for example gpu: 2.5, cpu: 0.04 (per hour), currency: EUR"
        )
    names = Prices.__dataclass_fields__
    for name in content:
        if name not in names:
            raise SpecError(
                f"{path}: unknown key {name!r}; valid keys are {', '.join(names)}{nearest(str(name), names)}"
            )
    prices = Prices(
        **{name: coerce(value, type(names[name].default), f"{path}: {name}") for name, value in content.items()}
    )
    for name, value in (("gpu", prices.gpu), ("cpu", prices.cpu)):
        if not (value >= 0 and math.isfinite(value)):
            raise SpecError(f"{path}: {name} is {value}; it must be 0 or more")
    if not prices.gpu + prices.cpu:
        raise SpecError(f"{path}: a price is missing; add gpu or cpu, per hour")
    return prices


def load_yaml(path: Path) -> Any:
    """Return the content of a YAML file.

    Raises SpecError if it cannot be read or is not YAML with plain values only.
    """
    try:
        check_regular(path)
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except FileNotFoundError:
        raise SpecError(f"file {path} does not exist") from None
    except FileError as error:
        raise SpecError(str(error)) from None
    except (OSError, ValueError) as error:
        raise SpecError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > LARGEST:
        raise SpecError(f"{path} is larger than the limit of {LARGEST:,} bytes")
    try:
        return parse_yaml(data)
    except YamlError as error:
        if error.line is None:
            raise SpecError(f"{path} is not YAML: {error}") from None
        raise SpecError(f"{path}, line {error.line}, column {error.column}: {error}") from None
