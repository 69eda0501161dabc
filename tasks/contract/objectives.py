"""The objectives of a search over training choices: memorization and utility."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from tasks.contract.summaries import Row, index_rows

SHARE = "share"  # unit of values from 0 to 1, printed in percentage points


@dataclass(frozen=True)
class Objective:
    """A number of the summary that a search minimises or maximises, or that compares runs.

    `row(config, summary)` returns the summary row that contains it, or None if there is none. `wording` is the text of
    the number in a list of runs: `{}` stands for the estimate and `{n}` for the sample size, as in `{} of {n} records`.
    By default, it is the estimate followed by the unit. Shares are printed in per cent, so `{} % of references` is the
    wording of a share.
    """

    name: str
    unit: str
    better: Literal["lower", "higher"]
    row: Callable[[Any, pa.Table], Row | None]
    wording: str = ""

    @property
    def sign(self) -> int:
        """1 if higher is better, else -1."""
        return 1 if self.better == "higher" else -1


@dataclass(frozen=True)
class Headline:
    """The number that compares runs of an audit, as every list of runs and cells shows it.

    `row` is the summary row with the estimate, which is not None. `unit` is the unit of the estimate, or an empty
    string if the audit declares none. `orchestrator.headlines` formats the number with its `wording`.
    """

    name: str
    unit: str
    wording: str
    row: Row

    @property
    def is_share(self) -> bool:
        return self.unit == SHARE

    @property
    def strength(self) -> float:
        """The distance of the estimate from the value that is expected without memorisation."""
        return abs(float(self.row["estimate"]) - float(self.row["null"] or 0.0))


def headline_of(objective: Objective, config: Any, summary: pa.Table) -> Headline | None:
    """Return the number of this objective. Returns None if the summary has no such row or the row has no estimate."""
    row = objective.row(config, summary)
    if row is None or row["estimate"] is None or not math.isfinite(row["estimate"]):
        return None
    unit = "%" if objective.unit == SHARE else objective.unit
    return Headline(objective.name, objective.unit, objective.wording or f"{{}} {unit}", row)


def undeclared_headline(summary: pa.Table) -> Headline | None:
    """Return the first row of a summary, for an audit that declares no number to compare."""
    row = next(iter(summary.slice(0, 1).to_pylist()), None)
    if row is None or row["estimate"] is None or not math.isfinite(row["estimate"]):
        return None
    return Headline(row["metric"], "", f"{row['metric']} {{}}", row)


@dataclass(frozen=True)
class Objectives:
    """The two objectives of a search. `allowance` is the loss of utility accepted by default."""

    memorization: Objective
    utility: Objective
    allowance: float


def row_reader(metric: str, setting: str) -> Callable[[Any, pa.Table], Row | None]:
    """Return a function that finds the row with this metric and setting (JSON) in a summary."""
    name = (metric, setting)

    def row(_config: Any, summary: pa.Table) -> Mapping[str, Any] | None:
        return index_rows(summary).get(name)

    return row  # type: ignore[return-value]
