"""Check for the optional packages that a plan's jobs need before anything is started."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any

from orchestrator.errors import EngramError
from orchestrator.planning.plan import Plan, plan_of
from orchestrator.spec.audits import RegisteredAudit
from orchestrator.spec.config_parts import parts
from orchestrator.spec.resolve import Cell
from tasks.contract.extras import EVERY_RUN, RAY, Extra, describe_missing, missing

PLAIN_TYPES = (int, float, str, type(None))
LOCAL_ADDRESSES = (None, "local", "pool", "none")  # with these addresses jobs run in the local installation
RAYLESS = ("pool", "none")  # addresses that do not need Ray


def required_extras(values: Iterable[Any]) -> Iterator[Extra]:
    """Yield the packages needed by these configurations and their parts. Packages may be repeated."""
    for value in values:
        if isinstance(value, PLAIN_TYPES):  # most job fields
            continue
        if hasattr(value, "extras"):  # tests for NeedsExtras; isinstance is ten times slower
            yield from value.extras()
        yield from required_extras(value if isinstance(value, tuple) else (parts(value) or {}).values())


def extras_by_preset(entry: RegisteredAudit) -> dict[str, tuple[Extra, ...]]:
    """Map each preset of an audit to the packages it needs, without duplicates."""
    audit = entry.audit
    result = {}
    for preset in audit.presets:
        result[preset] = tuple(dict.fromkeys(required_extras(audit.cells(preset))))
    return result


def check_extras(
    plan: Plan, stored_keys: Callable[[], Container[str]], address: str | None, *other_values: Any
) -> None:
    """Raise EngramError, including the remedy, if a job that is not stored needs a package that is not installed.

    `other_values` are additional values that may need packages, such as the settings of a search. Packages on cluster
    nodes are not checked. `stored_keys` returns the keys in the store and is called only if a package is missing.
    """
    if address not in LOCAL_ADDRESSES or not _missing(_configs(plan, plan.jobs), other_values, address):
        return
    missing_keys = plan.missing(stored_keys())
    if absent := _missing(_configs(plan, missing_keys), other_values, address):
        raise EngramError(describe_missing(absent))


def _missing(configs: Sequence[Any], other_values: Iterable[Any], address: str | None) -> tuple[Extra, ...]:
    """Return the missing packages among those needed by every run or by the settings of these jobs."""
    extras_of_every_run = []
    if configs:
        extras_of_every_run = [extra for extra in EVERY_RUN if extra is not RAY or address not in RAYLESS]
    return missing((*extras_of_every_run, *required_extras((*configs, *other_values))))


def _configs(plan: Plan, keys: Iterable[str]) -> list[Any]:
    return [plan.jobs[key].config for key in keys]


def check_cells(cells: Iterable[Cell], address: str | None) -> None:
    """Apply `check_extras` to cells without stored results. Cells are planned only if a package may be missing."""
    cells = tuple(cells)
    if _missing([cell.config for cell in cells], (), address):
        check_extras(Plan.union(map(plan_of, cells)), frozenset, address)
