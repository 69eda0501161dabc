"""The display adds up a run's events, says where it stands, and never troubles the run."""

from __future__ import annotations

import io
import queue
import re
import time
from typing import Any

import pytest

from orchestrator.cli import progress
from orchestrator.cli.progress import line, message, watching
from orchestrator.run_folder.progress import RunProgress
from tests.support.waiting import HANGING

PLANNED = {"event": "planned", "run": "a-1", "planned": 10, "stored": 2, "tasks": {"net.train": 8, "a.summary": 2}}


def done(task: str = "net.train", seconds: float = 4.0) -> dict[str, Any]:
    return {"event": "done", "key": "k" * 64, "task": task, "seconds": seconds, "worker": "here:1"}


def failed(event: str = "failed", **about: str) -> dict[str, Any]:
    return {"event": event, "key": "f" * 64, "task": "net.train", **about}


def test_the_line_says_what_is_done_what_was_there_before_and_what_failed() -> None:
    tally = RunProgress(lambda: 100.0)
    for event in (PLANNED, done(), done(), failed(error="ValueError: no")):
        tally.take(event)
    assert line(tally).startswith("4/10 jobs, 2 done, 2 stored before, 1 failed")


def test_a_run_that_is_over_has_no_time_left_to_show() -> None:
    now = 100.0
    tally = RunProgress(lambda: now)
    tally.take(PLANNED)
    tally.take(done())
    now += 1.0
    assert line(tally).endswith("left")
    tally.take({"event": "failed", "run": "a-1"})
    assert not line(tally).endswith("left")
    assert tally.failed == 0


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (failed(error="ValueError: no"), "failed: net.train ffffffffffff: ValueError: no"),
        (failed("lost", cause="its worker died"), "lost, will be sent again: net.train ffffffffffff: its worker died"),
        (
            failed("missing", inputs="x"),
            "an input of net.train ffffffffffff is missing or damaged and is computed again",
        ),
        (failed("damaged", problem="bits"), "damaged, will be computed again: net.train ffffffffffff: bits"),
        (failed("refused", cause="disk full"), "cannot write to the store: disk full"),
        (done(), None),
    ],
)
def test_what_goes_wrong_is_told_in_a_line(event: dict[str, Any], said: str | None) -> None:
    assert said == message(event)


def test_without_a_terminal_there_is_a_line_now_and_then_and_one_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SECONDS", 0.05)
    lines: list[str] = []
    with watching(live=False, print_line=lines.append) as observe:
        observe(PLANNED)
        before = len(lines)
        deadline = 100
        while len(lines) == before and (deadline := deadline - 1):
            time.sleep(0.05)
        observe(done())
        seen = len(lines)
    assert lines[0] == "a-1: 10 jobs, 2 of them stored already"
    assert lines[1].startswith("2/10 jobs")
    assert seen < len(lines)
    assert lines[-1].startswith("3/10 jobs, 1 done")


def test_a_slow_step_before_the_jobs_is_told_once_and_a_quick_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LOOK", 0.01)
    lines: queue.Queue[str] = queue.Queue()
    with watching(live=False, print_line=lines.put) as observe:
        observe({"event": "step", "step": "reading data", "time": "2000-01-01T00:00:00+00:00"})  # long ago
        assert lines.get(timeout=HANGING) == "reading data"
        observe({"event": "step", "step": "planning", "time": "2999-01-01T00:00:00+00:00"})
        observe(PLANNED)
        observe({"event": "step", "step": "starting Ray", "time": "2000-01-01T00:00:00+00:00"})
        assert [lines.get(timeout=HANGING) for _ in "ab"] == ["a-1: 10 jobs, 2 of them stored already", "starting Ray"]
    assert lines.get(timeout=HANGING).startswith("2/10 jobs")
    assert lines.empty()


def test_the_line_names_the_phase_and_the_time_left() -> None:
    now = 100.0
    tally = RunProgress(lambda: now)
    tally.take({"event": "step", "step": "reading data"})
    now += 3
    assert line(tally) == "reading data, 3 s"
    kinds = {"net.train": (6, 60.0), "a.summary": (2, None)}
    for event in (PLANNED | {"trainings": 8, "trained": 2, "kinds": kinds}, {"event": "ready", "slots": 2}):
        tally.take(event)
    said = "2/10 jobs, 0 done, 2 stored before, 2 running, training 2/8, under 1 s elapsed, at least 3 min left"
    assert said == line(tally)


@pytest.mark.parametrize("event", [{}, {"event": "done"}, {"event": "planned"}, {"event": "of another version"}])
def test_an_event_that_nobody_understands_is_passed_over(event: dict[str, Any]) -> None:
    with watching(live=False, print_line=lambda line: None) as observe:
        observe(event)


def test_a_closed_pipe_is_no_trouble_to_the_run() -> None:
    def broken(line: str) -> None:
        raise BrokenPipeError

    with watching(live=False, print_line=broken) as observe:
        observe(PLANNED)
        observe(failed(error="ValueError: no"))


def test_on_a_terminal_the_display_shows_a_bar_and_the_same_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120, color_system=None)
    monkeypatch.setattr("orchestrator.cli.terminal.stderr", lambda: console)
    with watching(live=True) as observe:
        observe(PLANNED)
        observe(done())
    assert "a-1: 10 jobs, 2 of them stored already" in out.getvalue()
    assert "3/10 jobs, 1 done, 2 stored before" in out.getvalue().replace(progress.BLANK, " ")
    shown = [line for line in re.split(r"[\r\n]", out.getvalue()) if "━" in line]
    assert shown
    assert not any("jobs" in line for line in shown)  # the bar has a line of its own
