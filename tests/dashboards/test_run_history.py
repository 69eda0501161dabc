"""The course of a run: what each of its starts found and did."""

from __future__ import annotations

from pathlib import Path

from dashboards.run import Run, open_run
from dashboards.run_history import starts
from orchestrator.runs.lifecycle import resume
from orchestrator.spec.specification import Spec
from orchestrator.store import Store
from tests.dashboards import pages


def test_a_run_that_failed_and_was_resumed_has_two_starts(store: Store, tmp_path: Path) -> None:
    run = pages.ran(store, Spec("toys", "few", {"trouble": "raise", "at": 2, "folder": str(tmp_path)}))
    (tmp_path / "mended").touch()
    resume(run.name, store, pages.HERE)
    first, second = starts(open_run(store, run.name))
    assert ("failed", 5, 1) == (first.ended, first.progress.done, first.progress.failed)
    assert ("finished", 5, 2, 0) == (second.ended, second.progress.stored, second.progress.done, second.progress.failed)


def test_a_killed_start_has_no_end_and_took_until_its_last_event(store: Store) -> None:
    run = pages.ran(store, Spec("toys", "few"))
    log = run.journal.folder / "events.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    done = [at for at, line in enumerate(lines) if '"event": "done"' in line]
    log.write_text("".join(lines[: done[2] + 1]))
    (only,) = starts(run)
    assert ("", 3) == (only.ended, only.progress.done)
    assert 0 <= only.progress.elapsed < 10


def test_a_sweep_is_one_start_in_which_shared_jobs_count_once(store: Store) -> None:
    swept = pages.ran(store, Spec("toys", "few", sweep={"parts": ["2", "3"]}))
    (only,) = starts(swept)
    assert ("finished", 5, 5) == (only.ended, only.progress.planned, only.progress.done)


def test_models_a_minute_are_those_of_the_log(smoke: Run) -> None:
    (only, *_) = starts(smoke)
    assert only.progress.models_per_minute is not None
    assert 6 == only.progress.models  # three canaries and their twins
