"""The config of the summary: what it needs besides the tables."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class About:
    """What the tables do not say of the run.

    The decisive m is that of these `questions`: numeric where digits are taken out of contexts. `epsilon` is that of
    differential privacy; None without. `cell` is the column of the paper's table 2 that the run repeats; empty for
    none.
    """

    questions: str
    epsilon: float | None = None
    cell: str = ""
