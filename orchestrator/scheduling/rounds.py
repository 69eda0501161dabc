"""The pairs of a run that ends once it is decided: which of them come next, and after which of them it is decided.

A pair counts only when all before it are there, so that the end follows from results in the order of the plan, whatever
the order in which they arrived, on however many machines and after however many starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from orchestrator.planning.plan import Plan, plan_of
from orchestrator.spec.resolve import Cell
from tasks.contract.stopping import Stopping


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
        level = getattr(self.cell.config, self.stopping.level)
        return (
            f"decided after {pairs} of at most {len(self.pairs)} pairs of trainings, at an error rate of {level:g}; "
            f"the other {left} jobs are not needed"
        )
