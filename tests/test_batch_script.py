"""The batch script for Slurm passes one SIGTERM to its driver at any moment. Slurm and the run are stand-ins."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.shell import ROOT
from tests.support.waiting import HANGING

MOMENTS = 200  # signals around the start of a driver
APART = 0.0002  # the seconds between neighbours
PYTHON = str(Path(sys.base_prefix) / "bin")  # python3 itself; a version manager's would take most of the processor time
AT_A_TIME = 20  # scripts, which slow one another down, as on a busy node
BINARIES = {
    "engram": """#!/bin/bash
if [ "$1 $2" = "runs status" ]; then echo '{"jobs": {"stored": 7}}'; exit; fi
echo "toys-1: 13 jobs, 0 of them stored already" >&2
trap 'echo "stopping: no new job is started" >&2; echo TERM >> "$PWD/signals"; sleep 0.2; exit 130' TERM
echo > "$PWD/begun"
for _ in $(seq 600); do sleep 0.1; done
""",
    "scontrol": """#!/bin/bash
if [ "$1" = show ]; then echo JobState=RUNNING; else echo "$*" >> "$PWD/requeued"; fi
""",
    "scancel": "#!/bin/bash\n",
    # The last command before the driver is started.
    "mktemp": '#!/bin/bash\n/usr/bin/mktemp "$@"\n: > "$PWD/ready"\n',
}


@pytest.fixture(scope="module")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bin")
    for name, text in BINARIES.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


def begin(folder: Path, binaries: Path) -> subprocess.Popen[str]:
    """Start the script as an element of a job array, without Ray."""
    folder.mkdir()
    env = {
        "PATH": os.pathsep.join((PYTHON, os.environ["PATH"])),
        "ENGRAM_BIN": str(binaries),
        "ENGRAM_STORE": str(folder / "store"),
        "ENGRAM_TMP": "/tmp",
        "SLURM_JOB_ID": f"{os.getpid()}{folder.name}",
        "SLURM_ARRAY_TASK_ID": "1",
    }
    script = ["bash", str(ROOT / "examples/slurm/engram.sbatch"), "toys"]
    return subprocess.Popen(script, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def signal_at(moment: int, binaries: Path, tmp_path: Path) -> tuple[list[str], bool]:
    """The signals that the driver got if one came this long after the script was ready, and whether it had begun."""
    folder = tmp_path / str(moment)
    job = begin(folder, binaries)
    while not (folder / "ready").exists():
        assert job.poll() is None
        time.sleep(0.0005)
    time.sleep(APART * moment)
    job.send_signal(signal.SIGTERM)
    output = end(job, folder)
    assert job.returncode == 130, output
    assert (folder / "requeued").exists(), output
    return signals(folder), (folder / "begun").exists()


def end(job: subprocess.Popen[str], folder: Path) -> str:
    output, _ = job.communicate(timeout=HANGING)
    shutil.rmtree(Path("/tmp") / f"ray-{os.getpid()}{folder.name}", ignore_errors=True)
    return output


def signals(folder: Path) -> list[str]:
    return (folder / "signals").read_text().split() if (folder / "signals").exists() else []


@pytest.mark.slow
def test_signal_at_any_moment_reaches_driver_once(binaries: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        ended = list(pool.map(lambda moment: signal_at(moment, binaries, tmp_path), range(MOMENTS)))
    for got, has_begun in ended:
        assert got == ["TERM"] * has_begun  # one that ended before it had begun was stopped by its first signal, too
    assert any(has_begun for _, has_begun in ended)


def test_repeated_signals_count_as_one(binaries: Path, tmp_path: Path) -> None:
    job = begin(tmp_path / "repeated", binaries)
    while not (tmp_path / "repeated" / "begun").exists():
        assert job.poll() is None
        time.sleep(0.02)
    for _ in range(5):
        job.send_signal(signal.SIGTERM)
        time.sleep(0.05)
    output = end(job, tmp_path / "repeated")
    assert job.returncode == 130
    assert signals(tmp_path / "repeated") == ["TERM"]
    assert "engram ended with exit code 130, 7 jobs stored" in output
