"""A session passes events to the runs' logs and the observer, and knows what the folders lack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping
from threading import Event
from typing import Any

import pyarrow.parquet as pq
import pytest
import toys

from orchestrator.planning.plan import Plan
from orchestrator.run_folder.journal import Journal
from orchestrator.run_folder.tables import Publisher
from orchestrator.runs import session as session_module
from orchestrator.runs.session import Session, SessionRun
from orchestrator.store import Store, open_store
from orchestrator.store.bucket import Bucket
from tests.support.s3 import BUCKET, Server


def part(store: Store, name: str, **fields: Any) -> SessionRun:
    plan = Plan.from_roots(toys.plan(toys.Config(**fields)))
    journal = Journal(store.folder("runs") / name)
    journal.create({"audit": "toys"}, plan)
    return SessionRun(plan, journal)


def events(session_run: SessionRun) -> list[str]:
    return [event["event"] for event in session_run.journal.events()]


def done(key: str) -> Mapping[str, Any]:
    return {"event": "done", "key": key, "task": "toys.part", "seconds": 0.0}


def test_event_is_logged_by_its_runs_once(store: Store) -> None:
    one = part(store, "one", parts=2)
    two = part(store, "two", parts=3, label="b")
    observed: list[Mapping[str, Any]] = []
    session = Session("sweep", [one, two], store, observed.append)
    session.begin()
    shared = one.plan.roots["parts"][0]
    own_key = two.plan.roots["parts"][2]
    session.take([done(shared)])
    session.take([done(own_key)])
    session.take([{"event": "told", "line": "for all"}])
    assert events(one) == ["started", "done", "told"]
    assert events(two) == ["started", "done", "done", "told"]
    assert [event["event"] for event in observed] == ["planned", "done", "done", "told"]
    assert len({event["time"] for event in observed if event.get("key") == shared}) == 1


def test_log_entries_are_lacking_until_written(store: Store) -> None:
    one = part(store, "one", parts=2)
    session = Session("one", [one], store, None)
    session.begin()
    log = one.journal.folder / "events.jsonl"
    log_content = log.read_bytes()
    log.unlink()
    log.mkdir()
    keys = one.plan.roots["parts"]
    for number, key in enumerate(keys):
        store.write(key, toys.compute(toys.Part(number)), {})
        session.take([done(key)])
    session.publish()
    assert session.lacking == f"cannot write {log}: Is a directory"
    log.rmdir()
    log.write_bytes(log_content)
    session.end([(one, {"event": "finished", "jobs": {}})])
    assert session.lacking is None
    assert events(one) == ["started", "done", "done", "finished"]
    assert list(keys) == [event["key"] for event in one.journal.events() if "key" in event]


def test_unwritable_tables_are_lacking_until_written(store: Store) -> None:
    one = part(store, "one", trouble="nothing")
    (key,) = one.plan.roots["summary"]
    store.write(key, toys.nothing(toys.Label(), ()), {})
    (one.journal.folder / "tables").touch()
    session = Session("one", [one], store, None)
    session.begin()
    assert session.lacking == f"cannot write {one.journal.folder}/tables/summary: Not a directory (ENOTDIR)"
    (one.journal.folder / "tables").unlink()
    session.publish(last=True)
    assert session.lacking is None
    assert len(list((one.journal.folder / "tables" / "summary").glob("*.parquet"))) == 1


def test_differing_results_are_remembered(store: Store) -> None:
    one = part(store, "one", parts=1)
    session = Session("one", [one], store, None)
    (key,) = one.plan.roots["parts"]
    session.take([{"event": "differs", "key": key, "task": "toys.part"}])
    assert session.differing == {key}


def test_bucket_result_is_read_once_and_losses_noticed(s3: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(f"s3://{BUCKET}/store")
    one = part(store, "one", parts=3)
    session = Session("one", [one], store, None)
    session.begin()
    for key in one.plan.jobs:
        store.write(key, toys.compute(toys.Part(1)), {})
        session.take([done(key)])
    fetched_names: list[str] = []
    fetch = Bucket.fetch  # which `get` calls
    monkeypatch.setattr(Bucket, "fetch", lambda self, name: (fetched_names.append(name), fetch(self, name))[1])
    assert session.verify() == {}
    assert session.verify() == {}
    session.publish(last=True)
    results = [name.rpartition("/")[2].removesuffix(".arrow") for name in fetched_names if name.startswith("results/")]
    in_tables = {key for keys in one.plan.roots.values() for key in keys}
    assert dict.fromkeys(in_tables, 1) == {key: count for key, count in Counter(results).items() if key in in_tables}
    gone = one.plan.roots["parts"][0]
    s3.delete(f"store/results/{gone[:2]}/{gone}.arrow")
    assert [gone] == list(session.verify())


def test_tables_are_written_while_the_driver_continues(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "PUBLISH_SECONDS", 0.0)
    one = part(store, "one", parts=2)
    session = Session("one", [one], store, None)
    session.begin()
    first, second = one.plan.roots["parts"]
    waiting = Event()
    release = Event()
    publish = Publisher.publish

    def slowly(self: Publisher, stored_keys: Container[str], reads_parts: bool = False) -> None:
        waiting.set()
        assert release.wait(60)
        publish(self, stored_keys, reads_parts)

    monkeypatch.setattr(Publisher, "publish", slowly)
    for number, key in enumerate((first, second)):
        store.write(key, toys.compute(toys.Part(number)), {})
        session.take([done(key)])  # would wait a minute and fail, were the table written here
    assert waiting.wait(60)
    assert [first, second] == [event["key"] for event in one.journal.events() if "key" in event]
    release.set()
    session.publish(last=True)
    assert pq.read_table(one.journal.folder / "tables" / "parts").num_rows == 2
