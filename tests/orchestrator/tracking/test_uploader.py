"""The uploader writes the contents of a run's folder to MLflow once, however often it is delivered."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from orchestrator.errors import EngramError
from orchestrator.inspection import results
from orchestrator.run_folder import notes
from orchestrator.run_folder.journal import Journal
from orchestrator.store import open_store
from orchestrator.store.atomic_write import file_lock
from orchestrator.tracking import database
from orchestrator.tracking.delivery import is_delivered
from orchestrator.tracking.server import Server, Undeliverable
from orchestrator.tracking.tracking_store import Target
from orchestrator.tracking.uploader import Uploader, follow, reason
from tasks.contract.schemas import SUMMARY
from tests.conftest import DatabaseCopier
from tests.support.mlflow_server import client, name_of, tracked
from tests.support.shell import Here

DONE = "system/jobs done"
UNTRACKED = ("--address", "none", "--mlflow", "off", "--no-report")


class DriverStub:
    """A driver whose run has ended, or that has died, as the uploader sees it."""

    def __init__(self, dead: bool = False) -> None:
        self.ended = not dead
        self.dead = dead
        self.signs = 0

    def wait(self, seconds: float) -> None:
        raise AssertionError("the uploader must not wait")

    def sign(self) -> None:
        self.signs += 1


class TrackedStore:
    """A store with a tracking database. Its runs are computed untracked and then delivered."""

    def __init__(self, folder: Path, copy_database: DatabaseCopier) -> None:
        self.engram = Here(folder)
        self.path = copy_database(folder)
        self.store = open_store(str(folder / "engram-store"))
        self.target = Target(f"sqlite:///{self.path}")

    def run(self, *arguments: str, audit: str = "toys", code: int = 0) -> dict[str, Any]:
        command = ("run", audit, *UNTRACKED, "--store", self.store.location, *arguments)
        report: dict[str, Any] = self.engram.json(*command, code=code)
        return report

    def uploader(self, report: dict[str, Any], experiment: str = "engram") -> Uploader:
        cells = [cell["run"] for cell in report.get("cells", ())]
        order = {"store": self.store.location, "uri": self.target.uri, "experiment": experiment}
        return Uploader(order | {"runs": cells or [report["run"]], "sweep": report["run"] if cells else None})

    def deliver(self, report: dict[str, Any], dead: bool = False) -> str:
        driver = DriverStub(dead)
        return follow(self.uploader(report), driver, driver.sign)  # type: ignore[arg-type]

    def journal(self, report: dict[str, Any]) -> Journal:
        return Journal(self.store.folder("runs", report["run"]))

    @property
    def mlflow(self) -> Any:
        return client(self.target.uri)

    def names(self) -> set[str]:
        with closing(sqlite3.connect(self.path)) as opened:
            query = "SELECT value FROM tags JOIN runs USING (run_uuid) WHERE key = 'engram.run'"
            result = set()
            for (name,) in opened.execute(f"{query} AND lifecycle_stage = 'active'"):
                result.add(name)
            return result


@pytest.fixture
def tracked_store(tmp_path: Path, copy_database: DatabaseCopier) -> TrackedStore:
    return TrackedStore(tmp_path, copy_database)


def test_delivered_run_has_numbers_tables_and_state(tracked_store: TrackedStore) -> None:
    report = tracked_store.run("--preset", "few")
    assert not is_delivered(tracked_store.journal(report), tracked_store.store, tracked_store.target)
    assert tracked_store.deliver(report) == ""
    (run,) = tracked(tracked_store.mlflow)
    assert name_of(run) == report["run"]
    assert run.info.run_name == "toys, few"
    assert run.info.status == "FINISHED"
    assert {"effect": 15.0, DONE: 7.0}.items() <= run.data.metrics.items()
    assert {"audit": "toys", "preset": "few", "parts": "6"}.items() <= run.data.params.items()
    assert {"engram.kind": "cell", "engram.state": "finished"}.items() <= run.data.tags.items()
    files = []
    for entry in tracked_store.mlflow.list_artifacts(run.info.run_id, "tables"):
        files.append(entry.path)
    assert files == ["tables/summary.json", "tables/summary.parquet"]
    table_folder = Path(
        tracked_store.mlflow.download_artifacts(run.info.run_id, "tables", str(tracked_store.engram.folder))
    )
    exported = results.export(tracked_store.journal(report), tracked_store.store, "summary").table
    assert exported.equals(pq.read_table(table_folder / "summary.parquet"))
    assert exported.schema.names[0] == "run"
    assert SUMMARY.names == json.loads((table_folder / "summary.json").read_text())["columns"]
    assert is_delivered(tracked_store.journal(report), tracked_store.store, tracked_store.target)


def test_repeated_delivery_changes_nothing(tracked_store: TrackedStore) -> None:
    report = tracked_store.run("--preset", "few")
    for _ in range(2):
        assert tracked_store.deliver(report) == ""
    (run,) = tracked(tracked_store.mlflow)
    steps = []
    for entry in tracked_store.mlflow.get_metric_history(run.info.run_id, DONE):
        steps.append(entry.step)
    assert list(range(len(steps))) == steps
    effect = []
    for entry in tracked_store.mlflow.get_metric_history(run.info.run_id, "effect"):
        effect.append(entry.value)
    assert str(sorted(effect, key=lambda value: value == value)) == "[nan, 15.0]"  # not known yet, and known


def test_name_given_by_the_user_is_kept(tracked_store: TrackedStore) -> None:
    report = tracked_store.run("--preset", "few")
    assert tracked_store.deliver(report) == ""
    (run,) = tracked(tracked_store.mlflow)
    run_id = run.info.run_id

    def name_after_delivery(name: str, noted_name: str | None) -> str:
        """The name after a delivery to a run with this name, if Engram noted `noted_name` as the name that it gave."""
        tracked_store.mlflow.update_run(run_id, name=name)
        if noted_name is None:
            tracked_store.mlflow.delete_tag(run_id, "engram.name")
        else:
            tracked_store.mlflow.set_tag(run_id, "engram.name", noted_name)
        (tracked_store.journal(report).folder / notes.RECEIPT_FILE).unlink()
        assert tracked_store.deliver(report) == ""
        return str(tracked_store.mlflow.get_run(run_id).info.run_name)

    assert name_after_delivery("the one to keep", "toys, few") == "the one to keep"
    assert name_after_delivery("toys of an earlier version", "toys of an earlier version") == "toys, few"
    assert name_after_delivery(report["run"], None) == "toys, few"
    assert name_after_delivery("the one to keep", None) == "the one to keep"


def test_changed_summary_is_a_later_step(tracked_store: TrackedStore) -> None:
    report = tracked_store.run("parts=3", "trouble=raise", "at=1", f"folder={tracked_store.engram.folder}", code=3)
    assert tracked_store.deliver(report) == ""
    (run,) = tracked(tracked_store.mlflow)
    assert run.info.status == "FAILED"
    assert run.data.metrics["system/jobs failed"] == 1.0
    (tracked_store.engram.folder / "mended").touch()
    tracked_store.engram(
        "resume", "--address", "none", "--mlflow", "off", "--no-report", "--store", tracked_store.store.location
    )
    assert not is_delivered(tracked_store.journal(report), tracked_store.store, tracked_store.target)
    assert tracked_store.deliver(report) == ""
    (run,) = tracked(tracked_store.mlflow)
    assert run.info.status == "FINISHED"
    assert run.data.metrics["effect"] == 3.0
    assert run.data.metrics[DONE] == 4.0


def test_run_of_a_dead_driver_is_marked_killed(tracked_store: TrackedStore) -> None:
    report = tracked_store.run("--preset", "few")
    log = tracked_store.journal(report).folder / "events.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:4]))  # an unfinished log
    assert tracked_store.deliver(report, dead=True) == ""
    (run,) = tracked(tracked_store.mlflow)
    assert run.info.status == "KILLED"
    assert run.data.tags["engram.state"] == "interrupted"
    assert tracked_store.mlflow.list_artifacts(run.info.run_id) == []
    assert not is_delivered(tracked_store.journal(report), tracked_store.store, tracked_store.target)


def test_running_run_shows_its_progress(tracked_store: TrackedStore) -> None:
    report = tracked_store.run("--preset", "few")
    log = tracked_store.journal(report).folder / "events.jsonl"
    complete_log = log.read_text()
    log.write_text("".join(complete_log.splitlines(keepends=True)[:4]))
    uploader = tracked_store.uploader(report)
    uploader.sync(lambda entry: entry.progress("running"), settled=False)
    (run,) = tracked(tracked_store.mlflow)
    assert run.info.status == "RUNNING"
    before = run.data.metrics[DONE]
    log.write_text(complete_log)
    uploader.sync(lambda entry: entry.progress("running"), settled=False)
    (run,) = tracked(tracked_store.mlflow)
    assert before < 7.0 == run.data.metrics[DONE]


def test_sweep_is_the_parent_of_its_cells(tracked_store: TrackedStore) -> None:
    report = tracked_store.run("--preset", "few", "--sweep", "label=a,b")
    assert tracked_store.deliver(report) == ""
    runs = {name_of(run): run for run in tracked(tracked_store.mlflow)}
    parent = runs.pop(report["run"])
    assert parent.info.run_name == "toys, few, sweep of label"
    assert {run.info.run_name for run in runs.values()} == {"label=a", "label=b"}
    table = json.loads(
        Path(tracked_store.mlflow.download_artifacts(parent.info.run_id, "tables/cells.json")).read_text()
    )
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
    assert [(row["label"], row["estimate"]) for row in rows] == [("a", 15.0), ("b", 15.0)]
    assert [cell["run"] for cell in report["cells"]] == [row["run"] for row in rows]
    assert {cell["run"] for cell in report["cells"]} == set(runs)
    assert {run.data.tags["mlflow.parentRunId"] for run in runs.values()} == {parent.info.run_id}
    assert {run.info.status for run in (parent, *runs.values())} == {"FINISHED"}
    assert (parent.data.tags["engram.kind"], "label" in parent.data.params) == ("sweep", False)
    assert {run.data.params["label"] for run in runs.values()} == {"a", "b"}


def test_deleted_experiment_gives_advice_in_one_line(tracked_store: TrackedStore) -> None:
    report = tracked_store.run("--preset", "few")
    tracked_store.mlflow.delete_experiment(tracked_store.mlflow.create_experiment("engram"))
    message = tracked_store.deliver(report)
    assert "the experiment 'engram' has been deleted in MLflow; restore it (" in message
    assert "--experiment" in message


def test_later_of_two_equal_runs_is_deleted(tracked_store: TrackedStore) -> None:
    server = Server(tracked_store.target, tracked_store.store)
    tags = {"engram.run": "some", "engram.store": "here"}
    first, is_new = server.run("some", "here", 10.0, {}, "some")
    assert is_new
    tracked_store.mlflow.create_run(server.experiment, 20_000, tags=tags, run_name="some")
    again, is_new = server.run("some", "here", 10.0, {}, "some")
    assert not is_new
    assert again.info.run_id == first.info.run_id
    (remaining_run,) = tracked_store.mlflow.search_runs([server.experiment])
    assert remaining_run.info.run_id == first.info.run_id


def close_databases() -> None:
    """Make MLflow close its databases, as at the end of an uploader's process."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
    from mlflow.tracking._tracking_service import utils

    utils._tracking_store_registry._get_store_with_resolved_uri.cache_clear()
    while SqlAlchemyStore._engine_map:
        SqlAlchemyStore._engine_map.popitem()[1].dispose()


def test_runs_of_a_damaged_database_are_delivered_later(
    tracked_store: TrackedStore, migrated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tracked_store.run("--preset", "few")
    sweep = tracked_store.run("--preset", "few", "--sweep", "label=a,b")
    gone = tracked_store.run("--preset", "few", "first=3")
    for report in (first, sweep, gone):
        assert tracked_store.deliver(report) == ""
    shutil.rmtree(tracked_store.journal(gone).folder)
    os.truncate(tracked_store.path, 400_000)
    assert not is_delivered(tracked_store.journal(first), tracked_store.store, tracked_store.target)
    fresh = tracked_store.run("--preset", "few", "first=1")
    monkeypatch.setattr("orchestrator.tracking.server._fill", lambda draft: shutil.copy(migrated, draft))
    close_databases()
    uploader = tracked_store.uploader(fresh)
    driver = DriverStub()
    with file_lock(tracked_store.journal(first).folder / "mlflow.lock"):  # another process works on it
        assert follow(uploader, driver, driver.sign) == ""  # type: ignore[arg-type]
    assert "it was renamed mlflow.db.unusable-1" in uploader.notice
    cells = {cell["run"] for cell in sweep["cells"]}
    assert tracked_store.names() == {fresh["run"], sweep["run"], *cells}
    assert [first["run"]] == database.owed_runs(tracked_store.path)
    assert tracked_store.deliver(fresh) == ""
    assert tracked_store.names() == {first["run"], fresh["run"], sweep["run"], *cells}
    assert database.owed_runs(tracked_store.path) == []
    assert is_delivered(tracked_store.journal(first), tracked_store.store, tracked_store.target)


def test_database_damaged_during_use_is_left_unchanged(tracked_store: TrackedStore) -> None:
    report = tracked_store.run("--preset", "few")
    uploader = tracked_store.uploader(report)
    uploader.sync(lambda entry: entry.progress("running"), settled=True)
    uploader._server = None
    os.truncate(tracked_store.path, 400_000)
    with pytest.raises(Undeliverable, match="can no longer be used"):
        uploader.sync(lambda entry: None, settled=True)
    assert [file_name for file_name in os.listdir(tracked_store.path.parent) if file_name.startswith("mlflow.db")] == [
        "mlflow.db"
    ]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (EngramError("in our\nwords"), "in our words"),
        (OSError("[Errno 111] Connection refused"), "nothing answers at http://h:1"),
        (OSError("Read timed out. (read timeout=5)"), "http://h:1 does not answer"),
        (OSError("Failed to resolve 'h'"), "http://h:1 cannot be found"),
        (OSError("too many 500 error responses"), "http://h:1 answers only with errors"),
        (ValueError("at http://ann:secret@h:1"), "http://h:1: ValueError: at http://h:1"),
    ],
)
def test_error_is_reported_in_one_line_without_password(error: Exception, expected: str) -> None:
    assert expected == reason(error, Target("http://ann:secret@h:1"))


def test_unreadable_receipt_is_none(tmp_path: Path) -> None:
    (tmp_path / "mlflow.json").write_text(json.dumps({"uri": 1}))
    assert notes.read_receipt(tmp_path) is None
