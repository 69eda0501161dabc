"""The pairs of a run that ends once it is decided: which of them come next, and after which of them it is decided.

A pair counts only when all before it are there, so that the end follows from results in the order of the plan, whatever
the order in which they arrived, on however many machines and after however many starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from orchestrator.errors import SpecError
from orchestrator.planning.plan import Plan, plan_of
from orchestrator.spec import audits
from orchestrator.spec.resolve import Cell
from orchestrator.spec.specification import Spec
from tasks.contract.audit import Stopping


@dataclass(frozen=True)
class Rounds:
    """The tables of a cell's pairs by their keys, in the order of the plan, and how its audit stops."""

    cell: Cell
    plan: Plan
    stopping: Stopping

    @classmethod
    def of(cls, cell: Cell, plan: Plan) -> Rounds | None:
        """None for a run that goes to its end."""
        stopping = cell.stopping
        return cls(cell, plan, stopping) if stopping is not None and stopping.is_asked(cell.config) else None

    @property
    def pairs(self) -> tuple[str, ...]:
        return self.plan.inputs[self._evidence]

    @property
    def _evidence(self) -> str:
        (key,) = self.plan.roots[self.stopping.table]
        return key

    def next(self, there: int, width: int) -> Plan:
        """The jobs of the pairs up to so many more than those that are there."""
        return self.plan.below(self.pairs[: there + width])

    def decided(self, tables: Sequence[pa.Table]) -> int | None:
        """The number of pairs that decide, of the first ones, whose tables these are; None as long as none do."""
        if not tables:
            return None
        job = self.plan.jobs[self._evidence]
        decided = job.function(job.config, tables)["decided"].to_pylist()
        return decided.index(True) + 1 if True in decided else None

    def first(self, pairs: int) -> Plan:
        """The plan of the first so many pairs, as if no more had been asked for."""
        return plan_of(replace(self.cell, config=self.stopping.first(self.cell.config, pairs)))

    def describe(self, pairs: int, left: int) -> str:
        """Where the run ended and why, and how many jobs fewer that took."""
        level = self.stopping.error_rate(self.cell.config)
        return (
            f"decided after {pairs} of at most {len(self.pairs)} pairs of trainings, at an error rate of {level:g}; "
            f"the other {left} jobs are not needed"
        )


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
    for path in wanted:
        for name in (path, path.rpartition(".")[2]):
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
