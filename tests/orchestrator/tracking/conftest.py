"""What tests of tracking share: an empty database as MLflow makes it, made once, and stores that begin with a copy."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.store import open_store
from tests.support.mlflow_server import client

Copied = Callable[[Path], Path]


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database that MLflow has just made; it takes seconds, so it is copied."""
    path = tmp_path_factory.mktemp("migrated") / "mlflow.db"
    client(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture(scope="session")
def begun(migrated: Path) -> Copied:
    """Puts the database into the Engram store of a folder, as a run before would have left it there; its path."""

    def begun(folder: Path) -> Path:
        path = open_store(str(folder / "engram-store")).folder("mlflow") / "mlflow.db"
        shutil.copy(migrated, path)
        return path

    return begun
