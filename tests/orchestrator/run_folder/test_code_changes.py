"""A change of the user's code after a run: named at planning, refused by resume, accepted by --same-code."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from pathlib import Path

import pytest

from tests.conftest import DatabaseCopier
from tests.support.packages import offer
from tests.support.shell import Shell

NETWORK = """
import math
from torch import nn
from layers import WIDTH

def small(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), WIDTH), nn.ReLU(), nn.Linear(WIDTH, classes))
"""
OWN_AUDIT = '''
"""Is there a width?"""
from dataclasses import dataclass
import pyarrow as pa
from tasks.contract.audit import Audit
from tasks.contract.job import Job, task
from tasks.contract.schemas import SUMMARY
from layers import WIDTH

@dataclass(frozen=True)
class Config:
    seed: int = 0

@task(version=1)
def width(config, inputs):
    return pa.table({"width": [WIDTH]})

@task(version=1)
def summary(config, inputs):
    return SUMMARY.empty_table()

def plan(config):
    return {"summary": (Job(summary, config, (Job(width, config),)),)}

AUDIT = Audit(Config, plan, {"smoke": Config()}, lambda config: config)
'''
KINDS = {
    "network": ("unique_feature", ("network=own_net:small", "canaries=1"), "network own_net:small"),
    "audit": ("widths", (), "audit widths"),
}


@pytest.fixture
def engram(tmp_path: Path) -> Shell:
    """`engram` with a user's network and audit, which import a module of the same folder."""
    code = tmp_path / "code"
    offer(code, "widths", "widths:AUDIT", widths=OWN_AUDIT, own_net=NETWORK, layers="WIDTH = 32\n")
    shell = Shell(tmp_path)
    shell.env["PYTHONPATH"] += f":{code}"
    return shell


@pytest.mark.parametrize("kind", KINDS)
def test_changed_code_is_named_refused_and_accepted(engram: Shell, kind: str, copy_database: DatabaseCopier) -> None:
    audit, fields, name = KINDS[kind]
    layers = engram.folder / "code" / "layers.py"
    arguments = (audit, "--preset", "smoke", *fields)
    run = engram.json("run", *arguments, "--address", "none")["run"]
    plan = engram.json("plan", *arguments)
    assert plan["missing"] == 0
    assert plan["code_changes"] == []

    layers.write_text("# in units\n\nWIDTH = 32  # as before\n")
    plan = engram.json("plan", *arguments)
    assert plan["missing"] == 0
    assert plan["code_changes"] == []

    layers.write_text("WIDTH = 16 + 16\n")
    plan = engram.json("plan", *arguments)
    (change,) = plan["code_changes"]
    assert change["code"] == name
    assert change["run"] == run
    assert change["files"] == ["layers.py"]
    assert change["recomputed"] == plan["missing"] > 0
    assert re.match(
        rf"{name}: layers\.py changed since run {run}; \d+ of \d+ jobs would be computed again", change["line"]
    )
    assert f"{name}: layers.py changed since run {run}" in " ".join(engram.json("explain", run)["code"])

    (deleted_result,) = [path for path in engram.results() if path.name.startswith(key_of_summary(engram, run))]
    deleted_result.unlink()
    refused = engram("resume", run, "--address", "none", code=2).stderr
    assert "layers.py changed" in refused
    assert "--same-code" in refused

    engram.env["MLFLOW_TRACKING_URI"] = f"sqlite:///{copy_database(engram.folder)}"
    engram("resume", run, "--address", "none", "--same-code")
    run_status = engram.json("status", run)
    assert run_status["state"] == "finished"
    assert len(run_status["accepted"]) == 1
    assert f"{name}: layers.py changed" in run_status["accepted"][0]
    assert accepted_in_mlflow(engram) == {"engram.accepted_code": run_status["accepted"][0]}
    assert engram.json("rerun", first_key(engram, run))["same"]
    assert engram.json("plan", *arguments, "--same-code")["missing"] == 0
    assert engram.json("run", *arguments, "--address", "none", "--same-code")["run"] == run
    engram("report", run)
    page = (engram.folder / "engram-store" / "runs" / run / "report.html").read_text()
    assert "Code changed within this run." in page


def accepted_in_mlflow(engram: Shell) -> dict[str, str]:
    """The tags of accepted code of the only run in MLflow's database."""
    database_file = engram.folder / "engram-store" / "mlflow" / "mlflow.db"
    with contextlib.closing(sqlite3.connect(database_file)) as database:
        return dict(database.execute("SELECT key, value FROM tags WHERE key LIKE '%accepted%'").fetchall())


def first_key(engram: Shell, run: str) -> str:
    """The key that was planned first, of a training or of an audit's own task."""
    from orchestrator.run_folder.journal import Journal

    return next(iter(Journal(engram.folder / "engram-store" / "runs" / run).tasks()))


def key_of_summary(engram: Shell, run: str) -> str:
    """The key of a run's summary."""
    from orchestrator.run_folder.journal import Journal

    (key,) = Journal(engram.folder / "engram-store" / "runs" / run).roots()["summary"]
    return key
