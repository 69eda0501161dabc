"""The batch script of examples/slurm on a real Slurm cluster: a time limit, a requeue, a drained node, an array."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.shell import ROOT
from tests.support.slurm import missing_parts, run_on_cluster

SCRIPT = """
set -eu
export ENGRAM_BIN={bin} ENGRAM_STORE=$W/store MLFLOW_TRACKING_URI=off PYTHONPATH={root}:{root}/tests/toys
mkdir toys
await() {{ for _ in $(seq 2400); do eval "$1" && return; sleep 0.25; done; echo "never: $1"; exit 1; }}
begun() {{ wc -l < toys/began.log 2>/dev/null || echo 0; }}
state() {{ scontrol show job "$1" | sed -n 's/.*JobState=\\([A-Z]*\\).*/\\1/p'; }}
ended() {{ state "$1" | grep -qE 'COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL'; }}
run="toys parts=12 trouble=wait at=4 folder=$W/toys"
submit="sbatch --parsable --gres=gpu:0 --cpus-per-task=2"

# The time limit: running parts are finished, and the job requeues itself.
$submit --nodes=2 --time=30 --signal=B:TERM@100 {root}/examples/slurm/engram.sbatch $run >/dev/null
await '[ "$(begun)" -gt 0 ]'
scontrol update JobId=1 TimeLimit=$((SECONDS / 60 + 2))
await 'grep -q SIGTERM: engram-1.log'
touch toys/go
await 'grep -q requeued engram-1.log'
rm toys/go
cp toys/computed.log at-limit.log
scontrol update JobId=1 StartTime=now TimeLimit=30
before=$(begun)

# A manual requeue during the run: running parts are lost and computed again.
await '[ "$(begun)" -gt "$before" ]'
before=$(begun)
scontrol requeue 1
await '[ "$(state 1)" = PENDING ]'
await 'scontrol update JobId=1 StartTime=now 2>/dev/null'
await '[ "$(begun)" -gt "$before" ]'
touch toys/go
await 'ended 1'
state 1

# On the remaining node, the finished run has no work, and an element of an array is a separate run.
scontrol update NodeName=n2 State=DRAIN Reason=test
$submit --nodes=1 --time=10 {root}/examples/slurm/engram.sbatch $run >/dev/null
await 'ended 2'
state 2
ENGRAM_FIELD=first $submit --array=1 --nodes=1 --time=10 {root}/examples/slurm/engram.sbatch toys parts=3 >/dev/null
await 'ended 3_1'
state 3_1
"""


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_parts()), reason=f"a Slurm cluster needs {', '.join(missing_parts())}")
def test_job_survives_limit_requeue_and_drained_node(tmp_path: Path) -> None:
    binaries = Path(sys.executable).parent
    work = tmp_path / "w"
    work.mkdir()
    done = run_on_cluster(work, ROOT, SCRIPT.format(bin=binaries, root=ROOT), 900)
    logs = "".join(f"{path.name}:\n{path.read_text()}" for path in sorted(work.glob("*.log")))
    assert done.returncode == 0, done.stdout + done.stderr + logs
    assert done.stdout.split() == ["COMPLETED"] * 3, logs

    assert (work / "engram-1.log").read_text().count("Ray runs on n[1-2]") >= 3
    computed = Counter(map(int, (work / "toys" / "computed.log").read_text().split()))
    assert set(range(12)) == set(computed)
    # Every job begun before the limit was stored. Only jobs interrupted by the manual requeue began twice.
    assert all(computed[number] == 1 for number in map(int, (work / "at-limit.log").read_text().split()))
    assert sum(computed.values()) <= 12 + 4
    assert "13 of them stored already" in (work / "engram-2.log").read_text()
    for name in ("engram-1.json", "engram-2.json"):
        report = json.loads((work / name).read_text())
        assert (report["state"], report["jobs"]["stored"]) == ("finished", 12 + 1), report
    assert not list(work.glob("*.stored"))
