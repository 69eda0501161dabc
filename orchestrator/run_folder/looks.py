"""Counts looks: how many answered runs in a store examine the same question. Error rates are corrected for this.

Two runs of an audit are looks at the same question if they share a training, for example after adding canaries, or if
their configurations differ only in seeds, sizes and answer thresholds. Runs of the preset `null`, which contain no
effect to find, count as looks only for each other. A run counts once all its results exist. Its look is then recorded
in its folder and does not change when the run is resumed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from orchestrator.errors import EngramError, SpecError, StoreError
from orchestrator.planning.identity import canonical
from orchestrator.planning.plan import Plan
from orchestrator.run_folder.journal import COMPLETE, Journal, reopen_cell
from orchestrator.spec import audits
from orchestrator.spec.config_parts import parts, plain
from orchestrator.spec.fields import coerce
from orchestrator.spec.resolve import Cell
from tasks.contract.job import ANSWER_ONLY
from tasks.contract.looks import FIRST, Look

# Size fields. A run with other values is another look at the same question.
SIZES = ("canaries", "models", "pairs", "replicates", "repetitions", "seeds", "draws", "permutations", "resamples")
SEED = "seed"
NULL = "null"


def read_look(about: Mapping[str, Any]) -> Look:
    """Return the look recorded in a run's folder. If there is none, it is the first look."""
    look = about.get("look")
    if look is None:
        return FIRST
    return Look(look["number"], look["cells"], look["streams"])


@dataclass(frozen=True)
class PastRun:
    """An answered run: its name, whether it is a null run, its question and its job keys.

    The question is None if the run's audit is not installed or has changed since the run.
    """

    run: str
    is_null: bool
    question: Any
    keys: frozenset[str]


def read_past_runs(audit: str, runs: Path) -> list[PastRun]:
    """Return the answered runs of this audit in the folder. Unreadable runs are skipped."""
    past_runs = []
    for journal in _answered_runs(audit, runs):
        with suppress(StoreError):
            about = journal.about()
            keys = frozenset(journal.tasks())
            past_runs.append(PastRun(journal.run, _is_null(about.get("preset")), _question_of_run(about), keys))
    return past_runs


def _count_looks(cell: Cell, plan: Plan, past_runs: Iterable[PastRun], own_runs: Collection[str] = ()) -> Look:
    """Return which look at its question a run of this cell and plan is, given the runs answered before it.

    `own_runs` are names of runs that do not count.
    """
    trained_keys = {key for key, task in plan.tasks.items() if task in plan.trains}
    question = _question_of(cell.audit, cell.config)
    look = FIRST
    for run in past_runs:
        if run.run in own_runs or run.is_null != _is_null(cell.preset):
            continue
        has_same_question = run.question == question
        shares_training = not trained_keys.isdisjoint(run.keys)
        if has_same_question or shares_training:
            is_extension = has_same_question and shares_training
            look = replace(look, number=look.number + 1, streams=look.streams + (not is_extension))
    return look


def expected_look(cell: Cell, plan: Plan, run: Journal, past_runs: Iterable[PastRun]) -> int:
    """Return the recorded look of the run in this folder. If there is none yet, return its look once it is answered."""
    with suppress(StoreError):
        if run.exists and "look" in (about := run.about()):
            return read_look(about).number
    return _count_looks(cell, plan, past_runs, (run.run,)).number


def _is_null(preset: str | None) -> bool:
    return preset is not None and preset.startswith(NULL)


def record_looks(journals: Sequence[Journal], plans: Sequence[Plan]) -> None:
    """Record the look of each of these runs, which were judged together and have just been answered.

    A recorded look never changes.
    """
    new_runs = [journal.run for journal in journals if "look" not in journal.about()]
    past_runs = cache(read_past_runs)
    for journal, plan in zip(journals, plans, strict=True):
        if journal.run not in new_runs:
            continue
        registered = audits.find_installed(journal.about()["audit"])
        if registered is None or registered.audit.verdict is None:
            continue  # this run gives no answer
        cell = reopen_cell(journal)
        counted = _count_looks(cell, plan, past_runs(cell.audit, journal.folder.parent), new_runs)
        look = replace(counted, cells=len(journals))
        summed = audits.find(cell.audit).audit.summed_error(cell.config, look)
        journal.rewrite({**journal.about(), "look": {**asdict(look), "summed_error": summed}})


def _question_of(audit: str, config: Any) -> Any:
    """Return the configuration without seeds, sizes, answer thresholds and stopping rules."""
    stopping = audits.find(audit).audit.stopping
    rules = () if stopping is None else (stopping.level, stopping.pairs)
    try:
        form = canonical(config)
    except SpecError:  # data that the configuration names but no job reads have no digest
        form = plain(config, has_execution=False)
    left_out = {*rules, *_fields_left_out(config)}
    return _without_seeds(_without_paths(form, left_out, ""))


def _fields_left_out(config: Any, prefix: str = "") -> Iterator[str]:
    """Yield the dotted paths of size fields and of thresholds that only the answer reads.

    Fields that name files are kept.
    """
    for field in dataclasses.fields(config):
        path = f"{prefix}{field.name}"
        value = getattr(config, field.name)
        if field.metadata.get(ANSWER_ONLY) or (isinstance(value, int) and field.name in SIZES):
            yield path
        elif parts(value) is not None:
            yield from _fields_left_out(value, f"{path}.")


def _without_paths(form: Mapping[str, Any], left_out: Container[str], prefix: str) -> dict[str, Any]:
    remaining = {}
    for name, part in form.items():
        path = f"{prefix}{name}"
        if path not in left_out:
            if isinstance(part, Mapping):
                remaining[name] = _without_paths(part, left_out, f"{path}.")
            else:
                remaining[name] = part
    return remaining


def _without_seeds(form: Any) -> Any:
    if isinstance(form, dict):
        return {name: _without_seeds(part) for name, part in form.items() if name != SEED}
    if isinstance(form, list):
        return [_without_seeds(part) for part in form]
    return form


def _answered_runs(audit: str, runs: Path) -> Iterator[Journal]:
    """Yield the answered runs of this audit in the folder."""
    for folder in sorted(runs.glob(f"{audit}-*")) if runs.is_dir() else []:
        if not (folder / "plan.json").is_file():  # sweeps and searches have no plan
            continue
        journal = Journal(folder)
        with suppress(StoreError):
            about = journal.about()
            if about["audit"] == audit and ("look" in about or _has_ended(journal)):
                yield journal


def _has_ended(journal: Journal) -> bool:
    """Whether the last start of a run had all needed results. Used for runs from versions that recorded no look."""
    ends = [event["event"] for event in journal.last_start(COMPLETE)]
    return bool(ends) and ends[-1] in COMPLETE


def _question_of_run(about: Mapping[str, Any]) -> Any:
    """Return the question of a run. Returns None if its audit is not installed or has changed since the run."""
    with suppress(EngramError, KeyError):
        config = coerce(about["config"], audits.find(about["audit"]).audit.config, "config")
        return _question_of(about["audit"], config)
    return None
