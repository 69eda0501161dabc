"""A search in MLflow: one run with a child for each trial, once, however often it is sent."""

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
from tests.orchestrator.tracking.test_uploader import Told
from tests.support.mlflow_server import client, tracked
from tests.support.searches import Made
from tests.support.shell import Here


@pytest.fixture
def made(searched: Made, migrated: Path, tmp_path: Path) -> Made:
    """The search in a store that has a tracking database."""
    made = searched.copied(tmp_path)
    shutil.copy(migrated, open_store(str(made.store)).folder("mlflow") / "mlflow.db")
    return made


def sent(made: Made) -> Any:
    """MLflow's client, once the search has been delivered."""
    uri = f"sqlite:///{made.store}/mlflow/mlflow.db"
    about = journal(made).about()
    order = {"store": str(made.store), "uri": uri, "experiment": "engram", "runs": about["cells"], "sweep": made.name}
    driver = Told()
    assert follow(Uploader(order), driver, driver.sign) == ""  # type: ignore[arg-type]
    assert driver.signs > len(about["cells"])
    assert is_delivered(journal(made), open_store(str(made.store)), Target(uri))
    return client(uri)


def parted(found: list[Any]) -> tuple[Any, list[Any]]:
    """The search, and its trials."""
    (parent,) = (run for run in found if run.data.tags["engram.kind"] == "search")
    return parent, [run for run in found if run is not parent]


def test_it_is_the_parent_of_its_trials_with_its_answer_and_they_have_both_numbers(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    read = pq.read_table

    def noted(source: Any, *arguments: Any, **options: Any) -> Any:
        opened.append(Path(source).stem)
        return read(source, *arguments, **options)

    monkeypatch.setattr(pq, "read_table", noted)
    mlflow = sent(made)
    # Once for all of its runs, and once to see that all is delivered.
    assert [name for name in opened if name in ("trials", "front")] == ["trials", "trials"]
    parent, trials = parted(tracked(mlflow))
    tags, told = parent.data.tags, made.told["recommendation"]
    assert (parent.info.run_name, parent.info.status) == ("tunable, noise=0.01, search over rate, wide", "FINISHED")
    assert (tags["engram.answer"], tags["engram.tone"]) == ("recommended", "cleared")
    assert tags["engram.estimate"] == "0.320 [0.292, 0.348]"
    note = tags["mlflow.note.content"]
    assert note.startswith(f"*{QUESTION} 4 trials over rate from 0.006,0.01, wide from false,true.*")
    assert f"**{told['sentence']}**" in note
    assert "| 1 | rate=0.006, wide=false |" in note
    ends = {"estimate": "", "low": ".low", "high": ".high"}
    numbers = {f"search.reduction{end}": told["difference"][name] for name, end in ends.items()}
    assert numbers.items() <= parent.data.metrics.items()

    assert {parent.info.run_id} == {run.data.tags["mlflow.parentRunId"] for run in trials}
    by_run = {row["run"]: row for row in rows(made)}
    assert by_run.keys() == {run.data.tags["engram.run"] for run in trials}
    for run in trials:
        row = by_run[run.data.tags["engram.run"]]
        expected = {
            f"search.{name}{end.replace('_', '.')}": row[f"{name}{end}"]
            for name in ("memorization", "utility")
            for end in ("", "_low", "_high")
        }
        assert expected.items() <= run.data.metrics.items()
    names = {run.info.run_name for run in trials}
    assert {"rate=0.006, wide=false", "rate=0.006, wide=false, fresh seeds", "start, fresh seeds"} <= names


def test_its_tables_are_artifacts_that_mlflow_shows(made: Made) -> None:
    first = open_run(open_store(str(made.store)), rows(made)[0]["run"])
    pages.draw(first)
    page = pages.draw(open_run(first.store, made.name))
    mlflow = sent(made)
    parent, _ = parted(tracked(mlflow))
    # Its frame follows no link to another page, so that there is none; and the page's seal is its own.
    sent_page = Path(mlflow.download_artifacts(parent.info.run_id, "report.html"))
    assert ("../" in page.read_text(), "../" in sent_page.read_text()) == (True, False)
    checks = Here(made.store.parent).json("verify", str(sent_page))["checks"]
    assert {"agrees"} == {check["state"] for check in checks}
    files = [each.path for each in mlflow.list_artifacts(parent.info.run_id, "tables")]
    assert [f"tables/{name}.{suffix}" for name in ("front", "trials") for suffix in ("json", "parquet")] == files
    shown = {each["path"] for each in json.loads(parent.data.tags["mlflow.loggedArtifacts"])}
    assert {"tables/front.json", "tables/trials.json"} == shown
    table = json.loads(Path(mlflow.download_artifacts(parent.info.run_id, "tables/trials.json")).read_text())
    assert {"trial", "setting.rate", "setting.wide", "memorization", "utility_high"} <= set(table["columns"])
    assert len(table["data"]) == 7


def test_what_went_on_is_there_once_with_the_numbers_of_now(made: Made) -> None:
    whole, about = rows(made), journal(made).about()
    search = {name: value for name, value in about["search"].items() if name != "recommendation"}
    part = dict.fromkeys(row["run"] for row in whole[:3])
    settings = dict(zip(about["cells"], about["settings"], strict=True))
    rewritten(made, whole[:3], search=search, cells=list(part), settings=[settings[run] for run in part])
    parent, trials = parted(tracked(sent(made)))
    assert ("KILLED", len(part), False) == (parent.info.status, len(trials), "engram.answer" in parent.data.tags)
    rewritten(made, whole, **{name: about[name] for name in ("search", "cells", "settings")})
    for _ in range(2):
        mlflow = sent(made)
        again, trials = parted(tracked(mlflow))
        assert (parent.info.run_id, "FINISHED", "recommended") == (
            again.info.run_id, again.info.status, again.data.tags["engram.answer"]
        )  # fmt: skip
        assert len(about["cells"]) == len(trials)
        history = mlflow.get_metric_history(trials[0].info.run_id, "search.memorization")
        assert len(history) == 1
