"""A specification: audit, preset, fields, and the grid of a sweep.

    unique_feature --preset quickstart canaries=4 --sweep training.rate=1e-3,3e-4

or the same as a YAML file with `audit, preset, set, sweep, execution`. The command line overrides the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.errors import ClusterError, SpecError
from orchestrator.spec.addresses import PLACES, absolute, host_and_port
from orchestrator.spec.execution import GPUS, KEEPS, Execution
from orchestrator.spec.fields import coerce, nearest
from tasks.compute_context import STRATEGIES


@dataclass(frozen=True)
class Spec:
    """A user's specification, not yet checked against the audit.

    `execution` and `search` hold only the settings given; the latter are for `engram search` alone. With `all_cells` no
    cell of a preset is left out where its data are missing.
    """

    audit: str
    preset: str | None = None
    set: Mapping[str, Any] = field(default_factory=dict)
    sweep: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    execution: Mapping[str, Any] = field(default_factory=dict)
    store: str | None = None
    search: Mapping[str, Any] = field(default_factory=dict)
    all_cells: bool = False

    def override_with(self, other: Spec) -> Spec:
        """This specification overridden by the other; a field is either set or swept, never both."""
        kept = {name: value for name, value in self.set.items() if name not in other.sweep}
        swept = {name: values for name, values in self.sweep.items() if name not in other.set}
        return Spec(
            self.audit,
            other.preset or self.preset,
            {**kept, **other.set},
            {**swept, **other.sweep},
            {**self.execution, **other.execution},
            other.store or self.store,
            {**self.search, **other.search},
            other.all_cells or self.all_cells,
        )


def execution(spec: Spec) -> Execution:
    """The checked execution settings of a specification."""
    given = dict(spec.execution)
    together, tolerate = given.get("together"), given.get("tolerate", 0)
    if together is not None and together < 1:
        raise SpecError(f"together is {together}; it must be auto, or 1 or more")
    if tolerate < 0:
        raise SpecError(f"tolerate is {tolerate}; it must be 0 or more")
    if (way := given.get("way", "auto")) not in STRATEGIES:
        raise SpecError(f"way is {way!r}; it must be one of {', '.join(STRATEGIES)}{nearest(str(way), STRATEGIES)}")
    if (keep := given.get("keep", "none")) not in KEEPS:
        raise SpecError(f"keep is {keep!r}; it must be one of {', '.join(KEEPS)}{nearest(str(keep), KEEPS)}")
    if (address := given.get("address")) is not None:
        _check_address(address)
    if (gpus := given.get("gpus", "auto")) not in GPUS:
        raise SpecError(f"gpus is {gpus!r}; it must be one of {', '.join(GPUS)}{nearest(str(gpus), GPUS)}")
    if gpus == "wait" and address in (None, "local", "none"):
        raise SpecError("gpus is wait, and no machine joins this one; wait is for clusters, which --address names")
    if (uri := given.get("mlflow")) is not None:
        absolute(uri)
    return Execution(**given)


def _check_address(address: str) -> None:
    """Raise SpecError for an invalid address of a cluster; whether one is there is checked when it is used."""
    if address not in PLACES:
        try:
            host_and_port(address)
        except ClusterError as error:
            raise SpecError(str(error)) from None


def setting(text: str) -> tuple[str, str]:
    """`field=value`, as given on a command line."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise SpecError(f"{text!r} is not a setting; write it as field=value")
    return name, value


def settings(texts: Iterable[str]) -> dict[str, str]:
    """Parse several `field=value`. Raises SpecError if a field is given twice with different values."""
    fields: dict[str, str] = {}
    for name, value in map(setting, texts):
        if fields.setdefault(name, value) != value:
            raise SpecError(f"{name} is given twice: {fields[name]!r} and {value!r}")
    return fields


def sweeps(texts: Iterable[str]) -> dict[str, list[str]]:
    """Parse several `field=a,b,c`. Commas inside brackets belong to a value: `epochs=[1,2],[3,4]`."""
    fields: dict[str, list[str]] = {}
    for name, value in map(setting, texts):
        values = [part.strip() for part in re.split(r",(?![^\[(]*[\])])", value)]
        if name in fields:
            raise SpecError(f"{name} is swept twice; give all its values together, as --sweep {name}=a,b,c")
        if not all(values):
            raise SpecError(f"--sweep {name}={value}: a value is empty; write --sweep field=a,b,c")
        fields[name] = values
    return fields


def together(value: Any) -> int | None:
    """The number of jobs that share a call; None for `auto`."""
    if value == "auto":
        return None
    try:
        number: int = coerce(value, int, "together")
    except SpecError:
        raise SpecError(f"together is {value!r}; it must be auto, or 1 or more") from None
    return number


def duration(value: Any) -> float:
    """The seconds of `3h50m`, `90s`, `1d` or a plain number."""
    text = str(value).strip()
    parts = re.fullmatch(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?", text)
    if not text or not parts:
        raise SpecError(f"{value!r} is not a duration; write it like 3h50m, 90s or 1d")
    seconds = sum(float(part or 0) * unit for part, unit in zip(parts.groups(), (86400, 3600, 60, 1), strict=True))
    if seconds <= 0:
        raise SpecError(f"a duration of {value!r} is no time at all; write it like 3h50m, 90s or 1d")
    return seconds
