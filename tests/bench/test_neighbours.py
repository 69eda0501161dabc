import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.shell import ROOT, Here

BENCH = ROOT / "bench" / "neighbours.py"


@pytest.mark.slow
def test_the_neighbour_bench_runs_end_to_end(tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    printed = Here(tmp_path).script(BENCH, "--tiny", "--out", str(out))
    result = json.loads(out.read_text())
    assert "| what | Engram | beside | ratio | must | aim | met |" in printed
    assert [2.0, 0.9, None] == [row["must"] for row in result["rows"]]
    assert ["x"] * 3 == [row["unit"] for row in result["rows"]]
    assert all(row["ratio"] > 0 for row in result["rows"])
    assert "left out" not in result


@pytest.mark.slow
def test_rivals_that_are_absent_are_left_out_with_a_word(tmp_path: Path) -> None:
    for absent in ("ray", "mlflow", "faiss", "sklearn", "threadpoolctl"):
        (tmp_path / f"{absent}.py").write_text("raise ImportError('absent')\n")
    out = tmp_path / "result.json"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, str(BENCH), "--tiny", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=300)
    assert 0 == done.returncode, done.stderr
    printed, result = done.stdout, json.loads(out.read_text())
    assert "- left out: scikit-learn and faiss, not installed here" in printed
    assert [None] == [row["must"] for row in result["rows"]]
    assert "the ceiling" in result["rows"][0]["what"]
