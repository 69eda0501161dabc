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

from orchestrator import rounding
from orchestrator.inspection import answers, results, search_results, status
from orchestrator.inspection.disclosure import typed_config
from orchestrator.inspection.search_results import SearchResults, is_search
from orchestrator.quantities import jsonable
from orchestrator.run_folder.journal import ENDS, Journal, MergedLog
from orchestrator.run_folder.progress import Event, RunProgress, seconds_of
from orchestrator.spec import audits
from orchestrator.spec.config_parts import flatten, plain, walk
from orchestrator.store import Store
from tasks.datasets.dataset import Dataset

SECONDS = 5.0  # of the log between two points
START_EVENTS = {"started", "stored", "step", "ready", "running"}  # events that a start logs even if it has no work
LONGEST_NAME = 250
LONGEST_VALUE = 6000
EFFECT = "effect"  # the metric by which runs are compared
# Metric -> column of the row with the effect.
COLUMNS = {
    EFFECT: "estimate",
    f"{EFFECT}.low": "low",
    f"{EFFECT}.high": "high",
    f"{EFFECT}.null": "null",
    f"{EFFECT}.p_value": "p_value",
}
REDUCTION = "search.reduction"  # of a search: the winner's reduction in memorisation against the start
DIGEST = 32  # characters of a data set's digest that fit into MLflow's field; its source has the full digest


@dataclass(frozen=True)
class Point:
    """The run's counts at a time (seconds since 1970); steps count from 0 over all starts."""

    step: int
    time: float
    done: int  # stored results, regardless of the start that computed them
    failed: int
    models_per_minute: float | None


class ProgressLog:
    """Follows a log; `read` processes the events added to it.

    state: the end of the last start; None if it has not ended, or if its driver was killed. `began` and `ended` are
    the times of the first start and of the last activity.
    """

    def __init__(self, log: MergedLog) -> None:
        self.points: list[Point] = []
        self.state: str | None = None
        self.began: float | None = None
        self.ended: float | None = None
        self.log = log
        self._now = 0.0
        self._tally = RunProgress(clock=lambda: self._now)
        self._has_news = False  # whether this start has done anything
        self._is_in_point = True  # whether its latest counts are in a point
        self._ends: str | None = None  # the end of the previous start

    def read(self, settled: bool = True) -> None:
        for event in self.log.read(settled):
            self._take(event)

    def _take(self, event: Event) -> None:
        if event["event"] == "started":
            self._close()
            self._has_news = False
            self.state = None
        elif is_news(event) and not self._has_news:
            self._has_news = True
            self._add()  # the counts when this start began
        now = self._now = seconds_of(event["time"])
        if self.began is None:
            self.began = now
        else:
            self.began = self.began
        self._tally.take(event)
        if is_end(event):
            self.state = event["event"]
            if self._has_news:
                self.ended = now
            elif self.state != self._ends:  # another run did the rest, or there was no work
                self.ended = now
                self._is_in_point = False
            self._ends = self.state
            self._close()
        elif self._has_news:
            self.ended = now
            self._is_in_point = False
            if now - self.points[-1].time >= SECONDS:
                self._add()

    def _close(self) -> None:
        """Add the last point of a start that has changed something."""
        if not self._is_in_point:
            self._add()

    def _add(self) -> None:
        tally = self._tally
        step = len(self.points)
        self.points.append(Point(step, self._now, tally.stored_now, tally.failed, tally.models_per_minute))
        self._is_in_point = True


def is_end(event: Event) -> bool:
    return event["event"] in ENDS and "key" not in event


def is_news(event: Event) -> bool:
    """Whether the event reports progress rather than the start or end of a run."""
    return event["event"] not in START_EVENTS and not is_end(event)


@dataclass(frozen=True)
class Input:
    """A data set that the run reads; `context` names the fields of the config that contain it."""

    name: str
    digest: str
    context: str

    @property
    def source(self) -> str:
        return json.dumps({"data": self.name, "digest": self.digest})


def _config(about: Mapping[str, Any]) -> Any:
    """A run's config as the audit's config type; plain if the audit is not installed or has changed since."""
    with_types = typed_config(about)
    if with_types is None:
        return about.get("config", {})
    return with_types


def params(about: Mapping[str, Any]) -> dict[str, str]:
    """The config flattened to dotted names, after audit and preset."""
    fields = {"audit": about["audit"], "preset": about.get("preset")}
    fields |= dict(flatten(_config(about)))
    texts = {}
    for name, value in fields.items():
        if value is not None:
            texts[_safe_name(name)] = _text(value)
    return {name: text[:LONGEST_VALUE] for name, text in texts.items()}


def common(of_runs: list[dict[str, str]]) -> dict[str, str]:
    """The params that are equal in all runs."""
    first = of_runs[0]
    result = {}
    for name, value in first.items():
        if all(params.get(name) == value for params in of_runs):
            result[name] = value
    return result


def inputs(about: Mapping[str, Any]) -> list[Input]:
    """The data sets of the config, each once."""
    contexts: dict[tuple[str, str], list[str]] = {}
    for field, part in walk(_config(about)):
        if isinstance(part, Dataset):
            contexts.setdefault((part.name, part.digest), []).append(field)
    result = []
    for (name, digest), fields in contexts.items():
        result.append(Input(name, digest, ", ".join(fields)))
    return result


def tags(journal: Journal, cells: Sequence[Journal]) -> dict[str, str]:
    """Tags that describe a run or sweep; for a run, `cells` is the run alone."""
    about = journal.about()
    first = cells[0].about()
    plan = hashlib.sha256(" ".join(sorted({key for cell in cells for key in cell.tasks()})).encode())
    values = {
        "engram.audit": about["audit"],
        "engram.preset": first.get("preset"),
        "engram.kind": "search" if is_search(about) else "sweep" if "cells" in about else "cell",
        "engram.plan": plan.hexdigest(),
        "mlflow.source.name": f"engram {'search' if is_search(about) else 'run'} {about['audit']}",
        "mlflow.source.type": "LOCAL",
        "mlflow.source.git.commit": first.get("commit"),
    }
    return {name: value for name, value in values.items() if value}


def answer(journal: Journal, store: Store, search: SearchResults | None) -> dict[str, str]:
    """Tags of the verdict: its short answer, the answer's tone, and the supporting row; empty without a verdict.

    For a sweep, only the number of cells by answer; for `search`, if given, its recommendation.
    """
    if search is not None:
        return _recommendation_tags(search)
    if results.cells(journal):
        counts = results.short_answer(journal, store)
        if counts:
            return {"engram.answer": counts}
        return {}
    verdict = results.answer(journal, store)
    if verdict is None:
        return {}
    meaning = audits.find(journal.about()["audit"]).audit.wording.answers[verdict.answer]
    tags = {"engram.answer": verdict.answer, "engram.tone": meaning.tone}
    compared = results.headline(journal, store)
    if compared is not None:
        unit = results.effect_unit(journal)
        tags["engram.effect"] = answers.row_name(compared) + (f", {unit}" if unit else "")
    row = _decisive(journal, store)
    if row is not None:
        ends = rounding.format_row_interval(row)
        tags["engram.measured"] = answers.row_name(row)
        tags["engram.estimate"] = f"{rounding.format_row_value(row, 'estimate')} {ends}".strip()
    return tags


def metrics(journal: Journal, store: Store, search: SearchResults | None) -> dict[str, float]:
    """The audit's effect, as `effect`, `.low`, `.high`, `.null`, `.p_value`: always the same row of its summary.

    Empty for a sweep; for `search`, if given, the winner's reduction in memorisation as `search.reduction`, `.low`,
    `.high`. Nulls and values that are not finite are omitted. All other numbers are in the tables among the artifacts.
    """
    if search is not None:
        recommendation = answers.search_answer(search)
        if recommendation is None:
            numbers = {}
        else:
            numbers = {
                REDUCTION: recommendation.estimate,
                f"{REDUCTION}.low": recommendation.low,
                f"{REDUCTION}.high": recommendation.high,
            }
        return _finite(numbers)
    row = results.headline(journal, store) or {}
    return _finite({name: row.get(column) for name, column in COLUMNS.items()})


def objectives(search: SearchResults, run: str) -> dict[str, float]:
    """Both numbers of the trial with this run, as `search.memorization` and `search.utility`, with `.low`, `.high`."""
    rows = [row for row in search.trials if row["run"] == run]
    values: dict[str, Any] = {}
    for name in ("memorization", "utility") if rows else ():
        objective = search_results.value(rows[-1], name) or {}
        values |= {f"search.{name}": objective.get("estimate")}
        values |= {f"search.{name}.{end}": objective.get(end) for end in ("low", "high")}
    return _finite(values)


def learning_curves(journal: Journal, store: Store) -> dict[str, list[tuple[int, float]]]:
    """The learning curves in the run's tables: (epoch, value) by `learning/NAME`; empty for a sweep."""
    about = journal.about()
    if "cells" in about:
        registered = None
    else:
        registered = audits.find_installed(about["audit"])
    if registered is None:
        return {}
    curves: dict[str, list[tuple[int, float]]] = {}
    roots = status.roots(journal)
    for measure in registered.audit.measures:
        if measure.learning_curves is None or measure.name not in roots:
            continue
        table = results.read(journal, store, measure.name).table
        if table.num_rows:
            for name, points in measure.learning_curves(table).items():
                finite = [(epoch, float(value)) for epoch, value in points if math.isfinite(value)]
                curves[f"learning/{_safe_name(name)}"] = finite
    return curves


def _recommendation_tags(search: SearchResults) -> dict[str, str]:
    """Tags of a search's recommendation; empty until there is one."""
    recommendation = answers.search_answer(search)
    if recommendation is None:
        return {}
    tags = {"engram.answer": recommendation.answer, "engram.tone": recommendation.tone}
    if recommendation.estimate is not None:
        tags["engram.measured"] = answers.REDUCTION_METRIC
        ends = rounding.format_interval(recommendation.low, recommendation.high)
        tags["engram.estimate"] = f"{rounding.format_row_value(vars(recommendation), 'estimate')} {ends}".strip()
    return tags


def _finite(values: Mapping[str, Any]) -> dict[str, float]:
    """The values that are finite numbers."""
    result = {}
    for name, value in values.items():
        if value is not None and math.isfinite(value):
            result[name] = float(value)
    return result


def _decisive(journal: Journal, store: Store) -> answers.Row | None:
    """The row that supports the answer; the first row without an answer; None without rows."""
    rows = results.summary(journal, store).table.to_pylist()
    return next(iter(answers.leading_rows(results.answer(journal, store), rows, 1)), None)


def _safe_name(field: str) -> str:
    return re.sub(r"[^A-Za-z0-9_\-. :/]", "_", field)[:LONGEST_NAME]


def _text(value: Any) -> str:
    plain_value = plain(value)
    if isinstance(plain_value, str):
        return plain_value
    return json.dumps(jsonable(plain_value))
