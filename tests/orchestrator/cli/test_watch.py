"""Whoever watches a run sees what the run itself says, and reads what is there while it goes on."""

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


def counted(text: str) -> list[str]:
    return [match[0] for line in text.splitlines() if (match := COUNTS.match(line))]


def elapsed(text: str) -> int:
    """The elapsed seconds in the last line."""
    return int(re.findall(r"(\d+) s elapsed", text)[-1])


def watched(shell: Shell, run: subprocess.Popen[str]) -> tuple[str, str, str]:
    """What a run said of itself, what its watcher saw, and what the watcher said at the end."""
    found: list[str] = []
    ended = threading.Thread(target=lambda: found.extend(run.communicate(timeout=HANGING)))
    ended.start()
    watch = shell("status", "--watch")
    ended.join()
    return found[1], watch.stderr, watch.stdout


def test_a_watcher_and_the_run_count_the_same_and_end_together(shell: Shell, tmp_path: Path) -> None:
    fields = ("parts=8", "seconds=1", "trouble=raise", "at=7", f"folder={tmp_path}")
    run = shell.start("run", "toys", "--address", "none", *fields)
    shell.await_results(2, run)
    said, seen, last = watched(shell, run)
    assert "7/9 jobs, 7 done, 0 stored before, 1 failed" == counted(said)[-1] == counted(seen)[-1]
    assert abs(elapsed(said) - elapsed(seen)) <= 1
    (begun,) = (line for line in said.splitlines() if "stored already" in line)
    assert begun in seen.splitlines()
    assert next(line for line in said.splitlines() if line.startswith("failed: ")) in seen.splitlines()
    assert "failed: 7 of 9 jobs stored, 1 failed" in last


def test_a_watcher_of_a_sweep_counts_a_job_that_cells_share_once(shell: Shell) -> None:
    run = shell.start("run", "toys", "--address", "none", "seconds=1", "parts=3", "--sweep", "label=a,b")
    shell.await_results(1, run)
    said, seen, _ = watched(shell, run)
    assert "5/5 jobs, 5 done, 0 stored before" == counted(said)[-1] == counted(seen)[-1]


def test_a_resumed_run_is_watched_from_its_last_start(shell: Shell) -> None:
    shell("run", "toys", "--address", "none", "parts=6", "seconds=0.3", "--stop-after", "1", code=130)
    run = shell.start("resume", "--address", "none")
    stored = len(shell.results())
    shell.await_results(stored + 1, run)
    said, seen, _ = watched(shell, run)
    assert f"7/7 jobs, {7 - stored} done, {stored} stored before" == counted(said)[-1] == counted(seen)[-1]


def test_the_phase_is_in_the_log_for_whoever_watches_the_run(shell: Shell) -> None:
    shell("run", "unique_feature", "--preset", "smoke", "scale=tiny", "--address", "none", "--no-report")
    opened = open_store(shell.folder / "engram-store")
    phases, tally = [], RunProgress()
    for event in status.follow(status.newest(opened), opened):
        tally.take(event)
        phases.append(tally.phase)
    trainings = tally.trainings
    assert [f"training {done}/{trainings}" for done in range(trainings)] == [
        phase for phase in dict.fromkeys(phases) if phase.startswith("training")
    ]
    assert [*dict.fromkeys(phases)][trainings : trainings + 2] == ["measures", "checking stored results"]


def test_a_run_that_has_ended_is_shown_at_once(shell: Shell) -> None:
    shell("run", "toys", "--address", "none", "parts=2")
    done = shell("status", "--watch")
    assert counted(done.stderr)[-1] == "3/3 jobs, 3 done, 0 stored before"
    assert "finished: 3 of 3 jobs stored" in done.stdout


def test_a_table_is_read_while_its_run_goes_on(shell: Shell) -> None:
    run = shell.start("run", "toys", "--address", "none", "parts=20", "seconds=0.5")
    shell.await_results(3, run)
    name = shell.json("status")["run"]
    done = shell("results", name, "parts", "--json")
    assert "are not available yet" in done.stderr
    numbers = re.findall(r'"number": (\d+)', done.stdout)
    assert [str(each) for each in range(len(numbers))] == numbers
    assert 3 <= len(numbers) < 20
    run.kill()
    run.communicate()
