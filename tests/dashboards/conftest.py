"""What the dashboards' tests share: a store with one real run in it, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

import orchestrator
from dashboards.run import Run, open_run
from orchestrator.store import Store, open_store


@pytest.fixture(scope="session")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run of `unique_feature --preset smoke`."""
    place = tmp_path_factory.mktemp("smoke")
    report = orchestrator.run("unique_feature", preset="smoke", store=place, address="none", mlflow="off", report=False)
    return open_run(open_store(place), report.run)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "store")
