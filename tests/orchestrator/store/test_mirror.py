"""Run folders of two machines and their copy in a bucket are kept in step, and nothing newer gives way to older."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from orchestrator.errors import Held, StoreError, Unwritable
from orchestrator.store import lease, mirror
from orchestrator.store.bucket import Bucket
from orchestrator.store.holder import this_process
from orchestrator.store.mirror import Mirror
from tests.support.s3 import BUCKET, Server

RUN = "toys-12345678"


@pytest.fixture
def machine(s3: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Mirror]:
    """A mirror as a command on that machine has it: each call is a command of its own."""
    monkeypatch.setattr(mirror, "PULL_SECONDS", 0.0)
    return lambda name: Mirror(Bucket(f"s3://{BUCKET}/store"), tmp_path / name)


def run(home: Mirror, **files: str) -> Path:
    """The run's folder with these files in it; dots in names are given as two underscores."""
    folder = home.home / "runs" / RUN
    for name, text in {"run__json": "{}", "plan__json": "{}", **files}.items():
        path = folder / name.replace("__", ".").replace("_of_", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def texts(folder: Path) -> dict[str, str]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text() for path in paths}


def test_a_run_is_seen_elsewhere_and_brought_whole_when_it_is_driven_there(machine: Callable[[str], Mirror]) -> None:
    here, there = machine("here"), machine("there")
    folder = run(here, events__jsonl="1\n", tables_of_summary_of_a__parquet="rows")
    here.push(RUN, last=True)
    there.pull()
    brought = there.home / "runs" / RUN
    assert texts(brought) == {"run.json": "{}", "plan.json": "{}", "events.jsonl": "1\n"}
    with there.claim(RUN):
        assert texts(folder) == texts(brought)


def test_what_concerns_one_machine_or_is_being_written_stays_there(
    machine: Callable[[str], Mirror], s3: Server
) -> None:
    here = machine("here")
    run(here, lease__json="{}", lease__lock="", elsewhere__json="{}", x__unfinished="half")
    (here.home / "runs" / RUN / ".timings.json").write_text("half")
    here.push(RUN, last=True)
    assert [f"store/runs/{RUN}/plan.json", f"store/runs/{RUN}/run.json"] == s3.names()


def test_a_copy_that_was_cut_off_is_no_run_yet(machine: Callable[[str], Mirror], s3: Server) -> None:
    here, there = machine("here"), machine("there")
    run(here, events__jsonl="1\n")
    here.push(RUN, last=True)
    s3.delete(f"store/runs/{RUN}/run.json")  # which is put last
    there.pull()
    assert not (there.home / "runs" / RUN).exists()


def test_a_log_only_grows_whoever_has_the_longer_one(machine: Callable[[str], Mirror]) -> None:
    here, there = machine("here"), machine("there")
    folder = run(here, events__jsonl="1\n")
    here.push(RUN, last=True)
    there.pull()
    log = there.home / "runs" / RUN / "events.jsonl"
    log.write_text("1\n2\n")
    there.pull()
    assert log.read_text() == "1\n2\n"
    there.push(RUN, last=True)
    machine("here").pull()
    assert (folder / "events.jsonl").read_text() == "1\n2\n"


def test_what_a_later_start_wrote_replaces_what_an_earlier_one_did(machine: Callable[[str], Mirror]) -> None:
    here, there = machine("here"), machine("there")
    folder = run(here, timings__json="first")
    os.utime(folder / "timings.json", (time.time() - 60,) * 2)
    here.push(RUN, last=True)
    there.pull()
    time.sleep(1.1)  # the bucket counts in seconds
    (there.home / "runs" / RUN / "timings.json").write_text("second")
    there.push(RUN, last=True)
    machine("here").pull()
    assert (folder / "timings.json").read_text() == "second"


def test_parts_that_a_run_has_removed_are_removed_from_the_copy(machine: Callable[[str], Mirror], s3: Server) -> None:
    here = machine("here")
    folder = run(here, tables_of_summary_of_a__parquet="a", tables_of_summary_of_b__parquet="b")
    here.push(RUN, last=True)
    (folder / "tables" / "summary" / "a.parquet").unlink()
    here.push(RUN, last=True)
    assert [f"store/runs/{RUN}/tables/summary/b.parquet"] == s3.names(f"store/runs/{RUN}/tables")


def test_only_what_is_new_is_copied_and_not_all_the_time(
    machine: Callable[[str], Mirror], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = machine("here")
    folder = run(here, events__jsonl="1\n")
    put: list[str] = []
    whole = Bucket.put
    monkeypatch.setattr(Bucket, "put", lambda self, name, *parts: (put.append(name), whole(self, name, *parts)))
    here.push(RUN)
    assert {f"runs/{RUN}/{name}" for name in ("run.json", "plan.json", "events.jsonl")} == set(put)
    put.clear()
    (folder / "events.jsonl").write_text("1\n2\n")
    here.push(RUN)
    assert put == []
    here.push(RUN, last=True)
    assert [f"runs/{RUN}/events.jsonl"] == put


def test_the_driver_on_another_machine_is_known_while_it_lives(machine: Callable[[str], Mirror], s3: Server) -> None:
    here, there = machine("here"), machine("there")
    run(here)
    here.push(RUN, last=True)
    holder = replace(this_process(time.time()), host="other.cluster", boot="another", pid=77)
    claim = f"store/claims/{RUN}.json"
    s3.put(claim, json.dumps({"holder": asdict(holder)}).encode())
    there.pull()
    folder = there.home / "runs" / RUN
    found = lease.holder(folder)
    assert found is not None
    assert (found.host, found.pid) == ("other.cluster", 77)
    with pytest.raises(Held, match=r"other\.cluster"):
        there.claim(RUN)
    s3.delete(claim)
    there.pull()
    assert None is lease.holder(folder)


def test_without_its_server_a_mirror_shows_what_it_has_once_it_has_something(
    machine: Callable[[str], Mirror], s3: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.store.bucket.PATIENCE", 1.0)
    here, fresh = machine("here"), machine("fresh")
    run(here)
    here.push(RUN, last=True)
    here.pull()
    s3.stop()
    try:
        here.pull()
        with pytest.raises(StoreError, match="cannot be reached"):
            fresh.pull()
        (here.home / "runs" / RUN / "events.jsonl").write_text("1\n")
        with pytest.raises(Unwritable, match="cannot be reached"):
            here.push(RUN, last=True)
    finally:
        s3.start()
    here.push(RUN, last=True)
    assert s3.get(f"store/runs/{RUN}/events.jsonl") == b"1\n"
