"""The driver's messages to the delivery process, its handling of the answers, and its messages to users."""

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
from tests.support.waiting import wait_until

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
    """Replaces the uploader by a process of a few lines, which stores its order and then runs a statement."""

    def answering(then: str) -> None:
        boot = (
            "import sys, json, os; order = sys.stdin.readline(); open('order', 'w').write(order); "
            f"word = sys.stdin.readline(); open('word', 'w').write(word); {then}"
        )
        monkeypatch.setattr(delivery, "BOOT", boot)

    return answering


def never() -> bool:
    return False


def answer_statement(answer: dict[str, Any]) -> str:
    return f"print({json.dumps(json.dumps(answer))}, flush=True)"


def test_uploader_gets_its_order_and_end_message(store: Store, run: str, answering: Callable[[str], None]) -> None:
    answering(
        f"{answer_statement({'alive': True})}; {answer_statement({'problem': '', 'notice': 'one was set aside'})}"
    )
    assert Delivery(TARGET, store, [run], None).finish(never) == ["one was set aside"]
    order = json.loads((store.folder("mlflow") / "order").read_text())
    assert {name: order[name] for name in ("store", "uri", "experiment", "runs", "sweep")} == {
        "store": store.location,
        "uri": URI,
        "experiment": "wards",
        "runs": [run],
        "sweep": None,
    }
    assert all(Path(path).is_absolute() for path in order["path"])
    assert (store.folder("mlflow") / "word").read_text() == "end\n"


@pytest.mark.parametrize(
    ("then", "problem"),
    [
        (answer_statement({"problem": "the disk is full"}), "the disk is full"),
        ("os._exit(1)", "the delivery process has died"),
        (f"{answer_statement({'alive': True})}; os._exit(1)", "the delivery process has died"),
    ],
)
def test_failed_delivery_names_the_command_to_repeat(
    store: Store, run: str, answering: Callable[[str], None], then: str, problem: str
) -> None:
    answering(then)
    (line,) = Delivery(TARGET, store, [run], "toys-sweep").finish(never)
    resume_command = f"engram resume toys-sweep --store {store.location} --mlflow {AT} --experiment wards"
    assert line == f"not fully tracked: {problem}; `{resume_command}` delivers the rest"
    assert "secret" not in line


def test_impatient_driver_does_not_wait(store: Store, run: str, answering: Callable[[str], None]) -> None:
    answering("sys.stdin.read()")  # until it is closed, without an answer
    (line,) = Delivery(TARGET, store, [run], None).finish(lambda: True)
    assert line.startswith("not fully tracked: the time was over; ")


def test_silent_uploader_times_out(
    store: Store, run: str, answering: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    answering("sys.stdin.read()")
    monkeypatch.setattr(delivery, "STARTING", 0.0)
    (line,) = Delivery(TARGET, store, [run], None).finish(never)
    assert line.startswith(f"not fully tracked: {AT} does not answer; ")


def test_machine_that_starts_no_process_is_reported(store: Store, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    (line,) = Delivery(TARGET, store, [run], None).finish(never)
    assert line.startswith("not fully tracked: its process could not be started; ")


def test_command_omits_settings_of_the_environment(
    store: Store, run: str, answering: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(answer_statement({"problem": "no"}))
    for name, value in (
        ("ENGRAM_STORE", store.location),
        ("MLFLOW_TRACKING_URI", URI),
        ("MLFLOW_EXPERIMENT_NAME", "wards"),
    ):
        monkeypatch.setenv(name, value)
    (line,) = Delivery(TARGET, store, [run], None).finish(never)
    assert f"`engram resume {run}`" in line


def receive_run(store: Store, run: str, **fields: Any) -> Journal:
    """The run with a receipt for all of it, but for these fields."""
    journal = Journal(store.folder("runs", run))
    position = journal.events_from(0)[1]
    delivered_state = {
        "position": position,
        "state": "finished",
        "fingerprint": artifacts.fingerprint(journal, store, None),
    }
    receipt_fields = {
        "uri": AT,
        "experiment": "wards",
        "experiment_id": "1",
        "run_id": "r",
        "address": f"{AT}/#/r",
    } | delivered_state
    notes.write_receipt(journal.folder, Receipt(**(receipt_fields | fields)))
    return journal


def test_short_run_starts_no_process_before_its_end(store: Store, run: str, answering: Callable[[str], None]) -> None:
    answering(answer_statement({"problem": ""}))
    short = Delivery(TARGET, store, [run], None)
    short.begin_later()
    assert not (store.folder("mlflow") / "order").exists()
    assert short.finish(never) == []
    assert not json.loads((store.folder("mlflow") / "order").read_text())["follow"]


def test_long_run_is_followed(
    store: Store, run: str, answering: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "LATER", 0.0)
    answering(answer_statement({"problem": ""}))
    long = Delivery(TARGET, store, [run], None)
    long.begin_later()
    wait_until(lambda: (store.folder("mlflow") / "order").exists())
    assert long.finish(never) == []
    assert json.loads((store.folder("mlflow") / "order").read_text())["follow"]


def test_closed_delivery_starts_no_process(store: Store, run: str, answering: Callable[[str], None]) -> None:
    answering(answer_statement({"problem": ""}))
    closed = Delivery(TARGET, store, [run], None)
    closed.begin_later()
    closed.close()
    closed.prepare()
    assert not (store.folder("mlflow") / "order").exists()


def test_complete_delivery_starts_no_process(store: Store, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    receive_run(store, run)
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
def test_receipt_with_missing_parts_is_not_delivered(store: Store, run: str, fields: dict[str, Any]) -> None:
    assert not is_delivered(receive_run(store, run, **fields), store, TARGET)


def test_start_without_work_needs_no_delivery(store: Store, run: str) -> None:
    journal = receive_run(store, run)
    journal.append([{"event": "started"}, {"event": "stored", "key": "a"}, {"event": "finished"}])
    assert is_delivered(journal, store, TARGET)
    receipt = notes.read_receipt(journal.folder)
    assert receipt is not None
    assert journal.events_from(0)[1] == receipt.position
    journal.append([{"event": "started"}, {"event": "interrupted"}])
    assert not is_delivered(journal, store, TARGET)
    journal.append([{"event": "started"}, {"event": "finished"}])
    assert is_delivered(journal, store, TARGET)
    done = {"event": "done", "key": "a", "task": "toys.part", "seconds": 0.5}
    journal.append([done, {"event": "finished"}])
    assert not is_delivered(journal, store, TARGET)


def test_run_missing_in_the_database_is_not_delivered(store: Store, run: str, tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'gone.db'}"
    assert not is_delivered(receive_run(store, run, uri=uri), store, Target(uri, "wards"))


def test_address_belongs_to_this_tracking_store(store: Store, run: str) -> None:
    receive_run(store, run)
    own_delivery = Delivery(TARGET, store, [run], None)
    assert addresses(own_delivery, [run, "toys-other"]) == {run: f"{AT}/#/r"}
    assert addresses(Delivery(Target("http://other:5000", "wards"), store, [run], None), [run]) == {}
    assert addresses(None, [run]) == {}
