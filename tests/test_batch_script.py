"""The batch script for Slurm hands its driver one SIGTERM, whenever that comes. Slurm and the run are stand-ins."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.shell import HANGING, ROOT

MOMENTS, APART = 200, 0.005  # signals around the start of a driver, and the seconds between two of them
AT_A_TIME = 25  # scripts, which slow one another down, as on a busy node
BINARIES = {
    "engram": """#!/bin/bash
if [ "$1" = status ]; then echo '{"jobs": {"stored": 7}}'; exit; fi
echo "toys-1: 13 jobs, 0 of them stored already" >&2
trap 'echo "stopping: nothing more is begun" >&2; echo TERM >> "$PWD/signals"; sleep 0.2; exit 130' TERM
echo > "$PWD/begun"
for _ in $(seq 600); do sleep 0.1; done
""",
    "scontrol": """#!/bin/bash
if [ "$1" = show ]; then echo JobState=RUNNING; else echo "$*" >> "$PWD/requeued"; fi
""",
    "scancel": "#!/bin/bash\n",
}


@pytest.fixture(scope="module")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bin")
    for name, text in BINARIES.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


def begin(folder: Path, binaries: Path) -> subprocess.Popen[str]:
    """The script as an index of an array, which starts no Ray."""
    folder.mkdir()
    env = {
        "PATH": os.environ["PATH"],
        "ENGRAM_BIN": str(binaries),
        "ENGRAM_STORE": str(folder / "store"),
        "ENGRAM_TMP": "/tmp",
        "SLURM_JOB_ID": f"{os.getpid()}{folder.name}",
        "SLURM_ARRAY_TASK_ID": "1",
    }
    script = ["bash", str(ROOT / "examples/slurm/engram.sbatch"), "toys"]
    return subprocess.Popen(script, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def end(jobs: Sequence[tuple[subprocess.Popen[str], Path]]) -> list[tuple[Path, int, str]]:
    ended = []
    for job, folder in jobs:
        said, _ = job.communicate(timeout=HANGING)
        ended.append((folder, job.returncode, said))
        shutil.rmtree(Path("/tmp") / f"ray-{os.getpid()}{folder.name}", ignore_errors=True)
    return ended


@pytest.mark.slow
def test_a_signal_at_any_moment_reaches_the_driver_once(binaries: Path, tmp_path: Path) -> None:
    begun = requeued = 0
    for first in range(MOMENTS // AT_A_TIME):
        moments = range(first, MOMENTS, MOMENTS // AT_A_TIME)
        jobs = [(begin(tmp_path / str(moment), binaries), tmp_path / str(moment)) for moment in moments]
        started = time.monotonic()
        for moment, (job, _) in zip(moments, jobs, strict=True):
            time.sleep(max(0.0, started + APART * moment - time.monotonic()))
            job.send_signal(signal.SIGTERM)
        for folder, code, said in end(jobs):
            signals = (folder / "signals").read_text().split() if (folder / "signals").exists() else []
            if code == -signal.SIGTERM:  # before bash had read the script's first lines
                assert not said
                continue
            assert code == 130, said
            assert len(signals) <= 1
            assert not (folder / "begun").exists() or signals, said
            begun += bool(signals)
            requeued += (folder / "requeued").exists()
    assert begun
    assert requeued >= begun


def test_repeated_signals_are_one(binaries: Path, tmp_path: Path) -> None:
    job = begin(tmp_path / "repeated", binaries)
    while not (tmp_path / "repeated" / "begun").exists():
        assert job.poll() is None
        time.sleep(0.02)
    for _ in range(5):
        job.send_signal(signal.SIGTERM)
        time.sleep(0.05)
    ((folder, code, said),) = end([(job, tmp_path / "repeated")])
    assert code == 130
    assert (folder / "signals").read_text().split() == ["TERM"]
    assert "engram ended with exit code 130, 7 jobs stored" in said
