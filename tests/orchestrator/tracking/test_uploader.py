"""What an uploader writes into MLflow: all that a run's folder says, once, however often it is sent."""

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
from tests.conftest import Copied
from tests.support.mlflow_server import client, name_of, tracked
from tests.support.shell import Here

DONE = "system/jobs done"
UNTRACKED = ("--address", "none", "--mlflow", "off", "--no-report")


class Told:
    """What an uploader hears of a driver whose run has ended, or that has died."""

    def __init__(self, dead: bool = False) -> None:
        self.ended, self.dead = not dead, dead
        self.signs = 0

    def wait(self, seconds: float) -> None:
        raise AssertionError("there is nothing to wait for")

    def sign(self) -> None:
        self.signs += 1


class Place:
    """A store with a tracking database, in which runs are made untracked and then delivered."""

    def __init__(self, folder: Path, begun: Copied) -> None:
        self.engram = Here(folder)
        self.path = begun(folder)
        self.store = open_store(str(folder / "engram-store"))
        self.target = Target(f"sqlite:///{self.path}")

    def run(self, *arguments: str, audit: str = "toys", code: int = 0) -> dict[str, Any]:
        command = ("run", audit, *UNTRACKED, "--store", self.store.location, *arguments)
        made: dict[str, Any] = self.engram.json(*command, code=code)
        return made

    def uploader(self, report: dict[str, Any], experiment: str = "engram") -> Uploader:
        cells = [cell["run"] for cell in report.get("cells", ())]
        order = {"store": self.store.location, "uri": self.target.uri, "experiment": experiment}
        return Uploader(order | {"runs": cells or [report["run"]], "sweep": report["run"] if cells else None})

    def deliver(self, report: dict[str, Any], dead: bool = False) -> str:
        driver = Told(dead)
        return follow(self.uploader(report), driver, driver.sign)  # type: ignore[arg-type]

    def journal(self, report: dict[str, Any]) -> Journal:
        return Journal(self.store.folder("runs", report["run"]))

    @property
    def mlflow(self) -> Any:
        return client(self.target.uri)

    def names(self) -> set[str]:
        with closing(sqlite3.connect(self.path)) as opened:
            asked = "SELECT value FROM tags JOIN runs USING (run_uuid) WHERE key = 'engram.run'"
            return {name for (name,) in opened.execute(f"{asked} AND lifecycle_stage = 'active'")}


@pytest.fixture
def place(tmp_path: Path, begun: Copied) -> Place:
    return Place(tmp_path, begun)


def test_a_run_is_delivered_with_its_numbers_its_tables_and_its_state_and_then_counts_as_such(place: Place) -> None:
    report = place.run("--preset", "few")
    assert not is_delivered(place.journal(report), place.store, place.target)
    assert place.deliver(report) == ""
    (run,) = tracked(place.mlflow)
    assert (report["run"], "toys, few", "FINISHED") == (name_of(run), run.info.run_name, run.info.status)
    assert {"effect": 15.0, DONE: 7.0}.items() <= run.data.metrics.items()
    assert {"audit": "toys", "preset": "few", "parts": "6"}.items() <= run.data.params.items()
    assert {"engram.kind": "cell", "engram.state": "finished"}.items() <= run.data.tags.items()
    files = [each.path for each in place.mlflow.list_artifacts(run.info.run_id, "tables")]
    assert files == ["tables/summary.json", "tables/summary.parquet"]
    held = Path(place.mlflow.download_artifacts(run.info.run_id, "tables", str(place.engram.folder)))
    exported = results.export(place.journal(report), place.store, "summary").table
    assert exported.equals(pq.read_table(held / "summary.parquet"))
    assert exported.schema.names[0] == "run"
    assert SUMMARY.names == json.loads((held / "summary.json").read_text())["columns"]
    assert is_delivered(place.journal(report), place.store, place.target)


def test_what_is_delivered_twice_is_there_once(place: Place) -> None:
    report = place.run("--preset", "few")
    for _ in range(2):
        assert place.deliver(report) == ""
    (run,) = tracked(place.mlflow)
    steps = [each.step for each in place.mlflow.get_metric_history(run.info.run_id, DONE)]
    assert list(range(len(steps))) == steps
    effect = [each.value for each in place.mlflow.get_metric_history(run.info.run_id, "effect")]
    assert str(sorted(effect, key=lambda value: value == value)) == "[nan, 15.0]"  # not known yet, and known


def test_a_name_that_the_user_gave_stays_and_one_of_ours_is_renewed(place: Place) -> None:
    report = place.run("--preset", "few")
    assert place.deliver(report) == ""
    (run,) = tracked(place.mlflow)
    run_id = run.info.run_id

    def named(name: str, ours: str | None) -> str:
        """The name after a delivery to a run that has this name, and which we are noted to have named so."""
        place.mlflow.update_run(run_id, name=name)
        if ours is None:
            place.mlflow.delete_tag(run_id, "engram.name")
        else:
            place.mlflow.set_tag(run_id, "engram.name", ours)
        (place.journal(report).folder / notes.RECEIPT_FILE).unlink()
        assert place.deliver(report) == ""
        return str(place.mlflow.get_run(run_id).info.run_name)

    assert named("the one to keep", "toys, few") == "the one to keep"
    assert named("toys of an earlier version", "toys of an earlier version") == "toys, few"
    assert named(report["run"], None) == "toys, few"
    assert named("the one to keep", None) == "the one to keep"


def test_a_summary_that_has_changed_is_a_later_step(place: Place) -> None:
    report = place.run("parts=3", "trouble=raise", "at=1", f"folder={place.engram.folder}", code=3)
    assert place.deliver(report) == ""
    (run,) = tracked(place.mlflow)
    assert (run.info.status, run.data.metrics["system/jobs failed"]) == ("FAILED", 1.0)
    (place.engram.folder / "mended").touch()
    place.engram("resume", "--address", "none", "--mlflow", "off", "--no-report", "--store", place.store.location)
    assert not is_delivered(place.journal(report), place.store, place.target)
    assert place.deliver(report) == ""
    (run,) = tracked(place.mlflow)
    assert (run.info.status, run.data.metrics["effect"], run.data.metrics[DONE]) == ("FINISHED", 3.0, 4.0)


def test_a_run_whose_driver_has_died_is_marked_so_without_its_files(place: Place) -> None:
    report = place.run("--preset", "few")
    log = place.journal(report).folder / "events.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:4]))  # as far as it had come
    assert place.deliver(report, dead=True) == ""
    (run,) = tracked(place.mlflow)
    assert (run.info.status, run.data.tags["engram.state"]) == ("KILLED", "interrupted")
    assert place.mlflow.list_artifacts(run.info.run_id) == []
    assert not is_delivered(place.journal(report), place.store, place.target)


def test_a_run_that_goes_on_is_shown_as_far_as_it_has_come(place: Place) -> None:
    report = place.run("--preset", "few")
    log = place.journal(report).folder / "events.jsonl"
    whole = log.read_text()
    log.write_text("".join(whole.splitlines(keepends=True)[:4]))
    uploader = place.uploader(report)
    uploader.sync(lambda entry: entry.progress("running"), settled=False)
    (run,) = tracked(place.mlflow)
    assert run.info.status == "RUNNING"
    before = run.data.metrics[DONE]
    log.write_text(whole)
    uploader.sync(lambda entry: entry.progress("running"), settled=False)
    (run,) = tracked(place.mlflow)
    assert before < 7.0 == run.data.metrics[DONE]


def test_a_sweep_is_the_parent_of_its_cells(place: Place) -> None:
    report = place.run("--preset", "few", "--sweep", "label=a,b")
    assert place.deliver(report) == ""
    runs = {name_of(run): run for run in tracked(place.mlflow)}
    parent = runs.pop(report["run"])
    assert ("toys, few, sweep of label", {"label=a", "label=b"}) == (
        parent.info.run_name,
        {run.info.run_name for run in runs.values()},
    )
    table = json.loads(Path(place.mlflow.download_artifacts(parent.info.run_id, "tables/cells.json")).read_text())
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
    assert [(row["label"], row["estimate"]) for row in rows] == [("a", 15.0), ("b", 15.0)]
    assert [cell["run"] for cell in report["cells"]] == [row["run"] for row in rows]
    assert {cell["run"] for cell in report["cells"]} == set(runs)
    assert {parent.info.run_id} == {run.data.tags["mlflow.parentRunId"] for run in runs.values()}
    assert {"FINISHED"} == {run.info.status for run in (parent, *runs.values())}
    assert (parent.data.tags["engram.kind"], "label" in parent.data.params) == ("sweep", False)
    assert {"a", "b"} == {run.data.params["label"] for run in runs.values()}


def test_an_experiment_that_was_deleted_is_one_line_that_says_how_it_is_restored(place: Place) -> None:
    report = place.run("--preset", "few")
    place.mlflow.delete_experiment(place.mlflow.create_experiment("engram"))
    said = place.deliver(report)
    assert "the experiment 'engram' has been deleted in MLflow; restore it (" in said
    assert "--experiment" in said


def test_of_two_runs_of_one_name_the_later_is_deleted(place: Place) -> None:
    server = Server(place.target, place.store)
    tags = {"engram.run": "some", "engram.store": "here"}
    first = server.run("some", "here", 10.0, {}, "some")
    place.mlflow.create_run(server.experiment, 20_000, tags=tags, run_name="some")
    assert first == server.run("some", "here", 10.0, {}, "some")
    (left,) = place.mlflow.search_runs([server.experiment])
    assert first == left.info.run_id


def forget() -> None:
    """Have MLflow close what it has opened, as it does with the process that an uploader is."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
    from mlflow.tracking._tracking_service import utils

    utils._tracking_store_registry._get_store_with_resolved_uri.cache_clear()
    while SqlAlchemyStore._engine_map:
        SqlAlchemyStore._engine_map.popitem()[1].dispose()


def test_the_runs_of_a_database_that_was_cut_are_delivered_with_the_next_run(
    place: Place, migrated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, sweep = place.run("--preset", "few"), place.run("--preset", "few", "--sweep", "label=a,b")
    gone = place.run("--preset", "few", "first=3")
    for report in (first, sweep, gone):
        assert place.deliver(report) == ""
    shutil.rmtree(place.journal(gone).folder)
    os.truncate(place.path, 400_000)
    assert not is_delivered(place.journal(first), place.store, place.target)
    fresh = place.run("--preset", "few", "first=1")
    monkeypatch.setattr("orchestrator.tracking.server._fill", lambda draft: shutil.copy(migrated, draft))
    forget()
    uploader, driver = place.uploader(fresh), Told()
    with file_lock(place.journal(first).folder / "mlflow.lock"):  # somebody is at it
        assert follow(uploader, driver, driver.sign) == ""  # type: ignore[arg-type]
    assert "it was renamed mlflow.db.unusable-1" in uploader.notice
    cells = {cell["run"] for cell in sweep["cells"]}
    assert {fresh["run"], sweep["run"], *cells} == place.names()
    assert [first["run"]] == database.owed_runs(place.path)
    assert place.deliver(fresh) == ""
    assert {first["run"], fresh["run"], sweep["run"], *cells} == place.names()
    assert database.owed_runs(place.path) == []
    assert is_delivered(place.journal(first), place.store, place.target)


def test_a_database_that_breaks_while_it_is_used_is_left_for_the_next_uploader(place: Place) -> None:
    report = place.run("--preset", "few")
    uploader = place.uploader(report)
    uploader.sync(lambda entry: entry.progress("running"), settled=True)
    uploader._server = None
    os.truncate(place.path, 400_000)
    with pytest.raises(Undeliverable, match="can no longer be used"):
        uploader.sync(lambda entry: None, settled=True)
    assert [each for each in os.listdir(place.path.parent) if each.startswith("mlflow.db")] == ["mlflow.db"]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (EngramError("in our\nwords"), "in our words"),
        (OSError("[Errno 111] Connection refused"), "nothing answers at http://h:1"),
        (OSError("Read timed out. (read timeout=5)"), "http://h:1 does not answer"),
        (OSError("Failed to resolve 'h'"), "http://h:1 cannot be found"),
        (OSError("too many 500 error responses"), "http://h:1 answers only with errors"),
        (ValueError("at http://ann:secret@h:1"), "http://h:1: ValueError: at http://h:1"),
    ],
)
def test_what_went_wrong_is_a_line_without_a_password(error: Exception, said: str) -> None:
    assert said == reason(error, Target("http://ann:secret@h:1"))


def test_a_receipt_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    (tmp_path / "mlflow.json").write_text(json.dumps({"uri": 1}))
    assert notes.read_receipt(tmp_path) is None
