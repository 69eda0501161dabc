"""`engram runs logs` shows the history of a run or job, and `engram runs cancel` ends a run from any process."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import pytest

from orchestrator.executors.printed import keep_printed
from orchestrator.run_folder.cancellation import LOOK_SECONDS, request_cancellation
from orchestrator.store import open_store
from orchestrator.store.failure_log import PRINTED_BYTES, FailureLog
from tests.support.shell import Here, Shell
from tests.support.waiting import HANGING


@pytest.fixture(params=["none", "pool", "cluster"])
def address(request: pytest.FixtureRequest) -> str:
    """In this process, in forked processes, and on a cluster."""
    if request.param != "cluster":
        return str(request.param)
    return str(request.getfixturevalue("ray_cluster").address)


@pytest.fixture
def engram(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


def failed_key(here: Here, run: str) -> str:
    (line,) = (line for line in here("status", run).stderr.splitlines() if line.startswith("failed: "))
    return line.split()[2].rstrip(":")


def test_failed_job_log_has_output_and_rerun_command(address: str, engram: Shell) -> None:
    fields = ("parts=3", "trouble=speak", "at=1", f"folder={engram.folder}")
    ended = engram.json("run", "toys", "--address", address, "--together", "1", *fields, code=3)
    here = Here(engram.folder)
    key = failed_key(here, ended["run"])
    log = here.json("logs", key)
    assert log["state"] == "failed"
    assert [ended["run"]] == log["runs"]
    assert "ValueError: part 1 cannot be had" in log["traceback"]
    assert log["printed"]["stdout"] == "part 1 speaks\n"
    assert "UserWarning: this will not end well" in log["printed"]["stderr"]
    assert len(log["worker"].split(":")) == 2
    assert "T" in log["time"]
    text = here("logs", key).stdout
    assert f"engram debug rerun {key} --pdb" in text
    assert "engram runs logs" not in text  # the user has just run it
    assert all(f"--- {name}\n" in text for name in ("traceback", "stdout", "stderr"))
    rerun_command = log["rerun"].split()[1:-1]
    assert "part 1 cannot be had" in here(*rerun_command, code=1).stderr
    assert log["traceback"] == here.json("explain", key)["traceback"]


def test_run_log_has_a_line_per_event(here: Here) -> None:
    fields = ("parts=3", "trouble=raise", "at=1", f"folder={here.folder}")
    ended = here.json("run", "toys", "--address", "none", *fields, code=3)
    lines = here.json("logs", ended["run"])["lines"]
    assert lines == here.json("logs", "toys")["lines"]
    words = [line[21:] for line in lines]
    assert words[0].startswith("started by ")
    assert words[0].endswith(": 4 jobs")
    assert sum(word.startswith("done: ") for word in words) == 2
    (failed,) = (word for word in words if word.startswith("failed: ") and "engram runs logs" in word)
    assert "part 1 cannot be had; engram runs logs " in failed
    assert words[-1].endswith("2 of 4 jobs stored, 1 failed")
    (here.folder / "mended").touch()
    here("resume", ended["run"], "--address", "none")
    assert "started by" in here("logs", ended["run"]).stdout.splitlines()[0]
    assert here("logs").stdout.splitlines()[-1].endswith("finished; 4 of 4 jobs stored, 0 failed")


def test_stored_job_log_names_its_worker(here: Here) -> None:
    here("run", "toys", "--address", "none", "parts=2")
    key = here.results()[0].stem
    log = here.json("logs", key)
    assert log["state"] == "stored"
    assert log["printed"] == {}
    assert log["traceback"] == ""
    assert "done: " in log["lines"][0]
    assert f"job       {log['task']} {key}" in here("logs", key[:12]).stdout


def test_unknown_names_give_one_line_errors(here: Here) -> None:
    here("run", "toys", "--address", "none", "parts=2")
    assert "neither a run nor a key" in here("logs", "nothing", code=2).stderr
    assert "is finished and has no driver" in here("cancel", "toys", code=1).stderr


def test_run_is_cancelled_from_another_process(address: str, engram: Shell, tmp_path: Path) -> None:
    fields = ("parts=8", "trouble=wait", "at=2", f"folder={tmp_path}")
    run = engram.start("run", "toys", "--address", address, "--together", "1", *fields)
    engram.await_begun(1, run)
    here = Here(tmp_path)
    assert " to stop toys-" in here("cancel", "toys").stdout
    if address == "none":  # the driver computes in its own process, and checks for requests between calls
        time.sleep(LOOK_SECONDS)
    else:
        engram.until(lambda: not list(tmp_path.glob("engram-store/runs/*/ways/cancel.txt")), run)
    engram.go()
    output = run.communicate(timeout=HANGING)[1]
    assert run.returncode == 130, output
    assert "interrupted: cancelled by " in output
    assert "interrupted" in here("status").stdout
    assert "finished" in here("run", "toys", "--address", "none", *fields).stdout
    assert len({*(tmp_path / "computed.log").read_text().split()}) == 8


def test_cancelling_a_cell_ends_its_sweep(engram: Shell, tmp_path: Path) -> None:
    fields = ("parts=2", "trouble=wait", "at=1", f"folder={tmp_path}", "--sweep", "label=a,b")
    run = engram.start("run", "toys", "--address", "none", "--together", "1", *fields)
    engram.await_begun(1, run)
    here = Here(tmp_path)
    (sweep,) = (entry.name for entry in tmp_path.glob("engram-store/runs/toys-sweep-*"))
    cell = next(entry["run"] for entry in here.json("runs")["runs"] if entry["run"] != sweep)
    here("cancel", cell)
    time.sleep(LOOK_SECONDS)
    engram.go()
    output = run.communicate(timeout=HANGING)[1]
    assert run.returncode == 130, output
    assert "interrupted: cancelled by " in output


def test_old_cancellation_request_is_ignored(here: Here) -> None:
    ended = here.json("run", "toys", "--address", "none", "parts=2")
    request_cancellation(open_store(str(here.folder / "engram-store"), create=False), ended["run"])
    for path in here.results():
        path.unlink()
    repeated = here.json("run", "toys", "--address", "none", "parts=2")
    assert repeated["state"] == "finished"
    assert repeated["jobs"]["done"] == 3


def test_only_the_end_of_own_output_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    with keep_printed() as printed:
        other_thread = threading.Thread(target=lambda: sys.stdout.write("elsewhere\n"))
        other_thread.start()
        other_thread.join()
        for text in ("first\n", *("x" * PRINTED_BYTES + "\n" for _ in range(3))):
            sys.stdout.write(text)
    kept_text = printed.texts()["stdout"]
    assert len(kept_text) == PRINTED_BYTES
    assert kept_text.endswith("x\n")
    captured = capsys.readouterr()
    assert captured.out == "elsewhere\n"  # stdout is for results
    assert captured.err.startswith("first\nx")
    assert "elsewhere" not in kept_text


@pytest.mark.parametrize(
    "text", ["", "Traceback:\n  it failed", 'x\n{"failure_log": 3}', 'x\n{"failure_log": {"no": 1}}']
)
def test_other_text_is_read_as_a_traceback(text: str) -> None:
    assert FailureLog(text) == FailureLog.from_text(text)


def test_failure_log_is_read_back() -> None:
    log = FailureLog("Traceback\nValueError: x\n", "out\n", "err", "host:1", "2026", "cpu", 3)
    assert log == FailureLog.from_text(log.to_text())
