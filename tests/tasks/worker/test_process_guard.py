from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.worker.process_guard import MARK, Guard, family, marked_processes, state, sweep
from tests.support.waiting import HANGING, wait_until

pytestmark = pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="the guard reads /proc")

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]
DRIVER = """
import os, subprocess, sys, time
from tasks.worker.process_guard import Guard
guard = Guard()
sleeper = subprocess.Popen(
    [sys.executable, "-c", "import time; time.sleep(600)"],
    env={**os.environ, **guard.variables}, stdout=subprocess.DEVNULL, start_new_session=True,
)
print(sleeper.pid, flush=True)
time.sleep(600)
"""


def is_alive(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def voluntary_sleeps(pid: int) -> int:
    """The number of voluntary sleeps of a process. The guard sleeps once between two checks."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("voluntary_ctxt_switches")]
    return int(line.split()[1])


def wait_until_false(condition: Callable[[], bool]) -> None:
    """Wait until a condition is false."""
    wait_until(lambda: not condition())


def test_closing_ends_only_marked_processes() -> None:
    guard = Guard()
    marked = subprocess.Popen(SLEEPER, env={**os.environ, **guard.variables})
    unmarked = subprocess.Popen(SLEEPER)
    try:
        guard.close()
        guard.close()
        assert marked.wait(timeout=HANGING) == -signal.SIGKILL
        assert unmarked.poll() is None
    finally:
        unmarked.kill()
        unmarked.wait()


def test_marked_processes_are_found_with_descendants() -> None:
    mark = os.urandom(16).hex()
    forgetful = (
        "import subprocess, sys, time; sleep = [sys.executable, '-c', 'import time; time.sleep(60)']; "
        "print(subprocess.Popen(sleep, env={}).pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", forgetful], env={**os.environ, MARK: mark}, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert [parent.pid] == list(marked_processes(mark))
    family_members = family(mark)
    assert set(family_members) == {parent.pid, child}
    assert sweep("another mark", {child: "another start"}) == 0  # a number that another process has got
    assert is_alive(child)
    assert sweep(mark, family_members) == 2
    assert parent.wait() == -signal.SIGKILL
    while is_alive(child):
        time.sleep(0.01)
    assert sweep(mark, family_members) == 0
    parent.stdout.close()


def test_stopped_marked_processes_can_be_ended_alone() -> None:
    guard = Guard()
    stopped, busy = (subprocess.Popen(SLEEPER, env={**os.environ, **guard.variables}) for _ in range(2))
    unmarked = subprocess.Popen(SLEEPER)
    try:
        for process in (stopped, unmarked):
            os.kill(process.pid, signal.SIGSTOP)
            while state(process.pid) != "T":
                time.sleep(0.01)
        guard.kill_stopped_processes()
        assert stopped.wait() == -signal.SIGKILL
        assert busy.poll() is None
        assert state(unmarked.pid) == "T"
    finally:
        guard.close()
        unmarked.kill()
        unmarked.wait()
        busy.wait()
    guard.kill_stopped_processes()
    assert state(unmarked.pid) is None


def test_killed_driver_takes_marked_processes_along() -> None:
    driver = subprocess.Popen([sys.executable, "-c", DRIVER], stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    sleeper = int(driver.stdout.readline())
    assert is_alive(sleeper)
    driver.kill()
    driver.communicate()
    wait_until_false(lambda: is_alive(sleeper))


PARENT = """
import os, subprocess, sys, time
from tasks.worker.process_guard import Guard
from tests.support.waiting import HANGING, wait_until
guard = Guard()
forgetful = "import subprocess, sys, time; sleep = [sys.executable, '-c', 'import time; time.sleep(600)']; "
forgetful += "print(subprocess.Popen(sleep, env={}).pid, flush=True); time.sleep(600)"
print(guard.pid, flush=True)
subprocess.Popen([sys.executable, "-c", forgetful], env={**os.environ, **guard.variables}, start_new_session=True)
time.sleep(600)
"""


def test_unmarked_child_ends_with_its_parent() -> None:
    driver = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    guard = int(driver.stdout.readline())
    child = int(driver.stdout.readline())
    looks = voluntary_sleeps(guard) + 3
    wait_until_false(lambda: voluntary_sleeps(guard) < looks)  # it gets to know the child
    driver.kill()
    driver.wait()
    wait_until_false(lambda: is_alive(child))
    driver.stdout.close()
