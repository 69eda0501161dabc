"""A store works at any printable path: all tracked files are inside it."""

from __future__ import annotations

import string
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from orchestrator.spec.specification import absolute_uri
from orchestrator.sqlite_uri import sqlite_path, sqlite_uri
from orchestrator.store import open_store
from orchestrator.tracking.tracking_store import Target, default_uri
from tests.support.mlflow_server import client
from tests.support.shell import Shell

CHARACTERS = [character for character in string.printable if character.isprintable() and character not in "/"]
NAMES = [*CHARACTERS, "%20", "%3F", "%2F", "ü", "a?b=c&d", "100%", "%", "".join(CHARACTERS)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", ["folder of the store", "store"])
def test_uri_names_the_database_in_the_store(name: str, form: str, tmp_path: Path) -> None:
    if form == "folder of the store":
        folder = tmp_path / f"x{name}" / "engram-store"
    else:
        folder = tmp_path / f"x{name}"
    uri = default_uri(open_store(folder))
    assert make_url(uri).database == str(folder / "mlflow" / "mlflow.db")
    assert Target(uri).database == folder / "mlflow" / "mlflow.db"
    assert absolute_uri(uri) == uri
    assert Path(uri.removeprefix("sqlite:///")).parent.is_dir()  # MLflow makes it otherwise


@pytest.mark.parametrize("name", NAMES)
def test_relative_uri_refers_to_the_working_directory(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"x{name}").mkdir()
    monkeypatch.chdir(tmp_path / f"x{name}")
    assert sqlite_path(absolute_uri("sqlite:///a.db")) == Path.cwd() / "a.db"
    assert absolute_uri("sqlite:///a.db?mode=ro") == sqlite_uri(Path.cwd() / "a.db") + "?mode=ro"


def test_runs_are_tracked_at_any_path(shell: Shell, tmp_path: Path) -> None:
    folder = tmp_path / f"{''.join(CHARACTERS)}%20ü"
    folder.mkdir()
    shell.folder = folder
    del shell.env["MLFLOW_TRACKING_URI"]
    shell.env["ENGRAM_REPORT"] = "yes"
    ended = shell.json("run", "toys", "parts=1", "--address", "none")
    assert ended["mlflow"] is not None
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]
    mlflow = client(sqlite_uri(folder / "engram-store" / "mlflow" / "mlflow.db"))
    (experiment,) = (entry for entry in mlflow.search_experiments() if entry.name == "engram")
    (run,) = mlflow.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert "report.html" in [artifact.path for artifact in mlflow.list_artifacts(run.info.run_id)]
    assert not shell.json("resume", ended["run"], "--address", "none")["jobs"]["done"]
