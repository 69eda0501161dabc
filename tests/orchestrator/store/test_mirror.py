"""Run folders on two machines are synchronised through a bucket, and newer files never give way to older ones."""

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
    """A mirror as a command on a machine opens it. Each call stands for a new command."""
    monkeypatch.setattr(mirror, "PULL_SECONDS", 0.0)
    return lambda name: Mirror(Bucket(f"s3://{BUCKET}/store"), tmp_path / name)


def run(home: Mirror, **files: str) -> Path:
    """The run's folder with these files. Two underscores in a name stand for a dot."""
    folder = home.home / "runs" / RUN
    for name, text in {"run__json": "{}", "plan__json": "{}", **files}.items():
        path = folder / name.replace("__", ".").replace("_of_", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def texts(folder: Path) -> dict[str, str]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text() for path in paths}


def test_run_is_visible_elsewhere_and_complete_once_driven(machine: Callable[[str], Mirror]) -> None:
    here = machine("here")
    other_machine = machine("there")
    folder = run(here, events__jsonl="1\n", tables_of_summary_of_a__parquet="rows")
    here.push(RUN, last=True)
    other_machine.pull()
    brought = other_machine.home / "runs" / RUN
    assert texts(brought) == {"run.json": "{}", "plan.json": "{}", "events.jsonl": "1\n"}
    with other_machine.claim(RUN):
        assert texts(folder) == texts(brought)


def test_machine_specific_and_unfinished_files_stay(machine: Callable[[str], Mirror], s3: Server) -> None:
    here = machine("here")
    run(here, lease__json="{}", lease__lock="", elsewhere__json="{}", x__unfinished="half")
    (here.home / "runs" / RUN / ".timings.json").write_text("half")
    here.push(RUN, last=True)
    assert s3.names() == [f"store/runs/{RUN}/plan.json", f"store/runs/{RUN}/run.json"]


def test_interrupted_copy_is_not_a_run(machine: Callable[[str], Mirror], s3: Server) -> None:
    here = machine("here")
    other_machine = machine("there")
    run(here, events__jsonl="1\n")
    here.push(RUN, last=True)
    s3.delete(f"store/runs/{RUN}/run.json")  # which is put last
    other_machine.pull()
    assert not (other_machine.home / "runs" / RUN).exists()


def test_longer_log_wins_on_both_machines(machine: Callable[[str], Mirror]) -> None:
    here = machine("here")
    other_machine = machine("there")
    folder = run(here, events__jsonl="1\n")
    here.push(RUN, last=True)
    other_machine.pull()
    log = other_machine.home / "runs" / RUN / "events.jsonl"
    log.write_text("1\n2\n")
    other_machine.pull()
    assert log.read_text() == "1\n2\n"
    other_machine.push(RUN, last=True)
    machine("here").pull()
    assert (folder / "events.jsonl").read_text() == "1\n2\n"


def test_later_file_replaces_the_earlier_one(machine: Callable[[str], Mirror]) -> None:
    here = machine("here")
    other_machine = machine("there")
    folder = run(here, timings__json="first")
    os.utime(folder / "timings.json", (time.time() - 60,) * 2)
    here.push(RUN, last=True)
    other_machine.pull()
    time.sleep(1.1)  # the bucket counts in seconds
    (other_machine.home / "runs" / RUN / "timings.json").write_text("second")
    other_machine.push(RUN, last=True)
    machine("here").pull()
    assert (folder / "timings.json").read_text() == "second"


def test_removed_parts_are_removed_from_the_copy(machine: Callable[[str], Mirror], s3: Server) -> None:
    here = machine("here")
    folder = run(here, tables_of_summary_of_a__parquet="a", tables_of_summary_of_b__parquet="b")
    here.push(RUN, last=True)
    (folder / "tables" / "summary" / "a.parquet").unlink()
    here.push(RUN, last=True)
    assert s3.names(f"store/runs/{RUN}/tables") == [f"store/runs/{RUN}/tables/summary/b.parquet"]


def test_only_new_files_are_copied_at_intervals(
    machine: Callable[[str], Mirror], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = machine("here")
    folder = run(here, events__jsonl="1\n")
    put: list[str] = []
    put_object = Bucket.put
    monkeypatch.setattr(Bucket, "put", lambda self, name, *parts: (put.append(name), put_object(self, name, *parts)))
    here.push(RUN)
    assert {f"runs/{RUN}/{name}" for name in ("run.json", "plan.json", "events.jsonl")} == set(put)
    put.clear()
    (folder / "events.jsonl").write_text("1\n2\n")
    here.push(RUN)
    assert put == []
    here.push(RUN, last=True)
    assert put == [f"runs/{RUN}/events.jsonl"]


def test_driver_elsewhere_is_known_while_it_lives(machine: Callable[[str], Mirror], s3: Server) -> None:
    here = machine("here")
    other_machine = machine("there")
    run(here)
    here.push(RUN, last=True)
    holder = replace(this_process(time.time()), host="other.cluster", boot="another", pid=77)
    claim = f"store/claims/{RUN}.json"
    s3.put(claim, json.dumps({"holder": asdict(holder)}).encode())
    other_machine.pull()
    folder = other_machine.home / "runs" / RUN
    holder_elsewhere = lease.holder(folder)
    assert holder_elsewhere is not None
    assert holder_elsewhere.host == "other.cluster"
    assert holder_elsewhere.pid == 77
    with pytest.raises(Held, match=r"other\.cluster"):
        other_machine.claim(RUN)
    s3.delete(claim)
    other_machine.pull()
    assert lease.holder(folder) is None


def test_without_a_server_earlier_files_are_shown(
    machine: Callable[[str], Mirror], s3: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.store.bucket.PATIENCE", 1.0)
    here = machine("here")
    fresh = machine("fresh")
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
