"""The display sums up a run's events and shows its state. An error of the display never affects the run."""

from __future__ import annotations

import io
import queue
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
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


def test_line_counts_done_stored_and_failed_jobs() -> None:
    tally = RunProgress(lambda: 100.0)
    for event in (PLANNED, done(), done(), failed(error="ValueError: no")):
        tally.take(event)
    assert line(tally).startswith("4/10 jobs, 2 done, 2 stored before, 1 failed")


def test_finished_run_shows_no_time_left() -> None:
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
    ("event", "expected"),
    [
        (failed(error="ValueError: no"), "failed: net.train ffffffffffff: ValueError: no"),
        (failed("lost", cause="its worker died"), "lost, will be sent again: net.train ffffffffffff: its worker died"),
        (
            failed("missing", inputs="x"),
            "an input of net.train ffffffffffff is missing or damaged and will be computed again",
        ),
        (failed("damaged", problem="bits"), "damaged, will be computed again: net.train ffffffffffff: bits"),
        (failed("refused", cause="disk full"), "cannot write to the store: disk full"),
        (done(), None),
    ],
)
def test_problems_are_reported_in_one_line(event: dict[str, Any], expected: str | None) -> None:
    assert expected == message(event)


def test_without_terminal_lines_appear_occasionally_and_finally(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SECONDS", 0.05)
    lines: list[str] = []
    with watching(live=False, print_line=lines.append) as observe:
        observe(PLANNED)
        before = len(lines)
        deadline = 100
        while len(lines) == before and (deadline := deadline - 1):
            time.sleep(0.05)
        observe(done())
        line_count = len(lines)
    assert lines[0] == "a-1: 10 jobs, 2 of them stored already"
    assert lines[1].startswith("2/10 jobs")
    assert line_count < len(lines)
    assert lines[-1].startswith("3/10 jobs, 1 done")


def test_only_slow_steps_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_line_names_phase_and_time_left() -> None:
    now = 100.0
    tally = RunProgress(lambda: now)
    tally.take({"event": "step", "step": "reading data"})
    now += 3
    assert line(tally) == "reading data, 3 s"
    kinds = {"net.train": (6, 60.0), "a.summary": (2, None)}
    for event in (PLANNED | {"trainings": 8, "trained": 2, "kinds": kinds}, {"event": "ready", "slots": 2}):
        tally.take(event)
    expected = "2/10 jobs, 0 done, 2 stored before, 2 running, training 2/8, under 1 s elapsed, at least 3 min left"
    assert expected == line(tally)


@pytest.mark.parametrize("event", [{}, {"event": "done"}, {"event": "planned"}, {"event": "of another version"}])
def test_unknown_event_is_skipped(event: dict[str, Any]) -> None:
    with watching(live=False, print_line=lambda line: None) as observe:
        observe(event)


def test_closed_pipe_does_not_disturb_the_run() -> None:
    def broken(line: str) -> None:
        raise BrokenPipeError

    with watching(live=False, print_line=broken) as observe:
        observe(PLANNED)
        observe(failed(error="ValueError: no"))


def test_terminal_shows_a_bar_and_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=120, color_system=None)
    monkeypatch.setattr("orchestrator.cli.terminal.stderr", lambda: console)
    with watching(live=True) as observe:
        observe(PLANNED)
        observe(done())
    assert "a-1: 10 jobs, 2 of them stored already" in out.getvalue()
    assert "3/10 jobs, 1 done, 2 stored before" in out.getvalue().replace(progress.BLANK, " ")
    bar_lines = [line for line in re.split(r"[\r\n]", out.getvalue()) if "━" in line]
    assert bar_lines
    assert not any("jobs" in line for line in bar_lines)  # the bar has its own line


def test_messages_of_several_threads_start_their_own_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads change often, also in the middle of drawing
    try:
        for _ in range(20):
            screen = Screen()
            monkeypatch.setattr(sys, "stderr", screen)
            with watching(live=True) as observe:
                tell = partial(observe, {"event": "told", "line": "a message"})
                with ThreadPoolExecutor(4) as pool:
                    for _ in range(20):
                        pool.submit(tell)
            shown = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())  # without colours; cursor moves remain
            assert shown.count("a message") == 20
            # K ends the code that clears a line, 25l the one that hides the cursor.
            assert not re.search(r"(?<!\x1b\[\?25l)(?<![\n\rK])a message", shown)
    finally:
        sys.setswitchinterval(interval)


class Screen(io.StringIO):
    """A terminal that keeps what is written to it."""

    def isatty(self) -> bool:
        return True
