import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GPU_SECTIONS = (
    "ceiling: copy on the device",
    "mlp1, 2 stacked, captured: model-step",
    "2 canaries of mlp1 on digits x 2 epochs, all in",
    "mlp1 by graphs on 2 streams",
    "autoencoders, 2 stacked: model-step",
    "log p of 2 models, TF32",
    "100 autoencoders x 100 epochs with log p (bfloat16) every 5: computed from the rates above",
    "neighbours, 30 x 400 x 16, k = 5, rows from arrays",
    "mlp1, 2 stacked: model-step in whole epochs",
    "memory of mlp1 in a stack of 2, captured",
    "cnn1, stack 2",
    "cnn2, stack 2",
)


@pytest.mark.slow
def test_every_row_of_a_cpu_and_of_a_gpu_is_made_without_data_a_gpu_or_the_orchestrators_packages(
    tmp_path: Path,
) -> None:
    out = tmp_path / "result.json"
    for absent in ("ray", "mlflow", "faiss"):
        (tmp_path / f"{absent}.py").write_text("raise ImportError('absent')\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    environment.pop("ENGRAM_DATA", None)
    options = ["--gpu", "--device", "cpu", "--tiny", "--out", str(out)]
    command = [sys.executable, str(ROOT / "bench" / "training.py"), *options]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=540)
    assert 0 == done.returncode, done.stderr
    assert "| what | Engram | beside | ratio | must | aim | met |" in done.stdout
    result = json.loads(out.read_text())
    assert "random images of MNIST's shape" == result["data"]
    assert "faiss, not installed here" == result["left out"]
    rows = result["rows"]
    assert [] == [row for row in rows if "failed" in row["ours"] or "left out" in row["ours"]], done.stderr
    assert [] == [wanted for wanted in GPU_SECTIONS if not any(row["what"].startswith(wanted) for row in rows)]
    gpu = [40, 12, 12, 12, 2, 2]
    cpu = [1.45, 0.7, 2.0, 6.0, 1.3, 1.8, 2.0, 2.0]
    assert gpu + cpu == [row["must"] for row in rows if row["must"]]
    assert all(row["ratio"] > 0 and row["met"] is not None for row in rows if row["must"])
