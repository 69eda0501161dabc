"""The cells a specification asks for: configs checked against their audit, data sets pinned to their content."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.errors import EngramError, SpecError
from orchestrator.fields import changed, declared, nearest, plain
from orchestrator.runs import Cell
from orchestrator.spec import Spec
from tasks.datasets.dataset import Dataset
from tasks.models import catalog as networks
from tasks.models.catalog import Network

# A word that every audit has, beside the fields of its config: `tiny` shrinks data, epochs and members to seconds.
SCALE = "scale"
SCALES = ("tiny", "full")


def specified(source: str, flags: Spec) -> Spec:
    """The specification of an audit's name or a YAML file, under what the command line says."""
    if Path(source).suffix in (".yaml", ".yml") or "/" in source:
        from orchestrator.specfile import read

        return read(Path(source)).under(flags)
    return replace(flags, audit=source)


def wanted(spec: Spec) -> list[Cell]:
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
    """The cells with each of their data sets, and of the user's own networks, pinned to the digest of its content.

    `known` remembers digests of files by path, size and time, so that they need not be read again. Raises SpecError
    for an unknown data set, and EngramError where its files are not there or not what they should be.
    """
    seen: dict[Dataset | Network, Any] = {}

    def pin(thing: Dataset | Network) -> Any:
        if thing not in seen:
            seen[thing] = _pin(thing, known) if isinstance(thing, Dataset) else _pin_network(thing)
        return seen[thing]

    return [replace(cell, config=_pinned(cell.config, pin)) for cell in found]


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


def _pin_network(network: Network) -> Network:
    try:
        return networks.pin(network)
    except ValueError as error:
        raise SpecError(str(error)) from None


def _at(config: Any, path: str) -> Any:
    for name in path.split("."):
        config = getattr(config, name)
    return config


def _pinned(value: Any, pin: Callable[[Dataset | Network], Any]) -> Any:
    """The value with every data set and network in it, however deep, pinned."""
    if isinstance(value, Dataset | Network):
        return pin(value)
    if isinstance(value, tuple):
        return tuple(_pinned(part, pin) for part in value)
    if hasattr(value, "__dataclass_fields__") and not hasattr(value, "identity"):
        kind: Any = type(value)
        new = {name: _pinned(getattr(value, name), pin) for name in declared(kind)}
        same = all(new[name] is getattr(value, name) for name in new)
        return value if same else replace(value, **new)
    return value
