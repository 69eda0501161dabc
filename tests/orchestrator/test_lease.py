import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import orchestrator
from orchestrator import lease as lease_module
from orchestrator.errors import Held, Unwritable
from orchestrator.lease import acquire, holder

ROOT = Path(orchestrator.__file__).parents[1]

HOLD = """
import sys, time
from pathlib import Path
from orchestrator.errors import Held
from orchestrator.lease import acquire
if len(sys.argv) > 2:
    print("ready", flush=True)
    while not Path(sys.argv[2]).exists(): pass
try:
    lease = acquire(Path(sys.argv[1]))
except Held as held:
    sys.exit(f"held: {held}")
print("have it", flush=True)
sys.stdin.readline()
lease.release()
"""


def driver(*arguments: object) -> "subprocess.Popen[str]":
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        text=True,
    )


def said(process: "subprocess.Popen[str]") -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def change(folder: Path, **fields: Any) -> None:
    """Let the lease say something else, its file as old as its heartbeat."""
    path = folder / "lease.json"
    text = {**json.loads(path.read_text()), **fields}
    path.write_text(json.dumps(text))
    os.utime(path, (text["beat"],) * 2)


def eventually(true: Callable[[], bool], seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.01)
    return true()


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """A folder with the lease of a driver that was killed."""
    process = driver(tmp_path)
    assert "have it" == said(process)
    process.kill()
    process.communicate()
    return tmp_path


def test_a_lease_is_held_until_it_is_released(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert holder(folder) is None
    with acquire(folder) as lease:
        found = holder(folder)
        assert found
        assert (socket.gethostname(), os.getpid()) == (found.host, found.pid)
        assert not lease.lost
    assert holder(folder) is None
    lease.release()
    acquire(folder).release()


def test_a_second_driver_is_refused_at_once_and_told_who_has_it(tmp_path: Path) -> None:
    process = driver(tmp_path / "run")
    assert "have it" == said(process)
    start = time.monotonic()
    with pytest.raises(Held) as refused:
        acquire(tmp_path / "run")
    assert time.monotonic() - start < 1
    line = str(refused.value)
    assert f"run already has a driver: process {process.pid} on {socket.gethostname()}, since 20" in line
    assert f"stop it (kill {process.pid})" in line
    assert "\n" not in line
    process.communicate("\n")
    acquire(tmp_path / "run").release()


def test_a_driver_is_refused_in_the_same_process_too(tmp_path: Path) -> None:
    with acquire(tmp_path), pytest.raises(Held):
        acquire(tmp_path)


def test_a_stopped_driver_still_has_its_lease(tmp_path: Path) -> None:
    process = driver(tmp_path)
    assert "have it" == said(process)
    process.send_signal(signal.SIGSTOP)
    later = time.time() + 3600
    with pytest.raises(Held):
        acquire(tmp_path, now=lambda: later)
    process.kill()
    process.communicate()


def test_the_lease_of_a_killed_driver_is_taken_over(left: Path) -> None:
    assert holder(left) is None
    with acquire(left) as lease:
        assert not lease.lost


def test_a_killed_driver_that_nobody_collected_is_dead(tmp_path: Path) -> None:
    process = driver(tmp_path)
    assert "have it" == said(process)
    os.kill(process.pid, signal.SIGKILL)  # and no wait: its parent is busy
    assert eventually(lambda: holder(tmp_path) is None)
    acquire(tmp_path).release()
    process.communicate()


def test_a_process_that_got_a_dead_drivers_number_is_not_taken_for_it(left: Path) -> None:
    change(left, pid=os.getpid())
    assert holder(left) is None
    acquire(left).release()


def test_a_lease_from_before_a_restart_is_taken_over(tmp_path: Path) -> None:
    lease = acquire(tmp_path)
    change(tmp_path, boot="another")
    acquire(tmp_path).release()
    lease.release()


@pytest.mark.parametrize("elsewhere", [{"host": "another"}, {"space": "pid:[1]"}])
def test_of_a_driver_elsewhere_only_the_heartbeat_tells(left: Path, elsewhere: dict[str, str]) -> None:
    change(left, beat=time.time() - 50, **elsewhere)
    with pytest.raises(Held, match=r"heard of 5[0-9] s ago"):
        acquire(left)
    change(left, beat=time.time() - 70)
    assert holder(left) is None
    acquire(left).release()


def test_a_touched_file_is_a_heartbeat(left: Path) -> None:
    change(left, host="another", beat=time.time() - 70)
    os.utime(left / "lease.json")
    with pytest.raises(Held):
        acquire(left)


def test_an_unreadable_lease_is_somebodys_until_it_is_old(tmp_path: Path) -> None:
    path = tmp_path / "lease.json"
    for text in ("", "{", "[]", "{}", '{"pid": 1}', "null"):
        path.write_text(text)
        with pytest.raises(Held, match="unreadable"):
            acquire(tmp_path)
        os.utime(path, (time.time() - 61,) * 2)
        acquire(tmp_path).release()


@pytest.mark.parametrize("dead", [False, True])
def test_of_drivers_that_start_at_one_time_exactly_one_wins(tmp_path: Path, left: Path, dead: bool) -> None:
    folder = left if dead else tmp_path / "new"
    drivers = [driver(folder, tmp_path / "go") for _ in range(8)]
    assert ["ready"] * 8 == [said(process) for process in drivers]
    (tmp_path / "go").touch()
    answers = [said(process) for process in drivers]
    [winner] = [process for process, answer in zip(drivers, answers, strict=True) if answer == "have it"]
    for process in drivers:
        refused = process is not winner
        _, error = process.communicate("\n")
        assert refused == bool(process.returncode)
        assert not refused or f"held: {folder.name} already has a driver: process {winner.pid}" in error


def test_the_heart_beats(tmp_path: Path) -> None:
    with acquire(tmp_path, beat=0.02):
        first = json.loads((tmp_path / "lease.json").read_text())
        assert eventually(lambda: json.loads((tmp_path / "lease.json").read_text())["beat"] > first["beat"])
        last = json.loads((tmp_path / "lease.json").read_text())
    assert {**first, "beat": 0} == {**last, "beat": 0}


def test_a_lease_that_was_taken_over_is_lost_and_left_to_its_new_holder(tmp_path: Path) -> None:
    with acquire(tmp_path, beat=0.02) as lease:
        change(tmp_path, boot="another")
        with acquire(tmp_path) as other:
            assert eventually(lambda: lease.lost)
            lease.release()
            assert not other.lost
            assert holder(tmp_path)


def test_a_driver_that_slept_finds_its_lease_lost_without_waiting_for_its_heart(tmp_path: Path) -> None:
    hours = [0.0]
    lease = acquire(tmp_path, now=lambda: time.time() + 3600 * hours[0], beat=60)
    change(tmp_path, boot="another")
    with acquire(tmp_path):
        assert not lease.lost
        hours[0] = 8
        assert lease.lost
    lease.release()


def test_a_full_disk_does_not_stop_the_heart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "lease.json"
    with acquire(tmp_path, beat=0.02) as lease:
        monkeypatch.setattr(lease_module.aside, "replace", full)
        os.utime(path, (0, 0))
        assert eventually(lambda: path.stat().st_mtime > time.time() - 5)
        assert not lease.lost
        monkeypatch.undo()
        before = json.loads(path.read_text())["beat"]
        assert eventually(lambda: json.loads(path.read_text())["beat"] > before)
    assert not path.exists()


def test_a_removed_lease_is_written_again(tmp_path: Path) -> None:
    with acquire(tmp_path, beat=0.02) as lease:
        (tmp_path / "lease.json").unlink()
        assert eventually((tmp_path / "lease.json").exists)
        assert not lease.lost


def test_a_lease_that_cannot_be_written_is_a_pause(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")
    with pytest.raises(Unwritable, match="cannot write"):
        acquire(tmp_path / "run" / "below")


def test_a_forked_child_does_not_give_the_lease_away(tmp_path: Path) -> None:
    script = (
        "import os, sys\nfrom pathlib import Path\nfrom orchestrator.lease import acquire, holder\n"
        "with acquire(Path(sys.argv[1])):\n    child = os.fork()\n    if child:\n        os.waitpid(child, 0)\n"
        "        print(holder(Path(sys.argv[1])).pid == os.getpid())\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    out = subprocess.run([sys.executable, "-c", script, str(tmp_path)], env=environment, capture_output=True, text=True)
    assert "True\n" == out.stdout


def test_the_lease_needs_nothing_heavy() -> None:
    script = "import sys, orchestrator.lease; print([m for m in ('pyarrow', 'numpy', 'ray') if m in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    out = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert "[]\n" == out.stdout
