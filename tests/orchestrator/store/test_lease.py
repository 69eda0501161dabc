import errno
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import orchestrator
from orchestrator.errors import Held, Unreadable, Unwritable
from orchestrator.store import lease as lease_module
from orchestrator.store.lease import CLOCK, DRIVERS, Lease, acquire, holder, living_drivers
from tests.support.waiting import wait_until

ROOT = Path(orchestrator.__file__).parents[1]

HOLD = """
import sys, time
from pathlib import Path
from orchestrator.errors import Held
from orchestrator.store.lease import acquire
from tests.support.waiting import wait_until
if len(sys.argv) > 2:
    print("ready", flush=True)
    while not Path(sys.argv[2]).exists(): pass
try:
    lease = acquire([Path(sys.argv[1])])
except Held as held:
    sys.exit(f"held: {held}")
print("have it", flush=True)
sys.stdin.readline()
lease.release()
"""


def start_driver(*arguments: object) -> "subprocess.Popen[str]":
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        text=True,
    )


def next_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def change(folder: Path, silent: float = 0.0, **fields: Any) -> None:
    """Change the holder of a lease, and make its last heartbeat `silent` seconds old."""
    lease = folder / "lease.json"
    for file in (folder.parent / DRIVERS / f"{json.loads(lease.read_text())['token']}.json", lease):
        if file.exists():
            file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))
            os.utime(file, (time.time() - silent,) * 2)


def acquire_one(folder: Path, **options: Any) -> Lease:
    return acquire([folder], **options)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def killed_lease(tmp_path: Path) -> Path:
    """A folder with the lease of a driver that was killed."""
    process = start_driver(tmp_path / "run")
    assert next_line(process) == "have it"
    process.kill()
    process.communicate()
    return tmp_path / "run"


def test_lease_is_held_until_released(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert holder(folder) is None
    with acquire_one(folder) as lease:
        current_holder = holder(folder)
        assert current_holder
        assert socket.gethostname() == current_holder.host
        assert os.getpid() == current_holder.pid
        assert not lease.lost
    assert holder(folder) is None
    lease.release()
    acquire_one(folder).release()


def test_second_driver_is_refused_and_told_the_first(tmp_path: Path) -> None:
    process = start_driver(tmp_path / "run")
    assert next_line(process) == "have it"
    with pytest.raises(Held) as refused:
        acquire_one(tmp_path / "run")
    line = str(refused.value)
    assert f"run already has a driver: process {process.pid} on {socket.gethostname()}, since 20" in line
    assert f"stop it (kill {process.pid})" in line
    assert "\n" not in line
    process.communicate("\n")
    acquire_one(tmp_path / "run").release()


def test_second_lease_in_one_process_is_refused(run: Path) -> None:
    with acquire_one(run), pytest.raises(Held):
        acquire_one(run)


def test_suspended_driver_keeps_its_lease(run: Path) -> None:
    process = start_driver(run)
    assert next_line(process) == "have it"
    process.send_signal(signal.SIGSTOP)
    change(run, silent=3600)
    with pytest.raises(Held):
        acquire_one(run)
    process.kill()
    process.communicate()


def test_lease_of_a_killed_driver_is_taken_over(killed_lease: Path) -> None:
    assert holder(killed_lease) is None
    with acquire_one(killed_lease) as lease:
        assert not lease.lost


def test_uncollected_killed_driver_counts_as_dead(run: Path) -> None:
    process = start_driver(run)
    assert next_line(process) == "have it"
    os.kill(process.pid, signal.SIGKILL)  # and no wait: its parent is busy
    wait_until(lambda: holder(run) is None)
    acquire_one(run).release()
    process.communicate()


def test_reused_process_number_is_no_driver(killed_lease: Path) -> None:
    change(killed_lease, pid=os.getpid())
    assert holder(killed_lease) is None
    acquire_one(killed_lease).release()


@pytest.mark.parametrize(
    "elsewhere", [{"host": "another"}, {"space": "pid:[1]"}, {"boot": "of another machine with our host name"}]
)
def test_driver_elsewhere_is_judged_by_its_heartbeat(killed_lease: Path, elsewhere: dict[str, str]) -> None:
    change(killed_lease, silent=50, **elsewhere)
    with pytest.raises(Held, match=r"last heartbeat 5[0-9] s ago"):
        acquire_one(killed_lease)
    change(killed_lease, silent=70)
    assert holder(killed_lease) is None
    acquire_one(killed_lease).release()


def test_silence_is_measured_by_file_system_clock(killed_lease: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change(killed_lease, host="another")
    now = time.time()
    for away in (-7200, 7200):
        monkeypatch.setattr(time, "time", lambda away=away: now + away)
        with pytest.raises(Held, match=r"last heartbeat \d s ago"):
            acquire_one(killed_lease)
    monkeypatch.undo()
    change(killed_lease, silent=70)
    monkeypatch.setattr(time, "time", lambda: now - 7200)
    acquire_one(killed_lease).release()


def test_single_heartbeat_from_the_future_is_discarded(killed_lease: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    change(killed_lease, silent=-3600, host="another")
    assert holder(killed_lease)  # a mere reader cannot tell
    monkeypatch.setattr(lease_module, "STALE", 0.05)
    monkeypatch.setattr(lease_module, "BEAT", 0.1)
    acquire_one(killed_lease, report=lines.append).release()
    [line] = lines
    assert re.search(r"run: the last heartbeat of process \d+ on another is 3[56]\d\d s in the future", line)


def test_repeated_heartbeats_from_the_future_count_as_alive(killed_lease: Path) -> None:
    change(killed_lease, silent=-3600, host="another")
    beat = killed_lease.parent / DRIVERS / f"{json.loads((killed_lease / 'lease.json').read_text())['token']}.json"
    with pytest.raises(Held, match="last heartbeat 0 s ago"):
        acquire_one(killed_lease, report=lambda line: os.utime(beat, (time.time() + 3605,) * 2))


def test_without_heartbeat_file_the_lease_time_counts(killed_lease: Path) -> None:
    [beat] = (killed_lease.parent / DRIVERS).glob("*.json")
    beat.unlink()
    change(killed_lease, host="another")
    with pytest.raises(Held):
        acquire_one(killed_lease)
    os.utime(killed_lease / "lease.json", (time.time() - 70,) * 2)
    acquire_one(killed_lease).release()


def test_unreadable_lease_is_held_until_old(run: Path) -> None:
    run.mkdir()
    path = run / "lease.json"
    for text in ("", "{", "[]", "{}", '{"pid": 1}', "null", "1"):
        path.write_text(text)
        with pytest.raises(Held, match="unreadable"):
            acquire_one(run)
        os.utime(path, (time.time() - 61,) * 2)
        acquire_one(run).release()


@pytest.mark.parametrize("dead", [False, True])
def test_exactly_one_of_concurrent_drivers_wins(tmp_path: Path, killed_lease: Path, dead: bool) -> None:
    folder = killed_lease if dead else tmp_path / "new"
    drivers = [start_driver(folder, tmp_path / "go") for _ in range(8)]
    assert [next_line(process) for process in drivers] == ["ready"] * 8
    (tmp_path / "go").touch()
    answers = [next_line(process) for process in drivers]
    [winner] = [process for process, answer in zip(drivers, answers, strict=True) if answer == "have it"]
    for process in drivers:
        refused = process is not winner
        _, error = process.communicate("\n")
        assert refused == bool(process.returncode)
        assert not refused or f"held: {folder.name} already has a driver: process {winner.pid}" in error


def test_one_heartbeat_covers_all_runs_of_a_driver(tmp_path: Path) -> None:
    folders = [tmp_path / f"run-{i}" for i in range(300)]
    before = threading.active_count()
    with acquire(folders, beat=0.02):
        assert before + 1 == threading.active_count()
        [file] = (tmp_path / DRIVERS).glob("*.json")
        os.utime(file, (0, 0))
        write_times = {}
        for folder in folders:
            write_times[folder] = (folder / "lease.json").stat().st_mtime_ns
        wait_until(lambda: file.stat().st_mtime > 0)
        assert write_times == {folder: (folder / "lease.json").stat().st_mtime_ns for folder in folders}
        assert {folder.name for folder in folders} == {name for name, _ in living_drivers(tmp_path)}
        assert all(holder(folder) for folder in folders)
    assert [*tmp_path.glob("*/lease.json"), *(tmp_path / DRIVERS).glob("*.json")] == []


def test_heartbeat_does_not_wait_for_the_disk(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(handle: int) -> None:
        raise AssertionError("a heartbeat was synced")

    lease = acquire_one(run, heart=False)
    monkeypatch.setattr(os, "fsync", slow)
    lease.renew()
    monkeypatch.undo()
    lease.release()


def test_driver_gets_all_its_runs_or_none(tmp_path: Path) -> None:
    with acquire_one(tmp_path / "b"):
        with pytest.raises(Held, match="b already has a driver"):
            acquire([tmp_path / "a", tmp_path / "b"])
        assert holder(tmp_path / "a") is None
        assert [run for run, _ in living_drivers(tmp_path)] == ["b"]


def test_drivers_are_listed_without_reading_finished_runs(tmp_path: Path) -> None:
    for i in range(3):
        acquire_one(tmp_path / f"ended-{i}").release()
    dead = start_driver(tmp_path / "dead")
    assert next_line(dead) == "have it"
    dead.kill()
    dead.communicate()
    with acquire_one(tmp_path / "alive") as lease:
        assert [(run, current_holder.since) for run, current_holder in living_drivers(tmp_path)] == [
            ("alive", lease.since)
        ]
        names = {path.name for path in (tmp_path / DRIVERS).iterdir()} - {CLOCK}
        assert len(names) == 1  # the files of the dead driver are gone


def test_unreadable_driver_list_is_an_error(tmp_path: Path) -> None:
    assert [*living_drivers(tmp_path)] == []
    (tmp_path / DRIVERS).touch()
    with pytest.raises(Unreadable, match=rf"cannot read {tmp_path}/{re.escape(DRIVERS)}: Not a directory"):
        [*living_drivers(tmp_path)]


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="a time namespace needs root and unshare")
def test_driver_in_another_time_namespace_keeps_lease(run: Path) -> None:
    inside = ["unshare", "--time", "--boottime=86400", "--fork", "--kill-child", sys.executable, "-c", HOLD, str(run)]
    process = subprocess.Popen(
        inside, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert next_line(process) == "have it"
    with pytest.raises(Held):
        acquire_one(run)
    process.communicate("\n")
    acquire_one(run).release()


def test_lost_lease_is_left_to_its_new_holder(run: Path) -> None:
    with acquire_one(run, heart=False) as lease:
        change(run, silent=70, host="another")  # as another machine sees it, when this one slept
        with acquire_one(run) as second_lease:
            lease.renew()
            assert lease.lost
            assert lease.lost[0] == "run"
            assert lease.lost[1].pid == os.getpid()
            lease.release()
            assert not second_lease.lost
            assert holder(run)


def test_suspended_driver_notices_its_lost_lease(run: Path) -> None:
    hours = [0.0]
    lease = acquire_one(run, now=lambda: time.time() + 3600 * hours[0], beat=60)
    change(run, silent=70, host="another")
    with acquire_one(run):
        assert not lease.lost
        hours[0] = 8
        assert lease.lost
    lease.release()


def test_suspended_driver_notices_an_ended_takeover(run: Path) -> None:
    hours = [0.0]
    lease = acquire_one(run, now=lambda: time.time() + 3600 * hours[0], beat=60, heart=False)
    change(run, silent=70, host="another")
    with acquire_one(run):
        pass
    hours[0] = 8
    assert lease.lost == ("run", None)
    lease.release()
    assert not (run / "lease.json").exists()


def test_full_disk_does_not_stop_the_heartbeat(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with acquire_one(run, beat=0.02) as lease:
        [file] = (run.parent / DRIVERS).glob("*.json")
        monkeypatch.setattr(lease_module.atomic_write, "replace", full)
        os.utime(file, (0, 0))
        wait_until(lambda: file.stat().st_mtime > 0)
        assert not lease.lost
        monkeypatch.undo()
    assert not (run / "lease.json").exists()


def test_deleted_lease_files_are_rewritten(run: Path) -> None:
    with acquire_one(run, heart=False) as lease:
        [file] = (run.parent / DRIVERS).glob("*.json")
        before = [path.read_text() for path in (file, run / "lease.json")]
        file.unlink()
        (run / "lease.json").unlink()
        lease.renew()
        assert before == [path.read_text() for path in (file, run / "lease.json")]
        assert not lease.lost


def test_unwritable_lease_raises(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")
    with pytest.raises(Unwritable, match="cannot write"):
        acquire_one(tmp_path / "run" / "below")


def test_forked_child_does_not_release_the_lease(tmp_path: Path) -> None:
    script = (
        "import os, sys\nfrom pathlib import Path\nfrom orchestrator.store.lease import acquire, holder\n"
        "with acquire([Path(sys.argv[1])]):\n    child = os.fork()\n    if child:\n        os.waitpid(child, 0)\n"
        "        print(holder(Path(sys.argv[1])).pid == os.getpid())\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    out = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "run")], env=environment, capture_output=True, text=True
    )
    assert out.stdout == "True\n"


def test_lease_imports_no_heavy_package() -> None:
    script = "import sys, orchestrator.store.lease; print([m for m in ('pyarrow', 'numpy', 'ray') if m in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    out = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert out.stdout == "[]\n"
