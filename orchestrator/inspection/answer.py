"""The answer of a run with the numbers of the row that it rests on, for Python and notebooks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.inspection import results
from orchestrator.run_folder.journal import Journal
from orchestrator.spec import audits
from orchestrator.store import Store
from tasks.audit import Tone


@dataclass(frozen=True)
class Answer:
    """An audit's answer in words, and the first of the summary's rows that it rests on.

    answer, tone: such as `memorised`, and what that says of the model: `accused`, `cleared` or `open`.
    sentence, limits: the answer with its evidence, and what it does not say.
    metric, setting: which row of the summary; estimate, low, high: its number with the 95 % interval; null: what the
    estimate is where nothing is memorised; p: its p-value; n, unit: of what and how many. None where the row has none,
    and of an answer that rests on no row.
    """

    answer: str
    tone: Tone
    sentence: str
    limits: str
    metric: str | None = None
    setting: Mapping[str, Any] = field(default_factory=dict)
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    null: float | None = None
    p: float | None = None
    n: int | None = None
    unit: str | None = None


def answer(journal: Journal, store: Store) -> Answer | None:
    """The answer of a run; None as long as there is none, for an audit without answers in words, and for a sweep.

    Raises EngramError where the audit gives an answer that it does not declare.
    """
    verdict = results.answer(journal, store)
    if verdict is None:
        return None
    meaning = audits.find(journal.about()["audit"]).audit.answers[verdict.answer]
    said = Answer(verdict.answer, meaning.tone, verdict.sentence, verdict.limits)
    rows = {(row["metric"], row["setting"]): row for row in results.summary(journal, store).table.to_pylist()}
    row = next((rows[name] for name in verdict.rows if name in rows), None)
    if row is None:
        return said
    numbers = {name: row[name] for name in ("metric", "estimate", "low", "high", "null", "n", "unit")}
    return Answer(
        said.answer,
        said.tone,
        said.sentence,
        said.limits,
        setting=json.loads(row["setting"] or "{}"),
        p=row["p_value"],
        **numbers,
    )
