"""Settings without effect: fields that the user gave and that no job of the plan depends on.

A field is idle if the plan has the same keys without it. This needs no list of which setting bears on what: whatever
enters no key bears on no result.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.errors import EngramError
from orchestrator.planning.plan import plan_of
from orchestrator.spec import audits
from orchestrator.spec.resolve import SCALE, Cell, pin_cells, resolve_cells
from orchestrator.spec.specification import Spec


def find_idle_fields(spec: Spec, known: MutableMapping[str, str]) -> list[str]:
    """The names of the fields that were set or swept and change nothing of the plan.

    Plans are compared at `scale=tiny` first, where planning takes no time, and only those that are equal there as they
    are. A field that was set to what the preset has is left out: it says what is so, and may have an effect otherwise.
    """
    left_out = _stopping_fields(spec)
    idle = []
    for name in (*spec.set, *spec.sweep):
        if name == SCALE or name in left_out:
            continue
        pairs = list(_specs_apart(spec, name))
        if any(_differ(one, other, known, tiny=True) for one, other in pairs):
            continue
        if pairs and not any(_differ(one, other, known) for one, other in pairs):
            idle.append(name)
    return idle


def describe_idle_fields(names: Sequence[str], spec: Spec) -> str:
    """One line that names these fields; empty if there are none."""
    if not names:
        return ""
    listed = ", ".join(names[:-1]) + (f" and {names[-1]}" if len(names) > 1 else names[0])
    change, them = ("change", "them") if len(names) > 1 else ("changes", "it")
    preset = f" with preset {spec.preset}" if spec.preset else ""
    swept = [name for name in names if name in spec.sweep]
    equal = f"; cells that differ in {', '.join(swept)} alone are equal" if swept else ""
    return f"{listed} {change} nothing: no job of {spec.audit}{preset} depends on {them}{equal}"


def _stopping_fields(spec: Spec) -> Sequence[str]:
    """The fields that say when a run ends, which are in no key."""
    stopping = audits.find(spec.audit).audit.stopping
    return () if stopping is None else tuple(stopping.settings(0.05, 1))


def _specs_apart(spec: Spec, name: str) -> Iterator[tuple[Spec, Spec]]:
    """Pairs of specifications that differ in this field alone; other swept fields are at their first values."""
    first = {field: values[0] for field, values in spec.sweep.items() if field != name}
    base = replace(spec, set={**spec.set, **first}, sweep={})
    if name in spec.sweep:
        values = spec.sweep[name]
        for value in values[1:]:
            yield _with(base, name, values[0]), _with(base, name, value)
        return
    without = replace(base, set={field: value for field, value in base.set.items() if field != name})
    try:
        if _configs(base) != _configs(without):
            yield base, without
    except EngramError:  # the other fields need it
        return


def _with(spec: Spec, name: str, value: Any) -> Spec:
    return replace(spec, set={**spec.set, name: value})


def _configs(spec: Spec) -> list[Any]:
    return [cell.config for cell in resolve_cells(spec)]


def _differ(one: Spec, other: Spec, known: MutableMapping[str, str], tiny: bool = False) -> bool:
    """Whether the plans of two specifications differ. If one of them cannot be planned, they do, but for `tiny`."""
    if tiny:
        one, other = _with(one, SCALE, "tiny"), _with(other, SCALE, "tiny")
    try:
        return _keys(resolve_cells(one), known) != _keys(resolve_cells(other), known)
    except EngramError:
        return not tiny


def _keys(cells: Sequence[Cell], known: MutableMapping[str, str]) -> list[list[str]]:
    return [sorted(plan_of(cell).jobs) for cell in pin_cells(cells, known)]
