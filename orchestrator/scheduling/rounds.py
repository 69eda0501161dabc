"""The pairs of a run that stops once it is decided: which to compute next, and which one decides.

A pair counts only after all earlier ones. The end therefore depends on the results in plan order, and not on their
order of arrival, the number of machines or the number of starts.
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
    """The pair tables of a cell by key, in plan order, and the audit's stopping rule."""

    cell: Cell
    plan: Plan
    stopping: Stopping

    @classmethod
    def of(cls, cell: Cell, plan: Plan) -> Rounds | None:
        """Return the rounds of a cell. Returns None for a run that always completes its plan."""
        stopping = cell.stopping
        if stopping is not None and stopping.is_asked(cell.config):
            return cls(cell, plan, stopping)
        return None

    @property
    def pairs(self) -> tuple[str, ...]:
        return self.plan.inputs[self._evidence]

    @property
    def _evidence(self) -> str:
        (key,) = self.plan.roots[self.stopping.table]
        return key

    def next(self, finished_pairs: int, width: int) -> Plan:
        """Return the jobs of the first `finished_pairs` + `width` pairs."""
        return self.plan.below(self.pairs[: finished_pairs + width])

    def decided(self, tables: Sequence[pa.Table]) -> int | None:
        """Return the number of pairs that decide the run, given the tables of the first pairs.

        Returns None if undecided.
        """
        if not tables:
            return None
        job = self.plan.jobs[self._evidence]
        decided = job.function(job.config, tables)["decided"].to_pylist()
        return decided.index(True) + 1 if True in decided else None

    def first(self, pairs: int) -> Plan:
        """Return the plan of the first `pairs` pairs, as if no more had been requested."""
        return plan_of(replace(self.cell, config=self.stopping.first(self.cell.config, pairs)))

    def describe(self, pairs: int, unneeded_jobs: int) -> str:
        """Describe at which pair the run was decided, the error rate, and how many jobs were saved."""
        level = self.stopping.error_rate(self.cell.config)
        return (
            f"decided after {pairs} of at most {len(self.pairs)} pairs of trainings, at an error rate of {level:g}; "
            f"the other {unneeded_jobs} jobs are not needed"
        )


ALPHA = 0.05


def stop_when_decided(spec: Spec, alpha: float | None, pair_limit: int | None) -> Spec:
    """Return a specification whose runs stop once decided at this error rate (None: ALPHA).

    `pair_limit` is the maximum number of pairs.
    """
    stopping = audits.find(spec.audit).audit.stopping
    if stopping is None:
        raise SpecError(
            f"{spec.audit} cannot stop early: --until decided needs an audit that draws pairs of trainings at "
            "random; run it without --until"
        )
    alpha = ALPHA if alpha is None else alpha
    if not 0 < alpha < 1:
        raise SpecError(f"alpha is {alpha:g}; it must be between 0 and 1")
    if pair_limit is not None and pair_limit < 1:
        raise SpecError(f"most is {pair_limit}; it must be at least 1")
    stopping_fields = stopping.settings(alpha, pair_limit)
    for path in stopping_fields:
        for name in (path, path.rpartition(".")[2]):
            if name in spec.set or name in spec.sweep:
                raise SpecError(f"{name} is given, but --until decided sets it; give --alpha or --most instead")
    return replace(spec, set={**spec.set, **stopping_fields})


def extend(cell: Cell, specification: dict[str, Any], pair_limit: int) -> Cell:
    """Return the cell for a run of this specification with more pairs."""
    stopping = cell.stopping
    if stopping is None or not stopping.is_asked(cell.config):
        raise SpecError("--most is given, but this run was not started with --until decided")
    if pair_limit <= (planned_pairs := stopping.planned(cell.config)):
        raise SpecError(f"most is {pair_limit}; it must be above {planned_pairs}, the present maximum of this run")
    fields = {**specification.get("set", {}), stopping.pairs: pair_limit}
    spec = Spec(
        cell.audit, cell.preset, fields, specification.get("sweep", {}), {"tolerate": specification.get("tolerate", 0)}
    )
    return replace(cell, config=stopping.first(cell.config, pair_limit), spec=spec)
