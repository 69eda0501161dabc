"""Steps after a run do not change its state. A failure of such a step gives one line."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import toys

from orchestrator.errors import EngramError, StoreError
from orchestrator.inspection import pages
from orchestrator.planning.plan import Plan
from orchestrator.run_folder.journal import Journal
from orchestrator.runs import finalise
from orchestrator.runs.report import Report, State
from orchestrator.runs.session import Session, SessionRun
from orchestrator.scheduling.stop import Stop
from orchestrator.spec.specification import Execution
from orchestrator.store import Store
from orchestrator.tracking.delivery import Delivery
from tasks.contract.extras import MLFLOW, install_command

QUIET = Execution(report=False)


class Delivered:
    """A delivery with given messages and tracked runs."""

    def __init__(self, lines: list[str], tracked: Mapping[str, str]) -> None:
        self.lines = lines
        self.tracked = tracked
        self.impatient: Callable[[], bool] = bool

    def finish(self, impatient: Callable[[], bool]) -> list[str]:
        self.impatient = impatient
        return self.lines

    def address(self, run: str) -> str | None:
        return self.tracked.get(run)


@pytest.fixture
def messages() -> list[str]:
    return []


@pytest.fixture
def session(store: Store, messages: list[str]) -> Session:
    plan = Plan.from_roots(toys.plan(toys.Config(parts=2)))
    journals = [Journal(store.folder("runs") / name) for name in ("one", "two")]
    for journal in journals:
        journal.create({"audit": "toys"}, plan)
    store.folder("runs", "both")
    parts = [SessionRun(plan, journal) for journal in journals]
    return Session("both", parts, store, lambda event: messages.append(event["line"]) if "line" in event else None)


def ended_report(run: str, state: State = "finished", done: int = 1) -> Report:
    return Report(run, "toys", state, {"planned": 3, "stored": 3, "done": done, "failed": 0})


def follow(session: Session, report: Report, delivery: Delivered | None = None, execution: Execution = QUIET) -> Report:
    return finalise.finish_run(report, session, execution, cast("Delivery | None", delivery), Stop())


@pytest.fixture
def drawn_pages(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """The runs whose pages are drawn, and whether with images. Drawing the page of `two` fails."""
    drawn_pages: list[tuple[str, bool]] = []

    def draw(store: Store, run: str, show_images: bool = False) -> Path:
        drawn_pages.append((run, show_images))
        if run == "two":
            raise EngramError("the report cannot be drawn")
        page = store.folder("runs", run) / pages.PAGE
        page.write_text("a page")
        return page

    monkeypatch.setattr(pages, "draw", draw)
    return drawn_pages


def test_cells_and_sweep_get_pages_and_failures_reported(
    session: Session, drawn_pages: list[tuple[str, bool]], messages: list[str], store: Store
) -> None:
    sweep = replace(ended_report("both", "failed"), cells=(ended_report("one"), ended_report("two")))
    report = follow(session, sweep, execution=Execution())
    assert drawn_pages == [("one", False), ("two", False), ("both", False)]
    assert messages == ["the report cannot be drawn"]
    folder = store.folder("runs")
    assert report.page == folder / "both" / pages.PAGE
    assert report.state == "failed"
    assert [cell.page for cell in report.cells] == [folder / "one" / pages.PAGE, None]


def test_failed_report_gives_exit_code_1(session: Session, drawn_pages: list[tuple[str, bool]], store: Store) -> None:
    reports = []
    for run in ("one", "two"):
        reports.append(follow(session, ended_report(run), execution=Execution()))
    assert [(report.state, report.exit_code) for report in reports] == [("finished", 0), ("finished", 1)]
    assert drawn_pages


@pytest.mark.parametrize(
    ("report", "execution", "expected"),
    [
        (ended_report("one", done=0), Execution(), []),  # nothing has changed
        (ended_report("one", done=1), Execution(), [("one", False)]),
        (replace(ended_report("one", done=0), damaged=1), Execution(), [("one", False)]),
        (ended_report("one", "failed", done=0), Execution(), [("one", False)]),
        (ended_report("one", done=0), Execution(show_images=True), [("one", True)]),
        (ended_report("one", "interrupted"), Execution(), []),
        (ended_report("one", "paused"), Execution(), []),
        (ended_report("one"), QUIET, []),
    ],
)
def test_page_is_redrawn_only_after_changes(
    session: Session,
    drawn_pages: list[tuple[str, bool]],
    report: Report,
    execution: Execution,
    expected: Any,
    store: Store,
) -> None:
    page = store.folder("runs", "one") / pages.PAGE
    page.write_text("an older page")
    assert page == follow(session, report, execution=execution).page
    assert expected == drawn_pages


def test_missing_page_is_drawn_without_new_results(session: Session, drawn_pages: list[tuple[str, bool]]) -> None:
    follow(session, ended_report("one", done=0), execution=Execution())
    assert drawn_pages == [("one", False)]


def test_report_links_tracked_runs_and_names_failures(session: Session, messages: list[str]) -> None:
    delivery = Delivered(["not fully tracked"], {"one": "http://host/one", "both": "http://host/both"})
    report = follow(session, replace(ended_report("both"), cells=(ended_report("one"), ended_report("two"))), delivery)
    assert messages == ["not fully tracked"]
    assert report.mlflow == "http://host/both"
    assert [cell.mlflow for cell in report.cells] == ["http://host/one", None]


def test_tracking_is_abandoned_after_a_while(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("orchestrator.runs.finalise.time.monotonic", lambda: now)
    for state, hurried in (("finished", False), ("interrupted", True)):
        delivery = Delivered([], {})
        stop = Stop()
        report = ended_report("one", cast("State", state))
        now = 100.0
        finalise.finish_run(report, session, QUIET, cast("Delivery", delivery), stop)
        assert not delivery.impatient()
        now = 100.0 + finalise.INTERRUPTED_SECONDS + 1
        assert hurried is delivery.impatient()
        now = 100.0
        stop.ask("SIGINT")
        assert delivery.impatient()


def test_failed_sharing_is_reported_with_unchanged_state(
    session: Session, messages: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = []

    def share(last: bool = False) -> None:
        shared.append(last)
        raise StoreError("the bucket is away")

    monkeypatch.setattr(session, "share", share)
    assert follow(session, ended_report("one")).state == "finished"
    assert shared == [True]
    assert messages == ["the run's folder was not copied to the store yet: the bucket is away"]


def test_missing_mlflow_is_reported_unless_off(
    session: Session, messages: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert finalise.delivery(session, None, Execution(mlflow="off")) is None
    assert messages == []
    delivery = finalise.delivery(session, "both", Execution(experiment="wards"))
    assert delivery is not None
    assert delivery.target.experiment == "wards"
    assert delivery.target.uri == f"sqlite:///{session.store.folder('mlflow') / 'mlflow.db'}"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert finalise.delivery(session, "both", Execution()) is None
    assert messages == [f"tracking is off: mlflow is not installed ({install_command([MLFLOW])})"]
