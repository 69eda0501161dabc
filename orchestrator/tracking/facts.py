"""Params, tags, metrics and inputs of a run for experiment tracking, from its folder and the store.

This module only reads, and knows no tracking server. The journal passed to it decides which values are public.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.inspection import results
from orchestrator.inspection.disclosure import typed
from orchestrator.jsonable import jsonable
from orchestrator.run_folder.journal import Journal
from orchestrator.spec import audits
from orchestrator.spec.config_parts import flat, plain, walk
from orchestrator.store import Store
from tasks.datasets.dataset import Dataset

LONGEST_NAME, LONGEST_VALUE = 250, 6000
DIGEST = 32  # characters of a data set's digest that fit into MLflow's field; the whole one is in its source


@dataclass(frozen=True)
class Input:
    """A data set that the run reads; `context` names the fields of the config that contain it."""

    name: str
    digest: str
    context: str

    @property
    def source(self) -> str:
        return json.dumps({"data": self.name, "digest": self.digest})


def config(about: Mapping[str, Any]) -> Any:
    """A run's config as the audit's config type; plain if the audit has gone or has changed since."""
    with_types = typed(about)
    return about.get("config", {}) if with_types is None else with_types


def params(about: Mapping[str, Any]) -> dict[str, str]:
    """The config flattened to dotted names, after audit and preset."""
    fields = {"audit": about["audit"], "preset": about.get("preset")}
    fields |= dict(flat(config(about)))
    texts = {_named(name): _text(value) for name, value in fields.items() if value is not None}
    return {name: text[:LONGEST_VALUE] for name, text in texts.items()}


def common(of_runs: list[dict[str, str]]) -> dict[str, str]:
    """The params that are equal in all runs."""
    first = of_runs[0]
    return {name: value for name, value in first.items() if all(other.get(name) == value for other in of_runs)}


def inputs(about: Mapping[str, Any]) -> list[Input]:
    """The data sets of the config, each once."""
    contexts: dict[tuple[str, str], list[str]] = {}
    for field, part in walk(config(about)):
        if isinstance(part, Dataset):
            contexts.setdefault((part.name, part.digest), []).append(field)
    return [Input(name, digest, ", ".join(where)) for (name, digest), where in contexts.items()]


def tags(journal: Journal, cells: Sequence[Journal]) -> dict[str, str]:
    """Tags that describe a run or sweep; for a run, `cells` is the run alone."""
    about = journal.about()
    first = cells[0].about()
    plan = hashlib.sha256(" ".join(sorted({key for cell in cells for key in cell.tasks()})).encode())
    values = {
        "engram.audit": about["audit"],
        "engram.preset": first.get("preset"),
        "engram.kind": "sweep" if "cells" in about else "cell",
        "engram.plan": plan.hexdigest(),
        "mlflow.source.name": f"engram run {about['audit']}",
        "mlflow.source.type": "LOCAL",
        "mlflow.source.git.commit": first.get("commit"),
    }
    return {name: value for name, value in values.items() if value}


def answer(journal: Journal, store: Store) -> dict[str, str]:
    """Tags of the verdict: its short answer and the answer's tone; empty if the audit gives none."""
    verdict = results.answer(journal, store)
    if verdict is None:
        return {}
    meaning = audits.find(journal.about()["audit"]).audit.answers[verdict.answer]
    return {"engram.answer": verdict.answer, "engram.tone": meaning.tone}


def metrics(journal: Journal, store: Store) -> dict[str, float]:
    """The run's summary so far: `metric/setting`, and the limits of its interval with .low and .high.

    Nulls and values that are not finite are left out.
    """
    values: dict[str, float] = {}
    for row in results.summary(journal, store).table.to_pylist():
        name = metric_name(row["metric"], row.get("setting"))
        for suffix, column in (("", "estimate"), (".low", "low"), (".high", "high")):
            value = row.get(column)
            if value is not None and math.isfinite(value):
                values[_free(f"{name}{suffix}", values)] = float(value)
    return values


def metric_name(metric: str, setting: str | None) -> str:
    """The name of a metric with its setting (JSON), such as `M_w effect/images:probe`."""
    try:
        varied = json.loads(setting or "{}")
    except ValueError:
        varied = {"setting": setting}
    if not isinstance(varied, Mapping):
        varied = {"setting": varied}
    label = " ".join(f"{_part(name)}:{_part(_text(value))}" for name, value in varied.items())
    return (f"{_part(metric)}/{label}" if label else _part(metric))[: LONGEST_NAME - len(".high")]


def _free(name: str, taken: Mapping[str, float]) -> str:
    """The name, with a number appended if it is taken already."""
    count = 2
    free = name
    while free in taken:
        free = f"{name} {count}"
        count += 1
    return free


def _part(text: str) -> str:
    """The text without characters that MLflow does not allow in names; slashes separate groups."""
    clean = re.sub(r"[^A-Za-z0-9_\-. :]", "_", text).strip()
    return clean if clean.strip(".") else "_"


def _named(field: str) -> str:
    return re.sub(r"[^A-Za-z0-9_\-. :/]", "_", field)[:LONGEST_NAME]


def _text(value: Any) -> str:
    plain_value = plain(value)
    return plain_value if isinstance(plain_value, str) else json.dumps(jsonable(plain_value))
