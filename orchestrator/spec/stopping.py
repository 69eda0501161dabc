"""Specifications of runs that end once they are decided."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from orchestrator.errors import SpecError
from orchestrator.spec import audits
from orchestrator.spec.resolve import Cell
from orchestrator.spec.specification import Spec

ALPHA = 0.05


def stop_when_decided(spec: Spec, alpha: float | None, most: int | None) -> Spec:
    """The specification of runs that end once decided at this error rate (None: ALPHA), after so many pairs at most."""
    stopping = audits.find(spec.audit).audit.stopping
    if stopping is None:
        raise SpecError(
            f"{spec.audit} cannot end once it is decided: nothing of it is drawn at random, pair by pair, whose exact "
            "rank could be bet on; it runs to its planned end"
        )
    alpha = ALPHA if alpha is None else alpha
    if not 0 < alpha < 1:
        raise SpecError(f"alpha is {alpha:g}; it must be between 0 and 1")
    if most is not None and most < 1:
        raise SpecError(f"most is {most}; it must be at least 1")
    wanted = stopping.settings(alpha, most)
    for name in wanted:
        if name in spec.set or name in spec.sweep:
            raise SpecError(f"{name} is given, and --until decided sets it; give --alpha or --most instead")
    return replace(spec, set={**spec.set, **wanted})


def extend(cell: Cell, asked: dict[str, Any], most: int) -> Cell:
    """The cell of a run that was asked for so, with more pairs."""
    stopping = cell.stopping
    if stopping is None or not stopping.is_asked(cell.config):
        raise SpecError("--most is given, and this run goes to its end; it must have begun with --until decided")
    if most <= (planned := stopping.planned(cell.config)):
        raise SpecError(f"most is {most}; it must be above {planned}, the pairs that this run has at most already")
    fields = {**asked.get("set", {}), stopping.pairs: most}
    spec = Spec(cell.audit, cell.preset, fields, asked.get("sweep", {}), {"tolerate": asked.get("tolerate", 0)})
    return replace(cell, config=stopping.first(cell.config, most), asked=spec)
