"""Trainings that log metrics become nested MLflow runs, each exactly once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.tracking.delivery import is_delivered
from orchestrator.tracking.tracking_store import Target
from orchestrator.tracking.uploader import Uploader, follow
from tests.conftest import DatabaseCopier
from tests.orchestrator.tracking.test_uploader import UNTRACKED, DriverStub, TrackedStore
from tests.support.mlflow_server import client
from tests.support.shell import Shell


def split_runs(mlflow: Any) -> tuple[list[Any], dict[str, Any]]:
    """The runs of the experiment that belong to no job, and those of jobs by key."""
    experiment = mlflow.get_experiment_by_name("engram")
    others = []
    jobs: dict[str, Any] = {}
    for run in mlflow.search_runs([experiment.experiment_id]):
        if run.data.tags.get("engram.kind") != "job":
            others.append(run)
            continue
        assert run.data.tags["engram.job"] not in jobs
        jobs[run.data.tags["engram.job"]] = run
    return others, jobs


def steps(mlflow: Any, run: Any, metric: str) -> list[int]:
    return [entry.step for entry in mlflow.get_metric_history(run.info.run_id, metric)]


def test_each_training_is_one_nested_run(tmp_path: Path, copy_database: DatabaseCopier) -> None:
    tracked_store = TrackedStore(tmp_path, copy_database)
    report = tracked_store.run("trouble=raise", f"folder={tmp_path}", audit="trainings", code=3)
    target = Target(tracked_store.target.uri, jobs=True)

    def deliver() -> None:
        order = {"store": tracked_store.store.location, "uri": target.uri, "experiment": "engram", "jobs": True}
        driver = DriverStub()
        assert not follow(Uploader(order | {"runs": [report["run"]], "sweep": None}), driver, driver.sign)  # type: ignore[arg-type]

    assert tracked_store.deliver(report) == ""
    assert split_runs(tracked_store.mlflow)[1] == {}  # only on request
    assert not is_delivered(tracked_store.journal(report), tracked_store.store, target)
    deliver()
    others, jobs = split_runs(tracked_store.mlflow)
    (parent,) = others
    assert [run.info.status for run in jobs.values()] == ["FAILED", "FAILED"]
    assert {run.data.tags["mlflow.parentRunId"] for run in jobs.values()} == {parent.info.run_id}
    failed_ids = {run.info.run_id for run in jobs.values()}
    tracked_store.engram("resume", report["run"], *UNTRACKED, "--store", tracked_store.store.location)
    first = next(iter(jobs.values()))
    tags = first.data.tags  # as of a server that created the run, but answered too late
    tracked_store.mlflow.create_run(first.info.experiment_id, tags=tags)
    for _ in range(2):
        deliver()
        others, jobs = split_runs(tracked_store.mlflow)
        assert len(others) == 1
        assert {run.info.run_id for run in jobs.values()} == failed_ids
        for run in jobs.values():
            assert run.info.status == "FINISHED"
            assert steps(tracked_store.mlflow, run, "loss") == steps(tracked_store.mlflow, run, "accuracy") == [0, 1, 2]
            assert run.data.metrics == {"loss": 1 / 3, "accuracy": 0.75}
    assert sorted(run.data.params["seed"] for run in jobs.values()) == ["0", "1"]
    assert all(run.info.run_name == f"trainings.train {key[:12]}" for key, run in jobs.items())
    assert is_delivered(tracked_store.journal(report), tracked_store.store, target)


@pytest.mark.slow
def test_killed_and_resumed_trainings_are_tracked_once(tmp_path: Path, copy_database: DatabaseCopier) -> None:
    shell = Shell(tmp_path)
    shell.env.pop("MLFLOW_TRACKING_URI")
    copy_database(tmp_path)
    fields = ("trouble=wait", f"folder={tmp_path}", "--address", "none", "--mlflow-jobs")
    run = shell.start("run", "trainings", *fields)
    mlflow = client(f"sqlite:///{tmp_path}/engram-store/mlflow/mlflow.db")
    shell.until(lambda: mlflow.get_experiment_by_name("engram") is not None, run)
    shell.until(lambda: [job.info.status for job in split_runs(mlflow)[1].values()] == ["RUNNING"], run)
    run.kill()
    run.communicate()
    shell.go()
    shell("resume", "--address", "none", "--mlflow-jobs")
    others, jobs = split_runs(mlflow)
    assert len(others) == 1
    assert len(jobs) == 2
    for job in jobs.values():
        assert job.info.status == "FINISHED"
        assert steps(mlflow, job, "loss") == [0, 1, 2]
