import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_training_bench_runs_end_to_end_without_data_or_orchestration(tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    # Packages that the orchestrator needs, and the bench must do without.
    for absent in ("ray", "mlflow", "faiss", "pydantic"):
        (tmp_path / f"{absent}.py").write_text("raise ImportError('absent')\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    environment.pop("ENGRAM_DATA", None)
    command = [sys.executable, str(ROOT / "bench" / "training.py"), "--tiny", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=300)
    assert 0 == done.returncode, done.stderr
    assert "| what | Engram | beside | ratio | must | aim |" in done.stdout
    result = json.loads(out.read_text())
    assert "random images of MNIST's shape" == result["data"]
    assert [1.45, 0.7, 2.0, 6.0] == [row["must"] for row in result["rows"] if row["must"]]
    assert all(row["ratio"] > 0 for row in result["rows"])
