"""A specification: which audit, from which preset, with which fields, over which grid. It ends as cells to run.

    unique_feature --preset quickstart canaries=4 --sweep training.rate=1e-3,3e-4

or the same as a YAML file with `audit, preset, set, sweep, execution`. What the command line says goes over the file.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from orchestrator.errors import EngramError, SpecError
from orchestrator.fields import changed, declared, nearest, plain
from orchestrator.runs import Cell, Execution
from tasks.datasets.dataset import Dataset

# A word that every audit has, beside the fields of its config: `tiny` shrinks data, epochs and members to seconds.
SCALE = "scale"
SCALES = ("tiny", "full")


@dataclass(frozen=True)
class Spec:
    """What a user asks for, not yet checked against the audit. `execution` holds only what was given."""

    audit: str
    preset: str | None = None
    set: Mapping[str, Any] = field(default_factory=dict)
    sweep: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    execution: Mapping[str, Any] = field(default_factory=dict)
    store: str | None = None

    def under(self, other: Spec) -> Spec:
        """This specification with what the other says put over it; a field is either set or swept, never both."""
        kept = {name: value for name, value in self.set.items() if name not in other.sweep}
        swept = {name: values for name, values in self.sweep.items() if name not in other.set}
        return Spec(
            self.audit,
            other.preset or self.preset,
            {**kept, **other.set},
            {**swept, **other.sweep},
            {**self.execution, **other.execution},
            other.store or self.store,
        )


def specified(source: str, flags: Spec) -> Spec:
    """The specification of an audit's name or a YAML file, under what the command line says."""
    if Path(source).suffix in (".yaml", ".yml") or "/" in source:
        from orchestrator.specfile import read

        return read(Path(source)).under(flags)
    return replace(flags, audit=source)


def cells(spec: Spec) -> list[Cell]:
    """The runs that a specification asks for, one per combination of the swept values; data sets are not pinned yet.

    Raises SpecError for an unknown audit, preset or field, and for a value that its field does not take.
    """
    from orchestrator.audits import find

    audit = find(spec.audit).audit
    both = sorted(set(spec.set) & set(spec.sweep))
    if both:
        raise SpecError(f"{both[0]} is both set and swept; give it once")
    base = _preset(spec, audit)
    found: list[Cell] = []
    for values in itertools.product(*spec.sweep.values()):
        varied = dict(zip(spec.sweep, values, strict=True))
        config = configured(audit, base, {**spec.set, **varied})
        setting = {name: plain(_at(config, name)) if name != SCALE else value for name, value in varied.items()}
        if not any(cell.config == config and cell.setting == setting for cell in found):  # 1 and 1.0 are one value
            found.append(Cell(spec.audit, config, spec.preset, setting))
    return found


def configured(audit: Any, base: Any, settings: Mapping[str, Any]) -> Any:
    """The config with these fields set; `scale=tiny` shrinks it before they are."""
    scale = settings.get(SCALE, "full")
    if scale not in SCALES:
        raise SpecError(f"{SCALE} is {scale!r}; allowed: {', '.join(SCALES)}{nearest(str(scale), SCALES)}")
    if scale == "tiny":
        base = audit.tiny(base)
    return changed(base, {name: value for name, value in settings.items() if name != SCALE})


def pinned(found: Iterable[Cell], known: MutableMapping[str, str]) -> list[Cell]:
    """The cells with each of their data sets pinned to the digest of its content.

    `known` remembers digests of files by path, size and time, so that they need not be read again. Raises SpecError
    for an unknown data set, and EngramError where its files are not there or not what they should be.
    """
    seen: dict[Dataset, Dataset] = {}

    def pin(dataset: Dataset) -> Dataset:
        if dataset not in seen:
            seen[dataset] = _pin(dataset, known)
        return seen[dataset]

    return [replace(cell, config=_pinned(cell.config, pin)) for cell in found]


def execution(spec: Spec) -> Execution:
    """How to run it, checked."""
    given = dict(spec.execution)
    together, tolerate = given.get("together"), given.get("tolerate", 0)
    if together is not None and together < 1:
        raise SpecError(f"together is {together}; it must be auto, or 1 or more")
    if tolerate < 0:
        raise SpecError(f"tolerate is {tolerate}; it must be 0 or more")
    return Execution(**given)


def setting(text: str) -> tuple[str, str]:
    """`field=value`, as given on a command line."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise SpecError(f"{text!r} is not a setting; write it as field=value")
    return name, value


def settings(texts: Iterable[str]) -> dict[str, str]:
    """Several `field=value`; SpecError where a field is given twice with different values."""
    found: dict[str, str] = {}
    for name, value in map(setting, texts):
        if found.setdefault(name, value) != value:
            raise SpecError(f"{name} is given twice: {found[name]!r} and {value!r}")
    return found


def sweeps(texts: Iterable[str]) -> dict[str, list[str]]:
    """Several `field=a,b,c`. Commas inside brackets belong to a value: `epochs=[1,2],[3,4]`."""
    found: dict[str, list[str]] = {}
    for name, value in map(setting, texts):
        values = [part.strip() for part in re.split(r",(?![^\[(]*[\])])", value)]
        if name in found:
            raise SpecError(f"{name} is swept twice; give all its values together, as --sweep {name}=a,b,c")
        if not all(values):
            raise SpecError(f"--sweep {name}={value}: a value is empty; write --sweep field=a,b,c")
        found[name] = values
    return found


def together(value: str | int) -> int | None:
    """How many jobs share a call: a number, or None for `auto`."""
    if value == "auto":
        return None
    try:
        return int(value)
    except ValueError:
        raise SpecError(f"together is {value!r}; it must be auto, or 1 or more") from None


def duration(value: str | float) -> float:
    """Seconds of `3h50m`, `90s`, `1d` or a plain number of seconds."""
    text = str(value).strip()
    parts = re.fullmatch(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?", text)
    if not text or not parts:
        raise SpecError(f"{value!r} is not a duration; write it like 3h50m, 90s or 1d")
    seconds = sum(float(part or 0) * unit for part, unit in zip(parts.groups(), (86400, 3600, 60, 1), strict=True))
    if seconds <= 0:
        raise SpecError(f"a duration of {value!r} is no time at all; write it like 3h50m, 90s or 1d")
    return seconds


def _preset(spec: Spec, audit: Any) -> Any:
    if spec.preset is None:
        try:
            return audit.config()  # the published setting
        except (TypeError, ValueError):
            raise SpecError(f"{spec.audit} needs a --preset; it has {', '.join(audit.presets)}") from None
    if spec.preset not in audit.presets:
        allowed = ", ".join(audit.presets)
        hint = nearest(spec.preset, audit.presets)
        raise SpecError(f"unknown preset {spec.preset!r} of {spec.audit}; it has {allowed}{hint}")
    return audit.presets[spec.preset]


def _pin(dataset: Dataset, known: MutableMapping[str, str]) -> Dataset:
    from tasks.datasets import catalog
    from tasks.datasets.dataset import DatasetError

    try:
        return catalog.pin(dataset, known)
    except DatasetError as error:
        # A name nobody knows is the user's slip; files that are not there are the machine's.
        is_known = dataset.name in catalog.known_names() or ":" in dataset.name
        raise (EngramError if is_known else SpecError)(str(error)) from None
    except OSError as error:
        raise EngramError(f"data set {dataset.name!r} cannot be read: {error}") from None


def _at(config: Any, path: str) -> Any:
    for name in path.split("."):
        config = getattr(config, name)
    return config


def _pinned(value: Any, pin: Callable[[Dataset], Dataset]) -> Any:
    """The value with every data set in it, however deep, pinned."""
    if isinstance(value, Dataset):
        return pin(value)
    if isinstance(value, tuple):
        return tuple(_pinned(part, pin) for part in value)
    if hasattr(value, "__dataclass_fields__") and not hasattr(value, "identity"):
        kind: Any = type(value)
        new = {name: _pinned(getattr(value, name), pin) for name in declared(kind)}
        same = all(new[name] is getattr(value, name) for name in new)
        return value if same else replace(value, **new)
    return value
