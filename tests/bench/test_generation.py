import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bench.generation import BATCH, Estimates, Ours, by_distributions, pixels_of, stacked
from tasks.models.importance import Sampling

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_bench_of_generation_runs_end_to_end_without_data_or_orchestration(tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    # Packages that the orchestrator needs, and the bench must do without.
    for absent in ("ray", "mlflow", "faiss", "pydantic"):
        (tmp_path / f"{absent}.py").write_text("raise ImportError('absent')\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    environment.pop("ENGRAM_DATA", None)
    command = [sys.executable, str(ROOT / "bench" / "generation.py"), "--tiny", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=300)
    assert 0 == done.returncode, done.stderr
    assert "| what | Engram | beside | ratio | must | aim |" in done.stdout
    result = json.loads(out.read_text())
    assert "random images of MNIST's shape" == result["data"]
    assert [1.3, 1.8, 2.0] == [row["must"] for row in result["rows"] if row["must"]]
    assert all(row["ratio"] > 0 for row in result["rows"])


@pytest.mark.slow
def test_the_rows_of_a_gpu_can_be_made_anywhere() -> None:
    rows = list(stacked(pixels_of(2 * BATCH)[1], 1, 2, (1, 2)))
    assert 2 + 3 + 3 == len(rows)
    assert [12] * 3 == [row.must for row in rows if row.unit == "min"]
    assert all(row.ratio > 0 for row in rows)


def test_the_rival_estimates_the_same_density() -> None:
    estimates = Estimates(Ours(pixels_of(4)[1], 1), 4)
    with torch.inference_mode():
        theirs = by_distributions(estimates.network, estimates.x)
    # Two draws of 256 codes from a network at its start, whose weights hardly differ.
    torch.testing.assert_close(theirs.double(), estimates.ours(Sampling())[0], atol=0.5, rtol=0)
    assert max(estimates.errors(Sampling())) < 1e-3
