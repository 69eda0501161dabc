"""A command whose output cannot be written does its work first, and reports the error if it can."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.support.shell import Here, Shell

RUN = ("run", "toys", "--address", "none", "parts=2")
FULL = "engram: cannot write to standard output: No space left on device\n"


def redirected(shell: Shell, how: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["sh", "-c", f'exec "$@" {how}', "sh", sys.executable, "-m", "orchestrator", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=shell.folder, env=shell.env)


@pytest.mark.parametrize(
    ("how", "code", "message"),
    [
        ("2>&-", 0, ""),
        ("2>/dev/full", 0, ""),
        (">&-", 1, "engram: cannot write to standard output: Bad file descriptor\n"),
        (">/dev/full", 1, FULL),
        ("<&- >&- 2>&-", 1, ""),
    ],
)
def test_run_is_stored_even_if_output_fails(shell: Shell, how: str, code: int, message: str) -> None:
    done = redirected(shell, how, *RUN)
    assert done.returncode == code
    assert len(shell.results()) == 3
    assert done.stderr.endswith(message)
    assert Here(shell.folder).json("status")["state"] == "finished"
    assert not (shell.folder / "engram-store" / "crashes").exists()


def test_reader_that_stops_early_ends_command_quietly(shell: Shell) -> None:
    command = f"{sys.executable} -m orchestrator list --json | head -c 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=shell.folder, env=shell.env)
    assert done.stdout == "{"
    assert done.stderr == ""


COMMANDS: dict[str, Callable[[str, str], tuple[str, ...]]] = {
    "help": lambda run, key: ("--help",),
    "help of a command": lambda run, key: ("run", "--help"),
    "list": lambda run, key: ("list",),
    "plan": lambda run, key: ("plan", "toys"),
    "resume": lambda run, key: ("resume", run, "--address", "none"),
    "runs": lambda run, key: ("runs",),
    "status": lambda run, key: ("status", run),
    "results": lambda run, key: ("results", run),
    "compare": lambda run, key: ("compare", run, run),
    "report": lambda run, key: ("report", run),
    "probes": lambda run, key: ("probes", "toys", "data=digits", "parts=1", "--out", "handed"),
    "explain": lambda run, key: ("explain", key),
    "rerun": lambda run, key: ("rerun", key),
    "verify": lambda run, key: ("verify",),
    "doctor": lambda run, key: ("doctor", "--address", "none"),
}


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Here, str, str]:
    """A folder with a run in its store, the run, and one of its keys."""
    here = Here(tmp_path_factory.mktemp("ran"))
    run = here.json(*RUN)["run"]
    key = next((here.folder / "engram-store" / "results").glob("*/*.arrow")).stem
    return here, run, key


@pytest.mark.parametrize("command", COMMANDS)
def test_full_disk_for_output_is_reported_once(finished_run: tuple[Here, str, str], command: str) -> None:
    here, run, key = finished_run
    done = here.into("/dev/full", *COMMANDS[command](run, key))
    assert done.returncode == 1
    assert done.stderr[-len(FULL) :] == FULL
    assert done.stderr.count("engram: ") == 1
