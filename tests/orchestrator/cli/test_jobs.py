"""`engram logs` tells what happened to a run and to a job, and `engram cancel` ends a run from anywhere."""

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


@pytest.fixture(params=["none", "cluster"])
def address(request: pytest.FixtureRequest) -> str:
    """Of this process, and of a cluster."""
    return "none" if request.param == "none" else str(request.getfixturevalue("ray_cluster").address)


@pytest.fixture
def engram(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


def failed_key(here: Here, run: str) -> str:
    (line,) = (line for line in here("status", run).stderr.splitlines() if line.startswith("failed: "))
    return line.split()[2].rstrip(":")


def test_a_failed_job_is_told_with_what_it_printed_and_how_to_run_it_alone(address: str, engram: Shell) -> None:
    fields = ("parts=3", "trouble=speak", "at=1", f"folder={engram.folder}")
    ended = engram.json("run", "toys", "--address", address, "--together", "1", *fields, code=3)
    here = Here(engram.folder)
    key = failed_key(here, ended["run"])
    seen = here.json("logs", key)
    assert seen["state"] == "failed"
    assert [ended["run"]] == seen["runs"]
    assert "ValueError: part 1 cannot be had" in seen["traceback"]
    assert seen["printed"]["stdout"] == "part 1 speaks\n"
    assert "UserWarning: this will not end well" in seen["printed"]["stderr"]
    assert len(seen["worker"].split(":")) == 2
    assert "T" in seen["time"]
    told = here("logs", key).stdout
    assert f"engram rerun {key} --pdb" in told
    assert "engram logs" not in told  # which it is
    assert all(f"--- {name}\n" in told for name in ("traceback", "stdout", "stderr"))
    again = seen["rerun"].split()[1:-1]
    assert "part 1 cannot be had" in here(*again, code=1).stderr
    assert seen["traceback"] == here.json("explain", key)["traceback"]


def test_the_log_of_a_run_has_a_line_for_each_thing_that_happened(here: Here) -> None:
    fields = ("parts=3", "trouble=raise", "at=1", f"folder={here.folder}")
    ended = here.json("run", "toys", "--address", "none", *fields, code=3)
    lines = here.json("logs", ended["run"])["lines"]
    assert lines == here.json("logs", "toys")["lines"]
    words = [line[21:] for line in lines]
    assert words[0].startswith("started by ")
    assert words[0].endswith(": 4 jobs")
    assert sum(word.startswith("done: ") for word in words) == 2
    (failed,) = (word for word in words if word.startswith("failed: ") and "engram logs" in word)
    assert "part 1 cannot be had; engram logs " in failed
    assert words[-1].endswith("2 of 4 jobs stored, 1 failed")
    (here.folder / "mended").touch()
    here("resume", ended["run"], "--address", "none")
    assert "started by" in here("logs", ended["run"]).stdout.splitlines()[0]
    assert here("logs").stdout.splitlines()[-1].endswith("finished; 4 of 4 jobs stored, 0 failed")


def test_the_log_of_a_job_that_is_stored_says_where_it_was_computed(here: Here) -> None:
    here("run", "toys", "--address", "none", "parts=2")
    key = here.results()[0].stem
    seen = here.json("logs", key)
    assert (seen["state"], seen["printed"], seen["traceback"]) == ("stored", {}, "")
    assert "done: " in seen["lines"][0]
    assert f"job       {seen['task']} {key}" in here("logs", key[:12]).stdout


def test_logs_of_what_is_neither_run_nor_key_are_one_line(here: Here) -> None:
    here("run", "toys", "--address", "none", "parts=2")
    assert "neither a run nor a key" in here("logs", "nothing", code=2).stderr
    assert "is finished and has no driver" in here("cancel", "toys", code=1).stderr


def test_a_run_is_cancelled_from_another_process_and_continued(address: str, engram: Shell, tmp_path: Path) -> None:
    fields = ("parts=8", "trouble=wait", "at=2", f"folder={tmp_path}")
    run = engram.start("run", "toys", "--address", address, "--together", "1", *fields)
    engram.await_begun(1, run)
    here = Here(tmp_path)
    assert " to stop toys-" in here("cancel", "toys").stdout
    if address == "none":  # the driver computes by itself, and looks when a call has ended, a while after its last look
        time.sleep(LOOK_SECONDS)
    else:
        engram.until(lambda: not list(tmp_path.glob("engram-store/runs/*/ways/cancel.txt")), run)
    engram.go()
    said = run.communicate(timeout=HANGING)[1]
    assert run.returncode == 130, said
    assert "interrupted: cancelled by " in said
    assert "interrupted" in here("status").stdout
    assert "finished" in here("run", "toys", "--address", "none", *fields).stdout
    assert len({*(tmp_path / "computed.log").read_text().split()}) == 8


def test_who_cancels_a_cell_ends_the_sweep_that_drives_it(engram: Shell, tmp_path: Path) -> None:
    fields = ("parts=2", "trouble=wait", "at=1", f"folder={tmp_path}", "--sweep", "label=a,b")
    run = engram.start("run", "toys", "--address", "none", "--together", "1", *fields)
    engram.await_begun(1, run)
    here = Here(tmp_path)
    (sweep,) = (each.name for each in tmp_path.glob("engram-store/runs/toys-sweep-*"))
    cell = next(each["run"] for each in here.json("runs")["runs"] if each["run"] != sweep)
    here("cancel", cell)
    time.sleep(LOOK_SECONDS)
    engram.go()
    said = run.communicate(timeout=HANGING)[1]
    assert run.returncode == 130, said
    assert "interrupted: cancelled by " in said


def test_a_request_from_before_a_start_does_not_end_it(here: Here) -> None:
    ended = here.json("run", "toys", "--address", "none", "parts=2")
    request_cancellation(open_store(str(here.folder / "engram-store"), create=False), ended["run"])
    for path in here.results():
        path.unlink()
    again = here.json("run", "toys", "--address", "none", "parts=2")
    assert (again["state"], again["jobs"]["done"]) == ("finished", 3)


def test_what_other_threads_print_is_not_kept_and_of_this_one_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    with keep_printed() as printed:
        other = threading.Thread(target=lambda: sys.stdout.write("elsewhere\n"))
        other.start()
        other.join()
        for text in ("first\n", *("x" * PRINTED_BYTES + "\n" for _ in range(3))):
            sys.stdout.write(text)
    kept = printed.texts()["stdout"]
    assert len(kept) == PRINTED_BYTES
    assert kept.endswith("x\n")
    seen = capsys.readouterr()
    assert seen.out == "elsewhere\n"  # stdout is for results
    assert seen.err.startswith("first\nx")
    assert "elsewhere" not in kept


@pytest.mark.parametrize(
    "text", ["", "Traceback:\n  it failed", 'x\n{"failure_log": 3}', 'x\n{"failure_log": {"no": 1}}']
)
def test_any_text_that_is_no_failure_log_is_a_traceback(text: str) -> None:
    assert FailureLog(text) == FailureLog.from_text(text)


def test_a_failure_log_is_read_back() -> None:
    log = FailureLog("Traceback\nValueError: x\n", "out\n", "err", "host:1", "2026", "cpu", 3)
    assert log == FailureLog.from_text(log.to_text())
