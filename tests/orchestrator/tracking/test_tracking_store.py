"""The tracking database is created completely or not at all. An unusable one is kept aside, and its runs are owed."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.run_folder import notes
from orchestrator.run_folder.journal import Journal
from orchestrator.run_folder.notes import Receipt
from orchestrator.store import open_store
from orchestrator.tracking import artifacts, database
from orchestrator.tracking.delivery import is_delivered
from orchestrator.tracking.tracking_store import Target
from tests.conftest import DatabaseCopier
from tests.orchestrator.tracking.test_tracking import TOYS, shell
from tests.orchestrator.tracking.test_uploader import TrackedStore
from tests.support.mlflow_server import QUIET, client

MAKING = (
    "import sys; from tests.support.mlflow_server import client; "
    "client('sqlite:///' + sys.argv[1]).search_experiments()"
)
CUTS = [0.0, 0.0001, 0.1, 0.5, 0.99]


@pytest.fixture(scope="module")
def half_made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that MLflow leaves if it is killed while it creates its database."""
    path = tmp_path_factory.mktemp("half") / "mlflow.db"
    making = subprocess.Popen([sys.executable, "-c", MAKING, str(path)], env=os.environ | QUIET, stderr=subprocess.PIPE)
    while not path.exists() or path.stat().st_size < 2**18:
        assert making.poll() is None, making.communicate()
        time.sleep(0.001)
    making.kill()
    making.communicate()
    return path


def test_complete_database_has_no_problem(migrated: Path) -> None:
    assert database.problem(migrated) is None


@pytest.mark.parametrize("share", CUTS)
def test_truncated_database_is_recognised(share: float, migrated: Path, tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    shutil.copy(migrated, path)
    os.truncate(path, int(share * path.stat().st_size))
    assert database.problem(path)
    assert not database.holds(path, "a")


def test_half_made_database_is_recognised(half_made: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(half_made.parent, tmp_path / "copy") / half_made.name  # including the journal
    assert database.problem(copy)


def test_foreign_or_locked_database_is_left_unchanged(migrated: Path, tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    shutil.copy(migrated, path)
    with closing(sqlite3.connect(path)) as old, old:
        old.execute("UPDATE alembic_version SET version_num = 'before'")
    assert database.problem(path) is None


def test_killed_creation_leaves_no_database(tmp_path: Path, migrated: Path) -> None:
    path = tmp_path / "here" / "mlflow.db"

    def killed(draft: Path) -> None:
        draft.write_bytes(migrated.read_bytes()[:300_000])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        database.make(path, killed)
    assert os.listdir(path.parent) == []
    (path.parent / ".making-left").mkdir()  # by one that had no time to clear up
    database.make(path, lambda draft: shutil.copy(migrated, draft))
    assert os.listdir(path.parent) == ["mlflow.db"]
    assert migrated.read_bytes() == path.read_bytes()


def test_unfinished_database_is_not_put_in_place(tmp_path: Path, half_made: Path) -> None:
    path = tmp_path / "mlflow.db"
    with pytest.raises(OSError, match="cannot be used"):
        database.make(path, lambda draft: shutil.copy(half_made, draft))
    assert os.listdir(tmp_path) == []


def test_concurrently_created_database_is_kept(tmp_path: Path, migrated: Path) -> None:
    path = tmp_path / "mlflow.db"

    def fill(draft: Path) -> None:
        shutil.copy(migrated, draft)
        path.write_text("another's")

    database.make(path, fill)
    assert path.read_text() == "another's"


def test_replaced_database_is_kept_and_its_runs_owed(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    for count in (1, 2):
        path.write_text(f"old {count}")
        (tmp_path / "mlflow.db-journal").touch()
        kept_file = database.set_aside(path, ["b", "a"][:count])
        assert kept_file.name == f"mlflow.db.unusable-{count}"
        assert kept_file.read_text() == f"old {count}"
        assert (tmp_path / f"{kept_file.name}-journal").exists()
    assert not path.exists()
    assert database.owed_runs(path) == ["a", "b"]
    database.record_owed_runs(path, [])
    assert database.owed_runs(path) == []
    assert {entry.split("-j")[0] for entry in os.listdir(tmp_path)} == {"mlflow.db.unusable-1", "mlflow.db.unusable-2"}


def test_delivery_requires_the_run_in_the_database(tmp_path: Path, copy_database: DatabaseCopier) -> None:
    path = copy_database(tmp_path)
    store = open_store(str(tmp_path / "engram-store"))
    journal = Journal(store.folder("runs", "some"))
    (journal.folder / "run.json").write_text('{"audit": "none"}')
    (journal.folder / "plan.json").write_text('{"roots": {}, "jobs": []}')
    target = Target(f"sqlite:///{path}")
    mlflow = client(target.uri)
    run = mlflow.create_run(mlflow.create_experiment("engram")).info.run_id
    receipt = Receipt(target.uri, "engram", "1", run, "", 0, "finished", artifacts.fingerprint(journal, store, None))
    notes.write_receipt(journal.folder, receipt)
    assert is_delivered(journal, store, target)
    content = path.read_bytes()
    for cut in CUTS:
        path.write_bytes(content[: int(cut * len(content))])
        assert not is_delivered(journal, store, target)
    path.unlink()
    assert not is_delivered(journal, store, target)


def runs_in_database(path: Path) -> dict[str, tuple[str, str, str | None]]:
    """The database's runs by their own names: id, status, parent's id. Not by MLflow, which keeps the file open."""
    tag = "(SELECT value FROM tags WHERE key = '{}' AND tags.run_uuid = runs.run_uuid)"
    columns = f"{tag.format('engram.run')}, run_uuid, status, {tag.format('mlflow.parentRunId')}"
    query = f"SELECT {columns} FROM runs WHERE lifecycle_stage = 'active'"
    with closing(sqlite3.connect(path)) as opened:
        return {name: tuple(rest) for name, *rest in opened.execute(query)}


def limit_file_size() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))


@pytest.mark.slow
def test_runs_of_a_damaged_database_are_delivered_again(tmp_path: Path, copy_database: DatabaseCopier) -> None:
    tracked_store = TrackedStore(tmp_path, copy_database)
    path = tracked_store.path
    engram = shell(tmp_path)
    reports = []
    for more in ((), ("--sweep", "label=a,b")):
        reports.append(tracked_store.run("--preset", "few", *more))
    assert list(map(tracked_store.deliver, reports)) == ["", ""]
    first = reports[0]["run"]
    swept = reports[1]
    cells = {cell["run"] for cell in swept["cells"]}
    assert set(runs_in_database(path)) == {first, swept["run"], *cells}
    os.truncate(path, 400_000)
    assert "engram resume" in engram("ui", code=1).stderr
    command = [sys.executable, "-m", "orchestrator", "resume", first, "--address", "none"]
    full = subprocess.run(
        command, env=engram.env, cwd=tmp_path, preexec_fn=limit_file_size, capture_output=True, text=True, check=True
    )
    assert "not fully tracked" in full.stderr
    assert set(os.listdir(path.parent)) == {"mlflow.db.unusable-1", "owed.json", "artifacts", "id", "lock"}
    engram("resume", first, "--address", "none")
    runs = runs_in_database(path)
    parent = runs[swept["run"]][0]
    assert {n: run[2] for n, run in runs.items()} == {first: None, swept["run"]: None, **dict.fromkeys(cells, parent)}
    assert {status for _, status, _ in runs.values()} == {"FINISHED"}
    assert set(os.listdir(path.parent)) == {"mlflow.db", "mlflow.db.unusable-1", "artifacts", "id", "lock"}


@pytest.mark.slow
def test_half_made_database_is_named_and_replaced(tmp_path: Path, half_made: Path) -> None:
    folder = open_store(str(tmp_path / "engram-store")).folder("mlflow")
    shutil.copytree(half_made.parent, folder, dirs_exist_ok=True)
    engram = shell(tmp_path)
    done = engram(*TOYS, "--preset", "few")
    assert done.stderr.count("it was renamed mlflow.db.unusable-1") == 1
    assert "not fully tracked" not in done.stderr
    assert [status for _, status, _ in runs_in_database(folder / "mlflow.db").values()] == ["FINISHED"]
