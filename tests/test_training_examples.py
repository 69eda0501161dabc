"""The scripts of examples/training, as the jobs of two models trained on complementary halves."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from tasks.programs.code import ProgramCode
from tasks.programs.config import CommandTraining
from tasks.programs.returned import Requested
from tasks.programs.training import TrainingRequest, train_and_score
from tests.support.shell import ROOT

FOLDER = ROOT / "examples" / "training"


@pytest.mark.parametrize(
    ("command", "records", "needs"),
    [
        ("sh shell.sh {rows:txt} {out}", 200, ""),
        ("python gradient_boosting.py", 569, "sklearn"),
        pytest.param("python plain_pytorch.py", 1797, "torch", marks=pytest.mark.slow),
        pytest.param("python lightning_module.py", 1797, "pytorch_lightning", marks=pytest.mark.slow),
        pytest.param("python hf_lora.py", 200, "peft", marks=pytest.mark.slow),
        pytest.param("python jax_logistic.py", 569, "jax", marks=pytest.mark.slow),
    ],
)
def test_example_scores_members_higher(command: str, records: int, needs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if needs and importlib.util.find_spec(needs) is None:
        pytest.skip(f"{needs} is not installed")
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    program = CommandTraining(command=command, code=ProgramCode(command.split()[1], str(FOLDER)))
    rows = np.arange(records)
    is_first = np.random.default_rng(0).permutation(records) < records // 2
    scores = []
    for seed, is_member in enumerate((is_first, ~is_first)):
        requested = Requested(rows, records, None, is_member)
        scores.append(train_and_score(program, TrainingRequest(rows[is_member], rows, seed), requested).score)
    assert np.where(is_first, scores[0] - scores[1], scores[1] - scores[0]).mean() > 0
