"""All runs of a store as one Arrow table."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from orchestrator import headlines
from orchestrator.inspection import answers, results, status
from orchestrator.inspection.status import Status
from orchestrator.run_folder.journal import Journal
from orchestrator.run_folder.tables import MEANING
from orchestrator.store import Store

COLUMNS: Mapping[str, tuple[pa.DataType, str]] = {
    "run": (pa.string(), "the name of the run, sweep or search"),
    "audit": (pa.string(), "the audit"),
    "preset": (pa.string(), "the preset; null without one"),
    "state": (pa.string(), "finished, decided, running, failed, paused, interrupted or unreadable"),
    "created": (pa.timestamp("us", "UTC"), "time of the first start; null if unreadable"),
    "answer": (pa.string(), "the answer; for a sweep, the number of cells per answer; null without one"),
    "effect": (pa.string(), "the number that compares runs, with its unit and interval; null without one"),
    "estimate": (pa.float64(), "the same number; null for a sweep"),
    "low": (pa.float64(), "lower end of its 95 % interval"),
    "high": (pa.float64(), "upper end of its 95 % interval"),
    "null": (pa.float64(), "expected estimate if nothing is memorised"),
    "effect_unit": (pa.string(), "the unit of the estimate; share: from 0 to 1"),
    "planned": (pa.int64(), "number of planned jobs"),
    "stored": (pa.int64(), "number of jobs whose results are stored"),
    "report": (pa.string(), "the path of the report; null if there is none"),
    "mlflow": (pa.string(), "the address of the run in MLflow; null if there is none"),
}
SCHEMA = pa.schema(
    [pa.field(name, kind, metadata={MEANING: meaning.encode()}) for name, (kind, meaning) in COLUMNS.items()]
)


def list_runs(store: Store) -> pa.Table:
    """Return one row per run, sweep and search, oldest first. A trial of a search has its own row."""
    journals = status.journals(store)
    rows = [_row(run, journals[run.run], store) for run in status.overview(store) if run.run in journals]
    return pa.Table.from_pylist(rows, SCHEMA)


def _row(run: Status, journal: Journal, store: Store) -> dict[str, Any]:
    row = {
        "run": run.run,
        "audit": run.audit or None,
        "preset": run.preset,
        "state": run.state,
        "created": datetime.datetime.fromisoformat(run.created) if run.created else None,
        "planned": run.jobs["planned"],
        "stored": run.jobs["stored"],
        "report": None if run.page is None else str(run.page),
        "mlflow": run.mlflow,
    }
    if run.finished:
        effect = headlines.headline_shape(answers.run_headline(journal, store)) or {}
        numbers = {name: effect.get(name) for name in ("estimate", "low", "high", "null")}
        text = answers.effect(journal, store) or None
        row |= numbers | {
            "answer": results.short_answer(journal, store) or None,
            "effect": text,
            "effect_unit": effect.get("unit"),
        }
    return row
