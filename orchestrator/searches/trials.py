"""Trials: the table of a search and its Pareto front."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa

from orchestrator.inspection.search_results import FRESH, SEARCHED
from tasks.contract.objectives import Objectives

# states in addition to CUT
FINISHED = "finished"
STOPPED = "stopped early"
REFUSED = "refused"
FAILED = "failed"

TRIALS = pa.schema(
    [
        ("trial", pa.int32()),  # 1-based; 0 is the start of the search
        ("part", pa.string()),  # search, or fresh: the same setting with fresh seeds and canaries
        ("setting", pa.string()),  # chosen fields as JSON
        ("state", pa.string()),
        ("run", pa.string()),
        ("epochs", pa.int32()),
        ("seed", pa.int64()),
        ("memorization", pa.float64()),
        ("memorization_low", pa.float64()),  # 95 % interval
        ("memorization_high", pa.float64()),
        ("memorization_n", pa.int64()),
        ("memorization_unit", pa.string()),  # the unit of n
        ("utility", pa.float64()),
        ("utility_low", pa.float64()),
        ("utility_high", pa.float64()),
        ("utility_n", pa.int64()),
        ("utility_unit", pa.string()),
        ("front", pa.bool_()),  # true if no finished trial of the search dominates this one
        ("note", pa.string()),
    ]
)


@dataclass(frozen=True)
class Value:
    """An estimate with its 95 % interval over n independent units. `low` and `high` are None without an interval."""

    estimate: float
    low: float | None = None
    high: float | None = None
    n: int = 0
    unit: str = ""


@dataclass(frozen=True)
class Trial:
    """A training choice and its outcome. If there is no estimate, `state` and `note` say why."""

    number: int
    part: str
    setting: Mapping[str, Any]
    state: str
    run: str = ""
    epochs: int | None = None
    seed: int | None = None
    memorization: Value | None = None
    utility: Value | None = None
    note: str = ""

    @property
    def is_complete(self) -> bool:
        """Whether training is complete and both estimates exist."""
        return self.state == FINISHED and self.memorization is not None and self.utility is not None


def front(trials: Iterable[Trial], objectives: Objectives) -> list[Trial]:
    """Return the complete, non-dominated trials of the search, sorted by memorisation with the least first.

    A trial dominates another if neither its memorisation nor its utility is worse and at least one of them is better.
    Only the estimates are compared. Their intervals show the uncertainty of the front.
    """
    complete_trials = [trial for trial in trials if trial.is_complete and trial.part == SEARCHED]
    losses = {id(trial): _losses(trial, objectives) for trial in complete_trials}
    front_trials = [
        trial
        for trial in complete_trials
        if not any(_dominates(losses[id(rival)], losses[id(trial)]) for rival in complete_trials)
    ]
    return sorted(front_trials, key=lambda trial: (losses[id(trial)], trial.number))


def table(trials: Sequence[Trial], objectives: Objectives) -> pa.Table:
    """Return the TRIALS table, ordered by trial number with the fresh trials last."""
    best = {(trial.part, trial.number) for trial in front(trials, objectives)}
    ordered = sorted(trials, key=lambda trial: (trial.part == FRESH, trial.number))
    return pa.Table.from_pylist([_row(trial, (trial.part, trial.number) in best) for trial in ordered], TRIALS)


def read(rows: Iterable[Mapping[str, Any]]) -> list[Trial]:
    """Read trials from the rows of a TRIALS table."""
    result = []
    for row in rows:
        result.append(
            Trial(
                number=row["trial"],
                memorization=_value(row, "memorization"),
                utility=_value(row, "utility"),
                setting=json.loads(row["setting"]),
                **{name: row[name] for name in ("part", "state", "run", "epochs", "seed", "note")},
            )
        )
    return result


def _losses(trial: Trial, objectives: Objectives) -> tuple[float, float]:
    assert trial.memorization is not None
    assert trial.utility is not None
    return (
        -objectives.memorization.sign * trial.memorization.estimate,
        -objectives.utility.sign * trial.utility.estimate,
    )


def _dominates(losses: tuple[float, float], other_losses: tuple[float, float]) -> bool:
    return losses != other_losses and losses[0] <= other_losses[0] and losses[1] <= other_losses[1]


def _row(trial: Trial, best: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "trial": trial.number,
        "setting": json.dumps(dict(trial.setting), sort_keys=True),
        "front": best,
        **{name: getattr(trial, name) for name in ("part", "state", "run", "epochs", "seed", "note")},
    }
    for name in ("memorization", "utility"):
        value = getattr(trial, name)
        for value_field in fields(Value):
            if value_field.name == "estimate":
                column = name
            else:
                column = f"{name}_{value_field.name}"
            if value is None:
                row[column] = None
            else:
                row[column] = getattr(value, value_field.name)
    return row


def _value(row: Mapping[str, Any], name: str) -> Value | None:
    if row[name] is None:
        return None
    return Value(row[name], *(row[f"{name}_{suffix}"] for suffix in ("low", "high", "n", "unit")))
