from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.executors.guard import MARK, Guard, family, marked_processes, state, sweep
from tests.support.waiting import HANGING, wait_until

pytestmark = pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="the guard reads /proc")

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]
DRIVER = """
import os, subprocess, sys, time
from orchestrator.executors.guard import Guard
guard = Guard()
sleeper = subprocess.Popen(
    [sys.executable, "-c", "import time; time.sleep(600)"],
    env={**os.environ, **guard.variables}, stdout=subprocess.DEVNULL, start_new_session=True,
)
print(sleeper.pid, flush=True)
time.sleep(600)
"""


def alive(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def waits(pid: int) -> int:
    """How often this process has gone to sleep of its own accord; the guard does so between two looks."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("voluntary_ctxt_switches")]
    return int(line.split()[1])


def gone(condition: Callable[[], bool]) -> None:
    """Wait until this no longer holds."""
    wait_until(lambda: not condition())


def test_closing_takes_what_carries_the_mark_and_nothing_else() -> None:
    guard = Guard()
    marked = subprocess.Popen(SLEEPER, env={**os.environ, **guard.variables})
    other = subprocess.Popen(SLEEPER)
    try:
        guard.close()
        guard.close()
        assert marked.wait(timeout=HANGING) == -signal.SIGKILL
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_what_carries_a_mark_is_found_with_its_descendants_and_swept() -> None:
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
    known = family(mark)
    assert {parent.pid, child} == set(known)
    assert sweep("another mark", {child: "another start"}) == 0  # a number that another process has got
    assert alive(child)
    assert sweep(mark, known) == 2
    assert parent.wait() == -signal.SIGKILL
    while alive(child):
        time.sleep(0.01)
    assert sweep(mark, known) == 0
    parent.stdout.close()


def test_of_what_carries_the_mark_only_what_is_stopped_can_be_ended_alone() -> None:
    guard = Guard()
    stopped, busy = (subprocess.Popen(SLEEPER, env={**os.environ, **guard.variables}) for _ in range(2))
    other = subprocess.Popen(SLEEPER)
    try:
        for each in (stopped, other):
            os.kill(each.pid, signal.SIGSTOP)
            while state(each.pid) != "T":
                time.sleep(0.01)
        guard.kill_stopped_processes()
        assert stopped.wait() == -signal.SIGKILL
        assert busy.poll() is None
        assert state(other.pid) == "T"
    finally:
        guard.close()
        other.kill()
        other.wait()
        busy.wait()
    guard.kill_stopped_processes()
    assert state(other.pid) is None


def test_a_killed_driver_takes_what_carries_the_mark_with_it() -> None:
    driver = subprocess.Popen([sys.executable, "-c", DRIVER], stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    sleeper = int(driver.stdout.readline())
    assert alive(sleeper)
    driver.kill()
    driver.communicate()
    gone(lambda: alive(sleeper))


PARENT = """
import os, subprocess, sys, time
from orchestrator.executors.guard import Guard
from tests.support.waiting import HANGING, wait_until
guard = Guard()
forgetful = "import subprocess, sys, time; sleep = [sys.executable, '-c', 'import time; time.sleep(600)']; "
forgetful += "print(subprocess.Popen(sleep, env={}).pid, flush=True); time.sleep(600)"
print(guard._process.pid, flush=True)
subprocess.Popen([sys.executable, "-c", forgetful], env={**os.environ, **guard.variables}, start_new_session=True)
time.sleep(600)
"""


def test_a_child_that_has_lost_the_mark_goes_with_its_parent() -> None:
    driver = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    guard, child = int(driver.stdout.readline()), int(driver.stdout.readline())
    looks = waits(guard) + 3
    gone(lambda: waits(guard) < looks)  # it gets to know the child
    driver.kill()
    driver.wait()
    gone(lambda: alive(child))
    driver.stdout.close()
