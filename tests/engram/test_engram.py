"""`import engram` is all that a program needs, also beside modules of the user's that are called as ours are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import json, sys
import engram
heavy = sorted({"torch", "ray", "mlflow"} & set(sys.modules))
few = dict(preset="smoke", canaries=1, epochs=1, probes=20, store="engram-store") | {"family.count": 20}
planned = engram.plan("unique_feature", **few)
run = engram.run("unique_feature", address="none", report=False, mlflow="off", **few)
again = engram.open(run.run, store="engram-store")
try:
    engram.plan("unique_features")
except engram.SpecError as error:
    refused = isinstance(error, engram.EngramError)
audits = engram.audits()
found = [heavy, planned["stored"], run.state, again.summary == run.summary, refused, "smoke" in audits["density"]]
print(json.dumps(found))
"""


def test_a_program_beside_modules_of_the_same_names_needs_only_this_one(tmp_path: Path) -> None:
    for name in ("tasks", "orchestrator", "dashboards"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong module')\n")
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "program.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[], 0, "finished", True, True, True]
