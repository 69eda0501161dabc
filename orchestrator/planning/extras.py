"""Optional packages that a plan's jobs need, checked before anything is started."""

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
LOCAL_ADDRESSES = (None, "local", "none")  # addresses whose jobs run in this installation


def required_extras(values: Iterable[Any]) -> Iterator[Extra]:
    """The packages that these configs and their parts need, possibly repeated."""
    for value in values:
        if isinstance(value, PLAIN_TYPES):  # most fields of most jobs
            continue
        if hasattr(value, "extras"):  # tasks.contract.extras.NeedsExtras, of which isinstance is ten times slower
            yield from value.extras()
        yield from required_extras(value if isinstance(value, tuple) else (parts(value) or {}).values())


def extras_by_preset(entry: RegisteredAudit) -> dict[str, tuple[Extra, ...]]:
    """The packages that each preset of an audit needs, each once."""
    audit = entry.audit
    result = {}
    for preset in audit.presets:
        result[preset] = tuple(dict.fromkeys(required_extras(audit.cells(preset))))
    return result


def check_extras(
    plan: Plan, stored_keys: Callable[[], Container[str]], address: str | None, *other_values: Any
) -> None:
    """Raise EngramError, with the remedy, if a job that is not stored needs a package that is not installed.

    `other_values` are further values that need packages, such as the settings of a search. The packages on the machines
    of a cluster are not checked. `stored_keys` returns the keys in the store; it is called only if a package is
    missing.
    """
    if address not in LOCAL_ADDRESSES or not _missing(_configs(plan, plan.jobs), other_values, address):
        return
    missing_keys = plan.missing(stored_keys())
    if absent := _missing(_configs(plan, missing_keys), other_values, address):
        raise EngramError(describe_missing(absent))


def _missing(configs: Sequence[Any], other_values: Iterable[Any], address: str | None) -> tuple[Extra, ...]:
    """The missing packages of these jobs: packages of every run, and packages of their settings."""
    extras_of_every_run = []
    if configs:
        extras_of_every_run = [extra for extra in EVERY_RUN if extra is not RAY or address != "none"]
    return missing((*extras_of_every_run, *required_extras((*configs, *other_values))))


def _configs(plan: Plan, keys: Iterable[str]) -> list[Any]:
    return [plan.jobs[key].config for key in keys]


def check_cells(cells: Iterable[Cell], address: str | None) -> None:
    """As `check_extras` for cells without stored results; they are planned only if a package may be missing."""
    cells = tuple(cells)
    if _missing([cell.config for cell in cells], (), address):
        check_extras(Plan.union(map(plan_of, cells)), frozenset, address)
