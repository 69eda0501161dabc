"""What comes after a run changes nothing of how it ended: what cannot be done is told in a line."""

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
    """A delivery that says this, and has tracked these runs."""

    def __init__(self, lines: list[str], tracked: Mapping[str, str]) -> None:
        self.lines, self.tracked = lines, tracked
        self.impatient: Callable[[], bool] = bool

    def finish(self, impatient: Callable[[], bool]) -> list[str]:
        self.impatient = impatient
        return self.lines

    def address(self, run: str) -> str | None:
        return self.tracked.get(run)


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def session(store: Store, told: list[str]) -> Session:
    plan = Plan.from_roots(toys.plan(toys.Config(parts=2)))
    journals = [Journal(store.folder("runs") / name) for name in ("one", "two")]
    for journal in journals:
        journal.create({"audit": "toys"}, plan)
    store.folder("runs", "both")
    parts = [SessionRun(plan, journal) for journal in journals]
    return Session("both", parts, store, lambda event: told.append(event["line"]) if "line" in event else None)


def ended(run: str, state: State = "finished", done: int = 1) -> Report:
    return Report(run, "toys", state, {"planned": 3, "stored": 3, "done": done, "failed": 0})


def follow(session: Session, report: Report, delivery: Delivered | None = None, execution: Execution = QUIET) -> Report:
    return finalise.finish_run(report, session, execution, cast("Delivery | None", delivery), Stop())


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """The runs whose pages are drawn, and whether with images; that of the run `two` cannot be."""
    found: list[tuple[str, bool]] = []

    def draw(store: Store, run: str, show_images: bool = False) -> Path:
        found.append((run, show_images))
        if run == "two":
            raise EngramError("the report cannot be drawn")
        page = store.folder("runs", run) / pages.PAGE
        page.write_text("a page")
        return page

    monkeypatch.setattr(pages, "draw", draw)
    return found


def test_every_cell_and_the_sweep_get_their_pages_and_what_cannot_be_drawn_is_told(
    session: Session, drawn: list[tuple[str, bool]], told: list[str], store: Store
) -> None:
    sweep = replace(ended("both", "failed"), cells=(ended("one"), ended("two")))
    found = follow(session, sweep, execution=Execution())
    assert drawn == [("one", False), ("two", False), ("both", False)]
    assert told == ["the report cannot be drawn"]
    folder = store.folder("runs")
    assert (folder / "both" / pages.PAGE, "failed") == (found.page, found.state)
    assert [folder / "one" / pages.PAGE, None] == [cell.page for cell in found.cells]


def test_a_report_that_was_asked_for_and_failed_is_not_exit_0(
    session: Session, drawn: list[tuple[str, bool]], store: Store
) -> None:
    found = [follow(session, ended(run), execution=Execution()) for run in ("one", "two")]
    assert [(report.state, report.exit_code) for report in found] == [("finished", 0), ("finished", 1)]
    assert drawn


@pytest.mark.parametrize(
    ("report", "execution", "expected"),
    [
        (ended("one", done=0), Execution(), []),  # nothing has changed
        (ended("one", done=1), Execution(), [("one", False)]),
        (replace(ended("one", done=0), damaged=1), Execution(), [("one", False)]),
        (ended("one", "failed", done=0), Execution(), [("one", False)]),
        (ended("one", done=0), Execution(show_images=True), [("one", True)]),
        (ended("one", "interrupted"), Execution(), []),
        (ended("one", "paused"), Execution(), []),
        (ended("one"), QUIET, []),
    ],
)
def test_a_page_is_drawn_anew_where_anything_has_changed(
    session: Session, drawn: list[tuple[str, bool]], report: Report, execution: Execution, expected: Any, store: Store
) -> None:
    page = store.folder("runs", "one") / pages.PAGE
    page.write_text("an older page")
    assert page == follow(session, report, execution=execution).page
    assert expected == drawn


def test_a_page_that_was_never_drawn_is_drawn_though_nothing_was_computed(
    session: Session, drawn: list[tuple[str, bool]]
) -> None:
    follow(session, ended("one", done=0), execution=Execution())
    assert drawn == [("one", False)]


def test_the_report_says_where_each_run_is_tracked_and_what_could_not_be_delivered(
    session: Session, told: list[str]
) -> None:
    delivery = Delivered(["not fully tracked"], {"one": "http://host/one", "both": "http://host/both"})
    found = follow(session, replace(ended("both"), cells=(ended("one"), ended("two"))), delivery)
    assert told == ["not fully tracked"]
    assert (found.mlflow, [cell.mlflow for cell in found.cells]) == ("http://host/both", ["http://host/one", None])


def test_tracking_is_given_up_when_asked_again_or_when_an_interrupted_run_has_waited_long_enough(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("orchestrator.runs.finalise.time.monotonic", lambda: now)
    for state, hurried in (("finished", False), ("interrupted", True)):
        delivery, stop = Delivered([], {}), Stop()
        report = ended("one", cast("State", state))
        now = 100.0
        finalise.finish_run(report, session, QUIET, cast("Delivery", delivery), stop)
        assert not delivery.impatient()
        now = 100.0 + finalise.INTERRUPTED_SECONDS + 1
        assert hurried is delivery.impatient()
        now = 100.0
        stop.ask("SIGINT")
        assert delivery.impatient()


def test_a_folder_that_cannot_be_shared_is_told_and_the_run_has_ended_as_it_has(
    session: Session, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = []

    def share(last: bool = False) -> None:
        shared.append(last)
        raise StoreError("the bucket is away")

    monkeypatch.setattr(session, "share", share)
    assert follow(session, ended("one")).state == "finished"
    assert (shared, told) == ([True], ["the run's folder was not copied to the store yet: the bucket is away"])


def test_without_mlflow_a_line_says_that_nothing_is_tracked_and_off_says_nothing(
    session: Session, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert finalise.delivery(session, None, Execution(mlflow="off")) is None
    assert told == []
    found = finalise.delivery(session, "both", Execution(experiment="wards"))
    assert found is not None
    assert ("wards", f"sqlite:///{session.store.folder('mlflow') / 'mlflow.db'}") == (
        found.target.experiment,
        found.target.uri,
    )
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert finalise.delivery(session, "both", Execution()) is None
    assert [f"tracking is off: mlflow is not installed ({install_command([MLFLOW])})"] == told
