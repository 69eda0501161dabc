"""A search in MLflow: one run with a child per trial, created once however often it is delivered."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from dashboards.run import open_run
from orchestrator.inspection.search_results import QUESTION
from orchestrator.store import open_store
from orchestrator.tracking.delivery import is_delivered
from orchestrator.tracking.tracking_store import Target
from orchestrator.tracking.uploader import Uploader, follow
from tests.dashboards import pages
from tests.orchestrator.inspection.test_search_results import journal, rewritten, rows
from tests.orchestrator.tracking.test_uploader import DriverStub
from tests.support.mlflow_server import client, tracked
from tests.support.searches import FinishedSearch
from tests.support.shell import Here


@pytest.fixture
def tracked_search(searched: FinishedSearch, migrated: Path, tmp_path: Path) -> FinishedSearch:
    """The search in a store that has a tracking database."""
    tracked_search = searched.copy_to(tmp_path)
    shutil.copy(migrated, open_store(str(tracked_search.store)).folder("mlflow") / "mlflow.db")
    return tracked_search


def deliver(finished_search: FinishedSearch) -> Any:
    """MLflow's client, after the search was delivered."""
    uri = f"sqlite:///{finished_search.store}/mlflow/mlflow.db"
    about = journal(finished_search).about()
    order = {
        "store": str(finished_search.store),
        "uri": uri,
        "experiment": "engram",
        "runs": about["cells"],
        "sweep": finished_search.name,
    }
    driver = DriverStub()
    assert follow(Uploader(order), driver, driver.sign) == ""  # type: ignore[arg-type]
    assert driver.signs > len(about["cells"])
    assert is_delivered(journal(finished_search), open_store(str(finished_search.store)), Target(uri))
    return client(uri)


def split_runs(runs: list[Any]) -> tuple[Any, list[Any]]:
    """The run of the search, and the runs of its trials."""
    (parent,) = (run for run in runs if run.data.tags["engram.kind"] == "search")
    return parent, [run for run in runs if run is not parent]


def test_search_is_the_parent_of_its_trials(tracked_search: FinishedSearch, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    read_table = pq.read_table

    def noted(source: Any, *arguments: Any, **options: Any) -> Any:
        opened.append(Path(source).stem)
        return read_table(source, *arguments, **options)

    monkeypatch.setattr(pq, "read_table", noted)
    mlflow = deliver(tracked_search)
    # Once for all of its runs, and once to see that all is delivered.
    assert [name for name in opened if name in ("trials", "front")] == ["trials", "trials"]
    parent, trials = split_runs(tracked(mlflow))
    tags = parent.data.tags
    recommendation = tracked_search.printed["recommendation"]
    assert parent.info.run_name == "tunable, noise=0.01, search over rate, wide"
    assert parent.info.status == "FINISHED"
    assert tags["engram.answer"] == "recommended"
    assert tags["engram.tone"] == "cleared"
    assert tags["engram.estimate"] == "0.320 nats less [0.292, 0.348]"
    note = tags["mlflow.note.content"]
    assert note.startswith(f"*{QUESTION} 4 trials over rate from 0.006,0.01, wide from false,true.*")
    assert f"**{recommendation['sentence']}**" in note
    assert "| 1 | rate=0.006, wide=false |" in note
    ends = {"estimate": "", "low": ".low", "high": ".high"}
    numbers = {}
    for name, end in ends.items():
        numbers[f"search.reduction{end}"] = recommendation["difference"][name]
    assert numbers.items() <= parent.data.metrics.items()

    assert {run.data.tags["mlflow.parentRunId"] for run in trials} == {parent.info.run_id}
    by_run = {row["run"]: row for row in rows(tracked_search)}
    assert by_run.keys() == {run.data.tags["engram.run"] for run in trials}
    for run in trials:
        row = by_run[run.data.tags["engram.run"]]
        expected = {}
        for name in ("memorization", "utility"):
            for end in ("", "_low", "_high"):
                expected[f"search.{name}{end.replace('_', '.')}"] = row[f"{name}{end}"]
        assert expected.items() <= run.data.metrics.items()
    names = {run.info.run_name for run in trials}
    assert names >= {"rate=0.006, wide=false", "rate=0.006, wide=false, fresh seeds", "start, fresh seeds"}


def test_search_tables_are_artifacts_shown_by_mlflow(tracked_search: FinishedSearch) -> None:
    first = open_run(open_store(str(tracked_search.store)), rows(tracked_search)[0]["run"])
    pages.draw(first)
    page = pages.draw(open_run(first.store, tracked_search.name))
    mlflow = deliver(tracked_search)
    parent, _ = split_runs(tracked(mlflow))
    # MLflow's frame follows no links to other pages, so the page has none; the page's seal is its own.
    sent_page = Path(mlflow.download_artifacts(parent.info.run_id, "report.html"))
    assert ("../" in page.read_text(), "../" in sent_page.read_text()) == (True, False)
    checks = Here(tracked_search.store.parent).json("verify", str(sent_page))["checks"]
    assert {check["state"] for check in checks} == {"agrees"}
    files = []
    for artifact in mlflow.list_artifacts(parent.info.run_id, "tables"):
        files.append(artifact.path)
    assert [f"tables/{name}.{suffix}" for name in ("front", "trials") for suffix in ("json", "parquet")] == files
    logged_tables = set()
    for artifact in json.loads(parent.data.tags["mlflow.loggedArtifacts"]):
        logged_tables.add(artifact["path"])
    assert logged_tables == {"tables/front.json", "tables/trials.json"}
    table = json.loads(Path(mlflow.download_artifacts(parent.info.run_id, "tables/trials.json")).read_text())
    assert set(table["columns"]) >= {"trial", "setting_rate", "setting_wide", "memorization", "utility_high"}
    assert len(table["data"]) == 7


def test_continued_search_is_updated_in_place(tracked_search: FinishedSearch) -> None:
    all_rows = rows(tracked_search)
    about = journal(tracked_search).about()
    search = {}
    for name, value in about["search"].items():
        if name != "recommendation":
            search[name] = value
    part = dict.fromkeys(row["run"] for row in all_rows[:3])
    settings = dict(zip(about["cells"], about["settings"], strict=True))
    rewritten(tracked_search, all_rows[:3], search=search, cells=list(part), settings=[settings[run] for run in part])
    parent, trials = split_runs(tracked(deliver(tracked_search)))
    assert ("KILLED", len(part), False) == (parent.info.status, len(trials), "engram.answer" in parent.data.tags)
    rewritten(tracked_search, all_rows, **{name: about[name] for name in ("search", "cells", "settings")})
    for _ in range(2):
        mlflow = deliver(tracked_search)
        updated_parent, trials = split_runs(tracked(mlflow))
        assert updated_parent.info.run_id == parent.info.run_id
        assert updated_parent.info.status == "FINISHED"
        assert updated_parent.data.tags["engram.answer"] == "recommended"
        assert len(about["cells"]) == len(trials)
        history = mlflow.get_metric_history(trials[0].info.run_id, "search.memorization")
        assert len(history) == 1
