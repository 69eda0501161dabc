"""A database copied from the template equals the one that MLflow creates, and a damaged template is not used."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import mlflow
import pytest

from orchestrator.tracking import server
from orchestrator.tracking.template import copy_template, keep_template, template_path

NO_TIMES = "UPDATE experiments SET creation_time = 0, last_update_time = 0"


def statements(path: Path) -> list[str]:
    """The SQL statements that create the database, without the time at which it was created."""
    with closing(sqlite3.connect(path)) as database:
        database.execute(NO_TIMES)
        return sorted(database.iterdump())


def default_location(path: Path) -> str:
    with closing(sqlite3.connect(path)) as database:
        (location,) = database.execute("SELECT artifact_location FROM experiments").fetchone()
    return str(location)


@pytest.fixture
def template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The template that the first database in a folder leaves in the cache."""
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "it's first"
    folder.mkdir()
    monkeypatch.chdir(folder)
    server._fill(folder / "mlflow.db")
    (template,) = (tmp_path / "cache").iterdir()
    return template


def test_copy_equals_the_database_of_mlflow(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = tmp_path / "it's first" / "mlflow.db"
    assert default_location(first) == f"{first.parent}/mlruns/0"
    assert str(first.parent).encode() not in template.read_bytes()
    second = tmp_path / "second"
    second.mkdir()
    monkeypatch.chdir(second)
    monkeypatch.setattr(mlflow, "MlflowClient", None)  # not needed for a copy
    server._fill(second / "mlflow.db")
    assert default_location(second / "mlflow.db") == f"{second}/mlruns/0"
    expected = [line.replace("it''s first", "second") for line in statements(first)]
    assert statements(second / "mlflow.db") == expected


@pytest.mark.parametrize("position", [0, 40, 500_000, -1])
def test_damaged_template_is_not_used(template: Path, tmp_path: Path, position: int) -> None:
    content = bytearray(template.read_bytes())
    content[position] ^= 1
    template.write_bytes(content)
    assert not copy_template(template, tmp_path / "copy.db")
    assert not (tmp_path / "copy.db").exists()


def test_missing_cache_is_no_obstacle(template: Path, tmp_path: Path) -> None:
    assert not copy_template(tmp_path / "no.db", tmp_path / "copy.db")
    (tmp_path / "file").touch()
    keep_template(tmp_path / "file" / "template.db", tmp_path / "it's first" / "mlflow.db", os.getcwd())
    assert (tmp_path / "file").stat().st_size == 0


def test_only_an_unused_database_becomes_a_template(template: Path, tmp_path: Path) -> None:
    keep_template(tmp_path / "other.db", tmp_path / "it's first" / "mlflow.db", "/elsewhere")
    assert not (tmp_path / "other.db").exists()


def test_template_depends_on_version_and_migrations(tmp_path: Path) -> None:
    paths = {template_path("3.17", tmp_path), template_path("3.18", tmp_path)}
    (tmp_path / "new.py").touch()
    paths.add(template_path("3.17", tmp_path))
    assert len(paths) == 3
