import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def bench(folder: Path) -> tuple[str, dict[str, Any]]:
    """What the bench prints and writes, when run with the folder's modules before all others."""
    out = folder / "result.json"
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, str(ROOT / "bench" / "neighbours.py"), "--tiny", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, timeout=300)
    assert 0 == done.returncode, done.stderr
    return done.stdout, json.loads(out.read_text())


@pytest.mark.slow
def test_the_neighbour_bench_runs_end_to_end(tmp_path: Path) -> None:
    printed, result = bench(tmp_path)
    assert "| what | Engram | beside | ratio | must | aim | met |" in printed
    assert [2.0, 0.9, None] == [row["must"] for row in result["rows"]]
    assert ["x"] * 3 == [row["unit"] for row in result["rows"]]
    assert all(row["ratio"] > 0 for row in result["rows"])
    assert "left out" not in result


@pytest.mark.slow
def test_rivals_that_are_absent_are_left_out_with_a_word(tmp_path: Path) -> None:
    for absent in ("ray", "mlflow", "faiss", "pydantic", "sklearn", "threadpoolctl"):
        (tmp_path / f"{absent}.py").write_text("raise ImportError('absent')\n")
    printed, result = bench(tmp_path)
    assert "- left out: scikit-learn and faiss, not installed here" in printed
    assert [None] == [row["must"] for row in result["rows"]]
    assert "the ceiling" in result["rows"][0]["what"]
