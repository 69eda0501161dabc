"""A user who watches a run sees the run's own messages, and can read its tables while it runs."""

from __future__ import annotations

import re
import subprocess
import threading
from pathlib import Path

from orchestrator.inspection import status
from orchestrator.run_folder.progress import RunProgress
from orchestrator.store import open_store
from tests.support.shell import Shell
from tests.support.waiting import HANGING

COUNTS = re.compile(r"^\d+/\d+ jobs, \d+ done, \d+ stored before(, \d+ failed)?")


def count_lines(text: str) -> list[str]:
    return [match[0] for line in text.splitlines() if (match := COUNTS.match(line))]


def elapsed_seconds(text: str) -> int:
    """The elapsed seconds in the last line."""
    return int(re.findall(r"(\d+) s elapsed", text)[-1])


def watch_run(shell: Shell, run: subprocess.Popen[str]) -> tuple[str, str, str]:
    """The run's output, the watcher's output during the run, and its final output."""
    output: list[str] = []
    ended = threading.Thread(target=lambda: output.extend(run.communicate(timeout=HANGING)))
    ended.start()
    watch = shell("status", "--watch")
    ended.join()
    return output[1], watch.stderr, watch.stdout


def test_watcher_and_run_show_equal_counts(shell: Shell, tmp_path: Path) -> None:
    fields = ("parts=8", "seconds=1", "trouble=raise", "at=7", f"folder={tmp_path}")
    run = shell.start("run", "toys", "--address", "none", *fields)
    shell.await_results(2, run)
    run_output, watcher_output, last = watch_run(shell, run)
    assert (
        "7/9 jobs, 7 done, 0 stored before, 1 failed" == count_lines(run_output)[-1] == count_lines(watcher_output)[-1]
    )
    assert abs(elapsed_seconds(run_output) - elapsed_seconds(watcher_output)) <= 1
    (planned_line,) = (line for line in run_output.splitlines() if "stored already" in line)
    assert planned_line in watcher_output.splitlines()
    assert next(line for line in run_output.splitlines() if line.startswith("failed: ")) in watcher_output.splitlines()
    assert "failed: 7 of 9 jobs stored, 1 failed" in last


def test_watched_sweep_counts_shared_jobs_once(shell: Shell) -> None:
    run = shell.start("run", "toys", "--address", "none", "seconds=1", "parts=3", "--sweep", "label=a,b")
    shell.await_results(1, run)
    run_output, watcher_output, _ = watch_run(shell, run)
    assert "5/5 jobs, 5 done, 0 stored before" == count_lines(run_output)[-1] == count_lines(watcher_output)[-1]


def test_resumed_run_is_watched_from_its_start(shell: Shell) -> None:
    shell("run", "toys", "--address", "none", "parts=6", "seconds=0.3", "--stop-after", "1", code=130)
    run = shell.start("resume", "--address", "none")
    stored_count = len(shell.results())
    shell.await_results(stored_count + 1, run)
    run_output, watcher_output, _ = watch_run(shell, run)
    assert (
        f"7/7 jobs, {7 - stored_count} done, {stored_count} stored before"
        == count_lines(run_output)[-1]
        == count_lines(watcher_output)[-1]
    )


def test_log_contains_the_phases(shell: Shell) -> None:
    shell("run", "unique_feature", "--preset", "smoke", "scale=tiny", "--address", "none", "--no-report")
    opened = open_store(shell.folder / "engram-store")
    phases = []
    tally = RunProgress()
    for event in status.follow(status.newest(opened), opened):
        tally.take(event)
        phases.append(tally.phase)
    trainings = tally.trainings
    assert [f"training {done}/{trainings}" for done in range(trainings)] == [
        phase for phase in dict.fromkeys(phases) if phase.startswith("training")
    ]
    assert [*dict.fromkeys(phases)][trainings : trainings + 2] == ["measures", "checking stored results"]


def test_finished_run_is_shown_at_once(shell: Shell) -> None:
    shell("run", "toys", "--address", "none", "parts=2")
    done = shell("status", "--watch")
    assert count_lines(done.stderr)[-1] == "3/3 jobs, 3 done, 0 stored before"
    assert "finished: 3 of 3 jobs stored" in done.stdout


def test_table_can_be_read_during_its_run(shell: Shell) -> None:
    run = shell.start("run", "toys", "--address", "none", "parts=20", "seconds=0.5")
    shell.await_results(3, run)
    name = shell.json("status")["run"]
    done = shell("results", name, "parts", "--json")
    assert "are not available yet" in done.stderr
    numbers = re.findall(r'"number": (\d+)', done.stdout)
    assert [str(number) for number in range(len(numbers))] == numbers
    assert 3 <= len(numbers) < 20
    run.kill()
    run.communicate()
