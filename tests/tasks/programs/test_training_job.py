"""The job of a program that a command starts, read from the environment."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tasks.programs.code import ProgramCode
from tasks.programs.command_line import PLACEHOLDERS
from tasks.programs.config import CommandTraining
from tasks.programs.function import TrainingJob, print_metrics
from tasks.programs.returned import Requested
from tasks.programs.training import TrainingRequest, train_and_score
from tests.support.shell import ROOT

PROGRAM = """
from engram.training import TrainingJob

job = TrainingJob.from_environment()
assert job.data is None and job.gpus == 0 and job.state.is_dir()
job.log(loss=0.5)
job.save_scores(job.ask + job.seed + 10.0 * job.rows.sum())
"""


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, _ in PLACEHOLDERS.values():
        monkeypatch.delenv(variable, raising=False)


def test_program_without_arguments_receives_its_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "own.py").write_text(PROGRAM)
    program = CommandTraining(
        command=f"{sys.executable} own.py", code=ProgramCode("own.py", str(tmp_path)), returns="log_odds"
    )
    ask = np.array([2, 0, 1])
    requested = Requested(ask, 3, None, ask < 2)
    scored = train_and_score(program, TrainingRequest(np.array([0, 1]), ask, 7), requested)
    assert scored.score.tolist() == [19, 17, 18]


def test_program_outside_a_job_names_the_variables(outside: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match=r"ENGRAM_ROWS and ENGRAM_ASK and .* are not set, .* pass default_rows=N"):
        TrainingJob.from_environment()
    for name in ("rows", "ask", "seed", "out"):
        monkeypatch.setenv(PLACEHOLDERS[name][0], "1")
    with pytest.raises(RuntimeError, match=r"^ENGRAM_STATE is not set"):
        TrainingJob.from_environment(default_rows=3)


def test_program_alone_trains_on_all_rows(outside: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    job = TrainingJob.from_environment(default_rows=3)
    assert job.rows.tolist() == job.ask.tolist() == [0, 1, 2]
    assert list(job.state.iterdir()) == []
    job.save_scores(torch.ones(3, dtype=torch.bfloat16, requires_grad=True))
    assert [path.name for path in tmp_path.rglob("*.*")] == ["scores.npy"]
    assert np.load(job.out / "scores.npy").tolist() == [1, 1, 1]


def test_printed_metrics_have_valid_names(capsys: pytest.CaptureFixture[str]) -> None:
    print_metrics({"train loss": 0.25, "val/é": 1.0}, 3)
    print_metrics({"loss": 0.5}, -1)
    assert capsys.readouterr().out == "engram: step=3 train_loss=0.25 val/_=1.0\nengram: loss=0.5\n"
