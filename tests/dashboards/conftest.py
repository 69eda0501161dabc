"""Fixtures of dashboards: a store with one real run, and one browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import orchestrator
from dashboards.run import Run, open_run
from orchestrator.spec.specification import Spec
from orchestrator.store import Store, open_store
from tests.dashboards import pages
from tests.support.browser import PROGRAM, Browser, Page


@pytest.fixture(scope="session")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run of `unique_feature --preset smoke`."""
    folder = tmp_path_factory.mktemp("smoke")
    report = orchestrator.run(
        "unique_feature", preset="smoke", store=folder, address="none", mlflow="off", report=False
    )
    return open_run(open_store(folder), report.run)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "store")


@pytest.fixture(scope="session")
def swept(smoke: Run) -> Run:
    """A sweep in the same store; one of its cells is the smoke run."""
    return pages.ran(smoke.store, Spec("unique_feature", "smoke", sweep={"feature.text": ["A", "X"]}))


@pytest.fixture(scope="session")
def page_path(smoke: Run) -> Path:
    """The page of the smoke run."""
    return pages.draw(smoke)


@pytest.fixture(scope="session")
def opened(browser: Browser, page_path: Path) -> Page:
    """The same page in the browser, for tests that do not change it."""
    return browser.open(page_path)


@pytest.fixture(scope="session")
def drawn_sweep(swept: Run) -> Path:
    """The page of the sweep; its cells also have pages."""
    for cell in swept.cells:
        pages.draw(cell)
    return pages.draw(swept)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if not PROGRAM:
        pytest.skip("these tests open pages in Chromium, which is not installed here")
    with Browser() as opened:
        yield opened
