"""The training scripts of examples/training and docs/own_training.md run, and score their members higher."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.programs.code import ProgramCode
from tasks.programs.command_line import PLACEHOLDERS
from tasks.programs.config import CommandTraining, FunctionTraining, Program, Returns
from tasks.programs.function import TrainingFunction
from tasks.programs.returned import Requested
from tasks.programs.training import TrainingRequest, train_and_score
from tests.support.shell import ROOT

FOLDER = ROOT / "examples" / "training"
PAGE = (ROOT / "docs" / "own_training.md").read_text()
ARGUMENTS = "python train.py --rows {rows} --seed {seed} --out {out}"  # as on the page


@pytest.fixture(autouse=True)
def _python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def of_command(command: str, folder: Path = FOLDER, returns: Returns = "loss") -> CommandTraining:
    return CommandTraining(command=command, code=ProgramCode(command.split()[1], str(folder)), returns=returns)


def member_advantage(program: Program, records: int) -> float:
    """Train a model on half of the records, and return the mean score of this half minus that of the others."""
    rows = np.arange(records)
    is_member = np.random.default_rng(0).permutation(records) < records // 2
    requested = Requested(rows, records, None, is_member)
    score = train_and_score(program, TrainingRequest(rows[is_member], rows, seed=1), requested).score
    return float(score[is_member].mean() - score[~is_member].mean())


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
def test_example_scores_members_higher(command: str, records: int, needs: str) -> None:
    if needs and importlib.util.find_spec(needs) is None:
        pytest.skip(f"{needs} is not installed")
    assert member_advantage(of_command(command), records) > 0


def test_example_of_a_function_scores_members_higher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    function = TrainingFunction.parse("random_forest:train").pin({})
    assert member_advantage(FunctionTraining(function=function), 442) > 0


def test_scripts_of_the_page_run(tmp_path: Path) -> None:
    for name, script in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, flags=re.S):
        (tmp_path / name).write_text(script)
    assert ARGUMENTS in PAGE
    assert member_advantage(of_command(ARGUMENTS, tmp_path, "probabilities"), 569) > 0
    assert np.isfinite(member_advantage(of_command("python wrapped.py", tmp_path), 200))


def test_function_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(import engram\n.*?)```", PAGE, flags=re.S)
    names: dict[str, Any] = {}
    exec(code.replace("models=8", "models=8, address='none'"), names)
    assert names["report"].verdict.n == 569
    assert names["report"].verdict.answer in ("undecided", "memorised")


def test_page_lists_every_placeholder() -> None:
    for name, (variable, _) in PLACEHOLDERS.items():
        assert f"| `{{{name}}}` | `{variable}` | " in PAGE
