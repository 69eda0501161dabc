"""The params, tags, metrics and inputs of a run for experiment tracking, read from its folder and the store.

This module only reads and is independent of any tracking server. The journal passed to it determines which values are
public.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.headlines import format_headline
from orchestrator.inspection import answers, results, search_results, status
from orchestrator.inspection.disclosure import typed_config
from orchestrator.inspection.search_results import SearchResults, is_search
from orchestrator.quantities import jsonable
from orchestrator.run_folder.journal import ENDS, Journal, MergedLog
from orchestrator.run_folder.progress import Event, RunProgress, seconds_of
from orchestrator.spec import audits
from orchestrator.spec.config_parts import flatten, plain, walk
from orchestrator.store import Store
from tasks.contract.objectives import Headline
from tasks.datasets.dataset import Dataset

SECONDS = 5.0  # minimum seconds of log time between two points
START_EVENTS = {"started", "stored", "step", "ready", "running"}  # logged at every start, even if there is no work
LONGEST_NAME = 250
LONGEST_VALUE = 6000
EFFECT = "effect"  # the metric used to compare runs
# Metric -> column of the row that contains the effect.
COLUMNS = {
    EFFECT: "estimate",
    f"{EFFECT}.low": "low",
    f"{EFFECT}.high": "high",
    f"{EFFECT}.null": "null",
    f"{EFFECT}.p_value": "p_value",
}
CELL_METRICS = (EFFECT, f"{EFFECT}.low", f"{EFFECT}.high")  # of the cells of a sweep, logged for their parent
REDUCTION = "search.reduction"  # metric of a search: how much less the winner memorises than the start
DIGEST = 32  # characters of a data set digest that fit into MLflow's field; the source has the full digest


@dataclass(frozen=True)
class Point:
    """The counts of a run at a time (Unix seconds). Steps count from 0 across all starts."""

    step: int
    time: float
    done: int  # results stored, regardless of which start computed them
    failed: int
    models_per_minute: float | None


class ProgressLog:
    """Follows a log. `read` processes the events that were added to it.

    `state` is how the last start ended, or None if it is still running or its driver was killed. `began` is the time of
    the first start and `ended` the time of the last activity.
    """

    def __init__(self, log: MergedLog) -> None:
        self.points: list[Point] = []
        self.state: str | None = None
        self.began: float | None = None
        self.ended: float | None = None
        self.log = log
        self._now = 0.0
        self._tally = RunProgress(clock=lambda: self._now)
        self._has_news = False  # whether the current start has done anything
        self._is_in_point = True  # whether the latest counts are recorded in a point
        self._ends: str | None = None  # how the previous start ended

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
            self._add()  # the counts at the beginning of this start
        now = self._now = seconds_of(event["time"])
        if self.began is None:
            self.began = now
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
        """Add a final point if the start has changed anything."""
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
    """Return whether the event reports progress rather than the start or end of a run."""
    return event["event"] not in START_EVENTS and not is_end(event)


@dataclass(frozen=True)
class Input:
    """A data set that the run reads. `context` lists the configuration fields that contain it."""

    name: str
    digest: str
    context: str

    @property
    def source(self) -> str:
        return json.dumps({"data": self.name, "digest": self.digest})


def _config(about: Mapping[str, Any]) -> Any:
    """Return a run's configuration as the audit's configuration type.

    Returns plain data if the audit is not installed or its configuration has changed since the run.
    """
    with_types = typed_config(about)
    if with_types is None:
        return about.get("config", {})
    return with_types


def params(about: Mapping[str, Any]) -> dict[str, str]:
    """Return the configuration flattened to dotted names, preceded by the audit and the preset.

    Fields that say only how jobs run are omitted, because MLflow does not let params change.
    """
    fields = {"audit": about["audit"], "preset": about.get("preset")}
    fields |= dict(flatten(plain(_config(about), has_execution=False)))
    texts = {}
    for name, value in fields.items():
        if value is not None:
            texts[safe_name(name)] = _text(value)
    return {name: text[:LONGEST_VALUE] for name, text in texts.items()}


def common(of_runs: list[dict[str, str]]) -> dict[str, str]:
    """Return the params that have equal values in all runs."""
    first = of_runs[0]
    result = {}
    for name, value in first.items():
        if all(params.get(name) == value for params in of_runs):
            result[name] = value
    return result


def inputs(about: Mapping[str, Any]) -> list[Input]:
    """Return the distinct data sets in the configuration."""
    contexts: dict[tuple[str, str], list[str]] = {}
    for field, part in walk(_config(about)):
        if isinstance(part, Dataset):
            contexts.setdefault((part.name, part.digest), []).append(field)
    result = []
    for (name, digest), fields in contexts.items():
        result.append(Input(name, digest, ", ".join(fields)))
    return result


def tags(journal: Journal, cells: Sequence[Journal]) -> dict[str, str]:
    """Return the tags that describe a run or sweep. For a single run, `cells` contains only this run."""
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
    """Return the verdict as tags: its short answer, the tone of the answer, and the number that compares runs.

    Returns an empty dict without a verdict. A sweep has the number of cells per answer and the range of their effects,
    and a search (`search` is given) has its recommendation.
    """
    if search is not None:
        return _recommendation_tags(search)
    if results.cells(journal):
        counts = results.short_answer(journal, store)
        effect = answers.effect(journal, store)
        tags = {"engram.answer": counts, "engram.estimate": effect, "engram.measured": _cells_measured(journal, store)}
        return {name: value for name, value in tags.items() if value}
    verdict = results.answer(journal, store)
    if verdict is None:
        return {}
    meaning = audits.find(journal.about()["audit"]).audit.wording.answers[verdict.answer]
    tags = {"engram.answer": verdict.answer, "engram.tone": meaning.tone}
    headline = results.headline(journal, store)
    if headline is not None:
        measured = answers.row_name(headline.row)
        tags["engram.effect"] = ", ".join(filter(None, (measured, headline.unit)))
        tags["engram.measured"] = measured
        tags["engram.estimate"] = format_headline(headline)
    return tags


def _cells_measured(journal: Journal, store: Store) -> str:
    """Return the name of the number that compares the cells of a sweep. Empty if there are several."""
    names = set()
    for cell in answers.cell_answers(journal, store):
        if cell.headline is not None:
            names.add(answers.row_name(cell.headline.row))
    if len(names) == 1:
        return names.pop()
    return ""


def metrics(journal: Journal, store: Store, search: SearchResults | None) -> dict[str, float]:
    """Return the audit's effect as the metrics `effect`, `.low`, `.high`, `.null` and `.p_value`.

    The values always come from the same summary row. A sweep has none of these metrics (see `cell_metrics`). A search
    (`search` is given) has the winner's reduction in memorisation as `search.reduction`, `.low` and `.high`. Nulls and
    non-finite values are omitted. All other numbers are in the tables among the artifacts.
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
    return _effect_metrics(results.headline(journal, store))


def cell_metrics(journal: Journal, store: Store) -> dict[int, dict[str, float]]:
    """Return the effects of a sweep's cells, by the index of the cell: `effect`, `effect.low` and `effect.high`.

    The parent run logs them with the index as the step, so that MLflow draws the sweep. Empty for a run.
    """
    by_cell = {}
    for step, cell in enumerate(results.cells(journal)):
        values = _effect_metrics(results.headline(journal.sibling(cell), store))
        by_cell[step] = {name: values[name] for name in CELL_METRICS if name in values}
    return by_cell


def _effect_metrics(headline: Headline | None) -> dict[str, float]:
    row = {} if headline is None else headline.row
    return _finite({name: row.get(column) for name, column in COLUMNS.items()})


def objectives(search: SearchResults, run: str) -> dict[str, float]:
    """Return both objectives of the trial with this run.

    The keys are `search.memorization` and `search.utility`, each also with `.low` and `.high`.
    """
    rows = [row for row in search.trials if row["run"] == run]
    values: dict[str, Any] = {}
    for name in ("memorization", "utility") if rows else ():
        objective = search_results.value(rows[-1], name) or {}
        values |= {f"search.{name}": objective.get("estimate")}
        values |= {f"search.{name}.{end}": objective.get(end) for end in ("low", "high")}
    return _finite(values)


def learning_curves(journal: Journal, store: Store) -> dict[str, list[tuple[int, float]]]:
    """Return the learning curves in the run's tables as (epoch, value) points by `learning/NAME`. A sweep has none."""
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
                curves[f"learning/{safe_name(name)}"] = finite
    return curves


def _recommendation_tags(search: SearchResults) -> dict[str, str]:
    """Return the recommendation of a search as tags. Returns an empty dict until there is one."""
    recommendation = answers.search_answer(search)
    if recommendation is None:
        return {}
    tags = {"engram.answer": recommendation.answer, "engram.tone": recommendation.tone}
    headline = answers.search_headline(search)
    if headline is not None:
        tags["engram.measured"] = headline.name
        tags["engram.estimate"] = format_headline(headline)
    return tags


def _finite(values: Mapping[str, Any]) -> dict[str, float]:
    """Return only the values that are finite numbers."""
    result = {}
    for name, value in values.items():
        if value is not None and math.isfinite(value):
            result[name] = float(value)
    return result


def safe_name(field: str) -> str:
    """Return the name with only the characters that MLflow accepts in the names of params and metrics."""
    return re.sub(r"[^A-Za-z0-9_\-. :/]", "_", field)[:LONGEST_NAME]


def _text(value: Any) -> str:
    plain_value = plain(value)
    if isinstance(plain_value, str):
        return plain_value
    return json.dumps(jsonable(plain_value))
