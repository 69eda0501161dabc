"""The presets of an audit: what each repeats, its trainings, the data that it needs, and how long it takes here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.errors import EngramError
from orchestrator.inspection.preview import price_json, price_of, slots_at
from orchestrator.planning.extras import required_extras
from orchestrator.planning.plan import Plan, plan_of
from orchestrator.spec.audits import RegisteredAudit
from orchestrator.spec.config_parts import plain, walk
from orchestrator.spec.field_descriptions import value_text
from orchestrator.spec.fields import text
from orchestrator.spec.resolve import Cell, pin_cells, pin_one
from orchestrator.store import Store
from tasks.datasets.dataset import Dataset
from tasks.datasets.places import use_outlines
from tasks.extras import Extra
from tasks.job import marks
from tasks.pinnable import Pinnable


@dataclass(frozen=True)
class DescribedPreset:
    """A preset by its name.

    `settings` are the fields, in command-line syntax, in which its cells differ from the defaults. `data` says of each
    data set, and of what else is missing, whether it is here, and `extras` of each package beyond those that every
    installation has whether it is installed. `links` counts the parts that the trainings are computed in, each of which
    goes on from the one before. `jobs`, `trainings`, `links` and `price` (`preview.shape_of`) are None where something
    is missing of which more than its published size must be known.
    """

    name: str
    repeats: str
    cells: int
    settings: Mapping[str, tuple[str, ...]]
    data: Mapping[str, bool]
    extras: Mapping[str, bool]
    jobs: int | None = None
    trainings: int | None = None
    links: int | None = None
    price: Mapping[str, Any] | None = None


def described_presets(
    entry: RegisteredAudit, store: Store | None, names: tuple[str, ...] = ()
) -> Iterator[DescribedPreset]:
    """The audit's presets in their order, or those of these names, priced by the store's timings where there is one."""
    known: MutableMapping[str, str] = {} if store is None else store.digests()
    for name in names or tuple(entry.audit.presets):
        yield _describe_preset(entry, name, store, known)


def _describe_preset(
    entry: RegisteredAudit, name: str, store: Store | None, known: MutableMapping[str, str]
) -> DescribedPreset:
    audit = entry.audit
    cells = audit.cells(name)
    data = dict(needed for cell in cells for needed in _required_data(cell, known))
    repeats, settings = audit.wording.repeats.get(name, ""), _settings(audit, cells)
    preset = DescribedPreset(name, repeats, len(cells), settings, data, _packages(required_extras(cells)))
    here = all(data.values())
    with nullcontext() if here else use_outlines():
        try:
            # What stands for data that are not here is not remembered.
            found = pin_cells([Cell(entry.name, cell, name) for cell in cells], known if here else {**known})
            whole = Plan.union([plan_of(cell) for cell in found])
        except EngramError:  # what a plan of this data would refuse is told by `engram plan`
            return preset
        stored = set() if store is None else store.keys()
        price = price_json(price_of(whole, whole.missing(stored), store, None), slots_at(None))
    links = sum(marks(job.function).trains for job in whole.jobs.values())
    trainings = sum(marks(job.function).trains for key, job in whole.jobs.items() if key not in whole.after)
    extras = _packages(required_extras(job.config for job in whole.jobs.values()))
    return replace(preset, extras=extras, jobs=len(whole.jobs), trainings=trainings, links=links, price=price)


def _packages(extras: Iterable[Extra]) -> dict[str, bool]:
    """Each package and whether it is installed."""
    return {extra.package: extra.is_installed for extra in dict.fromkeys(extras)}


def _required_data(config: Any, known: MutableMapping[str, str]) -> Iterator[tuple[str, bool]]:
    """Every data set of the config and whether it is here, and whatever else is not."""
    for _, part in walk(config):
        if not isinstance(part, Dataset | Pinnable):
            continue
        try:
            pin_one(part, known)
            there = True
        except EngramError:
            there = False
        if isinstance(part, Dataset) or not there:
            yield str(part), there


def _settings(audit: Any, cells: tuple[Any, ...]) -> dict[str, tuple[str, ...]]:
    """The top-level fields in which any cell differs from the defaults, with their values in the cells."""
    try:
        default = audit.config()
    except (TypeError, ValueError):
        return {}
    fields = [name for name in plain(default) if any(getattr(cell, name) != getattr(default, name) for cell in cells)]
    return {name: tuple(dict.fromkeys(_field_text(default, cell, name) for cell in cells)) for name in fields}


def _field_text(default: Any, cell: Any, name: str) -> str:
    """A field's value; of a config those of its own fields that differ from the default's."""
    here = getattr(cell, name)
    usual, value = plain(getattr(default, name)), plain(here)
    if isinstance(value, Mapping) and isinstance(usual, Mapping) and value.keys() == usual.keys():
        value = {field: part for field, part in value.items() if part != usual[field]}
    return text(value) if isinstance(value, Mapping) else value_text(here)
