"""Checks that a requested run has no living driver on any machine."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from orchestrator.errors import EngramError, Held
from orchestrator.planning.identity import run_id
from orchestrator.planning.plan import plan_of
from orchestrator.spec.resolve import Cell, pin_available
from orchestrator.store import Store, lease
from orchestrator.store.holder import Holder


def check_undriven(cells: Sequence[Cell], store: Store) -> None:
    """Raise Held if one of the cells is a run in the store with a living driver.

    The cells are planned only if some run of this audit has a driver. If the data are not on this machine, the run's
    name is unknown and the check passes. The lease then refuses the second driver.
    """
    runs = store.folder("runs")
    driven: dict[str, Holder] = {}
    for folder in sorted(runs.glob(f"{cells[0].audit}-*")):
        holder = lease.holder(folder)
        if holder is not None:
            driven[folder.name] = holder
    if not driven:
        return
    names: list[str] = []
    with suppress(EngramError):
        available_cells, _ = pin_available(cells, store.digests())
        names = []
        for cell in available_cells:
            names.append(run_id(cell.audit, list(plan_of(cell).jobs), cell.config))
    for name in names:
        if name in driven:
            raise Held(
                f"{name} already has a driver: {driven[name].name}; engram runs status {name} --watch follows it"
            )
