from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestrator.executors.guard import Guard

pytestmark = pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="the guard reads /proc")

SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]
DRIVER = """
import os, subprocess, sys, time
from orchestrator.executors.guard import Guard
guard = Guard()
sleeper = subprocess.Popen(
    [sys.executable, "-c", "import time; time.sleep(60)"],
    env={**os.environ, **guard.variables}, stdout=subprocess.DEVNULL, start_new_session=True,
)
print(sleeper.pid, flush=True)
time.sleep(60)
"""


def alive(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def test_closing_takes_what_carries_the_mark_and_nothing_else() -> None:
    guard = Guard()
    marked = subprocess.Popen(SLEEPER, env={**os.environ, **guard.variables})
    other = subprocess.Popen(SLEEPER)
    try:
        guard.close()
        guard.close()
        assert -signal.SIGKILL == marked.wait(timeout=5)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_killed_driver_takes_what_carries_the_mark_with_it() -> None:
    driver = subprocess.Popen([sys.executable, "-c", DRIVER], stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    sleeper = int(driver.stdout.readline())
    assert alive(sleeper)
    driver.kill()
    driver.communicate()
    end = time.monotonic() + 8.0
    while alive(sleeper) and time.monotonic() < end:
        time.sleep(0.1)
    assert not alive(sleeper)


PARENT = """
import os, subprocess, sys, time
from orchestrator.executors.guard import Guard
guard = Guard()
forgetful = "import subprocess, sys, time; sleep = [sys.executable, '-c', 'import time; time.sleep(60)']; "
forgetful += "print(subprocess.Popen(sleep, env={}).pid, flush=True); time.sleep(60)"
subprocess.Popen([sys.executable, "-c", forgetful], env={**os.environ, **guard.variables}, start_new_session=True)
time.sleep(60)
"""


def test_a_child_that_has_lost_the_mark_goes_with_its_parent() -> None:
    driver = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    child = int(driver.stdout.readline())
    time.sleep(2.5)  # the guard gets to know it
    driver.kill()
    driver.wait()
    end = time.monotonic() + 8.0
    while alive(child) and time.monotonic() < end:
        time.sleep(0.1)
    assert not alive(child)
    driver.stdout.close()
