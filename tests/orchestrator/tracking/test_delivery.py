"""What a driver says to the process that delivers, what it makes of the answers, and what it tells a person."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.run_folder import notes
from orchestrator.run_folder.journal import Journal
from orchestrator.run_folder.notes import Receipt
from orchestrator.runs.lifecycle import start
from orchestrator.spec.resolve import resolve_cells
from orchestrator.spec.specification import Execution, Spec
from orchestrator.store import Store, open_store
from orchestrator.tracking import artifacts, delivery
from orchestrator.tracking.delivery import Delivery, addresses, is_delivered
from orchestrator.tracking.tracking_store import Target

URI = "http://ann:secret@host:5000"
TARGET = Target(URI, "wards")
AT = "http://host:5000"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "engram-store"))


@pytest.fixture
def run(store: Store) -> str:
    return start(
        resolve_cells(Spec("toys", "few", {"parts": "2"})), store, Execution(address="none", mlflow="off", report=False)
    ).run


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Has a process of a few lines answer in the uploader's place: it keeps its order, then does what it is told."""

    def answering(then: str) -> None:
        boot = (
            "import sys, json, os; order = sys.stdin.readline(); open('order', 'w').write(order); "
            f"word = sys.stdin.readline(); open('word', 'w').write(word); {then}"
        )
        monkeypatch.setattr(delivery, "BOOT", boot)

    return answering


def never() -> bool:
    return False


def said(answer: dict[str, Any]) -> str:
    return f"print({json.dumps(json.dumps(answer))}, flush=True)"


def test_the_uploader_gets_its_order_and_the_word_that_ends_it(
    store: Store, run: str, answering: Callable[[str], None]
) -> None:
    answering(f"{said({'alive': True})}; {said({'problem': '', 'notice': 'one was set aside'})}")
    assert Delivery(TARGET, store, [run], None).finish(never) == ["one was set aside"]
    order = json.loads((store.folder("mlflow") / "order").read_text())
    assert {"store": store.location, "uri": URI, "experiment": "wards", "runs": [run], "sweep": None} == {
        name: order[name] for name in ("store", "uri", "experiment", "runs", "sweep")
    }
    assert all(Path(path).is_absolute() for path in order["path"])
    assert (store.folder("mlflow") / "word").read_text() == "end\n"


@pytest.mark.parametrize(
    ("then", "problem"),
    [
        (said({"problem": "the disk is full"}), "the disk is full"),
        ("os._exit(1)", "the delivery process has died"),
        (f"{said({'alive': True})}; os._exit(1)", "the delivery process has died"),
    ],
)
def test_what_could_not_be_delivered_is_told_with_the_command_that_delivers_it(
    store: Store, run: str, answering: Callable[[str], None], then: str, problem: str
) -> None:
    answering(then)
    (line,) = Delivery(TARGET, store, [run], "toys-sweep").finish(never)
    again = f"engram resume toys-sweep --store {store.location} --mlflow {AT} --experiment wards"
    assert f"not fully tracked: {problem}; `{again}` delivers the rest" == line
    assert "secret" not in line


def test_who_has_no_time_waits_for_no_answer(store: Store, run: str, answering: Callable[[str], None]) -> None:
    answering("sys.stdin.read()")  # until it is closed, without an answer
    (line,) = Delivery(TARGET, store, [run], None).finish(lambda: True)
    assert line.startswith("not fully tracked: the time was over; ")


def test_a_server_that_is_silent_is_given_up(
    store: Store, run: str, answering: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    answering("sys.stdin.read()")
    monkeypatch.setattr(delivery, "STARTING", 0.0)
    (line,) = Delivery(TARGET, store, [run], None).finish(never)
    assert line.startswith(f"not fully tracked: {AT} does not answer; ")


def test_a_machine_that_starts_no_process_says_so(store: Store, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    (line,) = Delivery(TARGET, store, [run], None).finish(never)
    assert line.startswith("not fully tracked: its process could not be started; ")


def test_the_command_leaves_out_what_the_environment_says(
    store: Store, run: str, answering: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(said({"problem": "no"}))
    for name, value in (
        ("ENGRAM_STORE", store.location),
        ("MLFLOW_TRACKING_URI", URI),
        ("MLFLOW_EXPERIMENT_NAME", "wards"),
    ):
        monkeypatch.setenv(name, value)
    (line,) = Delivery(TARGET, store, [run], None).finish(never)
    assert f"`engram resume {run}`" in line


def received(store: Store, run: str, **fields: Any) -> Journal:
    """The run with a receipt for all of it, but for these fields."""
    journal = Journal(store.folder("runs", run))
    position = journal.events_from(0)[1]
    known = {"position": position, "state": "finished", "fingerprint": artifacts.fingerprint(journal, store, None)}
    whole = {"uri": AT, "experiment": "wards", "experiment_id": "1", "run_id": "r", "address": f"{AT}/#/r"} | known
    notes.write_receipt(journal.folder, Receipt(**(whole | fields)))
    return journal


def test_where_all_is_delivered_no_process_is_started(store: Store, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    received(store, run)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert Delivery(TARGET, store, [run], None).finish(never) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"uri": "http://other:5000"},
        {"experiment": "engram"},
        {"state": ""},
        {"state": "failed", "position": 0},
        {"fingerprint": "other"},
        {"position": 0},
    ],
)
def test_what_a_receipt_lacks_is_not_delivered(store: Store, run: str, fields: dict[str, Any]) -> None:
    assert not is_delivered(received(store, run, **fields), store, TARGET)


def test_a_start_that_did_nothing_is_no_news_and_need_not_be_read_again(store: Store, run: str) -> None:
    journal = received(store, run)
    journal.append([{"event": "started"}, {"event": "stored", "key": "a"}, {"event": "finished"}])
    assert is_delivered(journal, store, TARGET)
    found = notes.read_receipt(journal.folder)
    assert found is not None
    assert journal.events_from(0)[1] == found.position
    journal.append([{"event": "started"}, {"event": "interrupted"}])
    assert not is_delivered(journal, store, TARGET)
    journal.append([{"event": "started"}, {"event": "finished"}])
    assert is_delivered(journal, store, TARGET)
    done = {"event": "done", "key": "a", "task": "toys.part", "seconds": 0.5}
    journal.append([done, {"event": "finished"}])
    assert not is_delivered(journal, store, TARGET)


def test_a_run_that_the_database_does_not_hold_is_not_delivered(store: Store, run: str, tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'gone.db'}"
    assert not is_delivered(received(store, run, uri=uri), store, Target(uri, "wards"))


def test_the_address_is_that_of_this_tracking_store(store: Store, run: str) -> None:
    received(store, run)
    mine = Delivery(TARGET, store, [run], None)
    assert {run: f"{AT}/#/r"} == addresses(mine, [run, "toys-other"])
    assert addresses(Delivery(Target("http://other:5000", "wards"), store, [run], None), [run]) == {}
    assert addresses(None, [run]) == {}
