"""One command as a job: its output, its metrics, its end, and the processes that it may not leave behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tasks.programs import process
from tasks.programs.process import ProgramFailed, run_command
from tasks.worker.job_services import JobServices, ProgramDied, RunStopped
from tasks.worker.process_guard import state
from tests.support.waiting import wait_until


class Logged(JobServices):
    """Keeps the metrics, and stops the run after a number of looks."""

    def __init__(self, looks: int = 1000) -> None:
        super().__init__("key")
        self.logged: list[tuple[Mapping[str, float], int]] = []
        self.looks = looks

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        self.logged.append((metrics, step))

    @property
    def is_stopping(self) -> bool:
        self.looks -= 1
        return self.looks < 0


def test_program_of_a_stopped_run_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "LOOK", 0.05)
    with pytest.raises(RunStopped):
        run_command("echo $$ > pid; exec sleep 1000", tmp_path, {}, tmp_path, Logged(looks=3))
    assert state(int((tmp_path / "pid").read_text())) is None


def test_output_is_kept_and_metrics_are_logged(tmp_path: Path) -> None:
    services = Logged()
    command = "echo 'engram: step=3 loss=0.5'; echo 'engram: loss=nan acc=1'; echo engram is text; echo problem >&2"
    run_command(command, tmp_path, {}, tmp_path, services)
    assert services.logged == [({"loss": 0.5}, 3), ({"acc": 1.0}, 4)]
    assert (tmp_path / "stdout").read_text().endswith("engram is text\n")
    assert (tmp_path / "stderr").read_text() == "problem\n"


@pytest.mark.parametrize(("cpus", "threads"), [(4, "4"), (0, "")])
def test_libraries_use_the_processors_of_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cpus: int, threads: str
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    run_command("echo $OMP_NUM_THREADS", tmp_path, {}, tmp_path, JobServices(cpus=cpus))
    assert (tmp_path / "stdout").read_text() == f"{threads}\n"


def test_exit_code_is_a_failure_with_the_last_lines(tmp_path: Path) -> None:
    with pytest.raises(ProgramFailed, match="exited with code 3: line 30") as failure:
        run_command("seq -f 'line %g' 30 >&2; exit 3", tmp_path, {}, tmp_path, JobServices())
    notes = "".join(failure.value.__notes__)
    assert "line 11" in notes
    assert "line 10\n" not in notes


@pytest.mark.parametrize("command", ["kill -9 $$", "sh -c 'kill -SEGV $$'"])
def test_death_by_a_signal_is_a_loss(tmp_path: Path, command: str) -> None:
    with pytest.raises(ProgramDied, match="SIG"):
        run_command(command, tmp_path, {}, tmp_path, JobServices())


def test_processes_left_behind_are_ended(tmp_path: Path) -> None:
    run_command("sleep 1000 & echo $! > pid", tmp_path, {}, tmp_path, JobServices())
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: state(pid) in (None, "Z"))


def test_stopped_job_gets_a_grace_period_and_then_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "GRACE", 0.5)
    command = "trap 'echo asked > asked' TERM; setsid sleep 1000 & echo $! > pid; while :; do sleep 0.05; done"

    def interrupt() -> None:
        wait_until(lambda: (tmp_path / "pid").exists())
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        run_command(command, tmp_path, {}, tmp_path, JobServices())
    pid = int((tmp_path / "pid").read_text())
    assert (tmp_path / "asked").exists()
    wait_until(lambda: state(pid) in (None, "Z"))


def test_guard_ends_programs_of_a_killed_worker(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tasks.programs.process import run_command;"
        "from tasks.worker.job_services import JobServices; folder = Path(sys.argv[1]);"
        "run_command('setsid sleep 1000 & echo $! > pid; wait', folder, {}, folder, JobServices())"
    )
    worker = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    wait_until(lambda: (tmp_path / "pid").exists() and bool((tmp_path / "pid").read_text()))
    pid = int((tmp_path / "pid").read_text())
    worker.kill()
    worker.wait()
    wait_until(lambda: state(pid) in (None, "Z"))
