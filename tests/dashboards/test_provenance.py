"""How a run's results were computed, according to their records, and what each of its starts did."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dashboards.provenance import Provenance, gather, starts
from dashboards.run import Run, open_run
from orchestrator.run_folder.progress import seconds_of
from orchestrator.runs.lifecycle import resume
from orchestrator.spec.specification import Spec
from orchestrator.store import Store, open_store
from tests.dashboards import pages

RECORD = {
    "task": "toys.part",
    "seconds": 1.5,
    "finished": "2026-11-21T09:00:00.000+00:00",
    "together": 1,
    "worker": "here:1",
    "commit": "abc",
    "versions": {"python": "3.12.1", "torch": "2.15.0"},
    "device": "x86_64",
    "threads": 2,
}


def gathered(store: Store, *records: dict[str, Any]) -> Provenance:
    keys = [f"{number:064x}" for number in range(len(records))]
    for number, (key, record) in enumerate(zip(keys, records, strict=True)):
        store.write(key, pa.table({"number": [number]}), RECORD | record)
    return gather(store, keys)


def test_processes_and_calls_make_no_difference(store: Store) -> None:
    another = {"worker": "here:2", "together": 4, "seconds": 9.5, "finished": "2026-11-21T09:01:00.000+00:00"}
    provenance = gathered(store, {}, another, {"worker": "there:1"})
    assert provenance.differing == ()
    assert provenance.hosts == {"here": 2, "there": 1}
    assert provenance.workers == 3
    assert provenance.together == (1, 4)
    assert provenance.seconds == {"toys.part": 12.5}
    assert provenance.last == "2026-11-21T09:01:00.000+00:00"
    assert provenance.common["torch"] == "2.15.0"


def test_speed_makes_no_difference(store: Store) -> None:
    record = {"way": "graph", "stack": 32, "steps_per_second": 9_000_000, "bytes_per_member": 10, "device_bytes": 99}
    another = {"stack": 7, "steps_per_second": 8_123_456.5, "bytes_per_member": 11, "device_bytes": 98, "busy": 1}
    another |= {"continued_from": 3}  # epoch of a checkpoint, which makes no difference
    provenance = gathered(store, record, record | another, {})
    assert provenance.differing == ()
    assert provenance.common["way"] == "graph"
    assert not {"stack", "busy", "steps_per_second"} & set(provenance.common)


@pytest.mark.parametrize(
    ("name", "difference"),
    [
        ("torch", {"versions": {"python": "3.12.1", "torch": "2.14.0"}}),
        ("threads", {"threads": 1}),
        ("device", {"device": "NVIDIA H200"}),
        ("commit", {"commit": "def"}),
        ("way", {"way": "stack"}),
    ],
)
def test_jobs_computed_differently_are_counted_separately(store: Store, name: str, difference: dict[str, Any]) -> None:
    common = {"way": "loop"} if name == "way" else {}
    provenance = gathered(store, common, difference, common)
    assert (name,) == provenance.differing
    assert [way.jobs for way in provenance.ways] == [2, 1]
    assert name not in provenance.common


def test_job_without_torch_has_no_device(store: Store) -> None:
    light = {name: value for name, value in RECORD.items() if name != "threads"} | {"device": "cpu"}
    store.write("a" * 64, pa.table({"number": [0]}), light)
    store.write("b" * 64, pa.table({"number": [1]}), RECORD)
    provenance = gather(store, ["a" * 64, "b" * 64])
    assert provenance.differing == ()
    assert [way.jobs for way in provenance.ways] == [2]
    assert provenance.common["device"] == "x86_64"


def test_lost_result_is_counted_as_unread(store: Store) -> None:
    assert gather(store, ["c" * 64]).unread == 1


def test_two_ways_of_computation_have_a_notice(store: Store, tmp_path: Path) -> None:
    run = pages.ran(store, Spec("toys", "few"))
    assert "computed in" not in pages.words(pages.draw(run))
    moved = open_store(tmp_path / "moved")
    for number, key in enumerate(run.journal.tasks()):
        record = RECORD | {"versions": {"torch": "2.14.0" if number < 2 else "2.15.0"}}
        moved.write(key, store.read(key), record)
    shutil.copytree(run.journal.folder, moved.folder("runs") / run.name)
    page_text = pages.words(pages.draw(open_run(moved, run.name)))
    notice = "These results were computed in 2 ways: 5 jobs with torch 2.15.0; 2 jobs with torch 2.14.0."
    assert notice in page_text
    assert page_text.index(notice) < page_text.index("sum: 15")


def test_resumed_run_has_two_starts(store: Store, tmp_path: Path) -> None:
    run = pages.ran(store, Spec("toys", "few", {"trouble": "raise", "at": 2, "folder": str(tmp_path)}))
    (tmp_path / "mended").touch()
    resume(run.name, store, pages.HERE)
    first, second = starts(open_run(store, run.name))
    assert first.ended == "failed"
    assert first.progress.done == 5
    assert first.progress.failed == 1
    assert second.ended == "finished"
    assert second.progress.stored == 5
    assert second.progress.done == 2
    assert second.progress.failed == 0


def test_killed_start_ends_at_last_event(store: Store) -> None:
    run = pages.ran(store, Spec("toys", "few"))
    log = run.journal.folder / "events.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    done = [index for index, line in enumerate(lines) if '"event": "done"' in line]
    log.write_text("".join(lines[: done[2] + 1]))
    (only,) = starts(run)
    assert only.ended == ""
    assert only.progress.done == 3
    first = seconds_of(json.loads(lines[0])["time"])
    last = seconds_of(json.loads(lines[done[2]])["time"])
    assert only.progress.elapsed == pytest.approx(last - first, abs=1e-6)


def test_shared_jobs_of_sweep_count_once(store: Store) -> None:
    swept = pages.ran(store, Spec("toys", "few", sweep={"parts": ["2", "3"]}))
    (only,) = starts(swept)
    assert only.ended == "finished"
    assert only.progress.planned == 5
    assert only.progress.done == 5


def test_models_per_minute_come_from_the_log(smoke: Run) -> None:
    (only, *_) = starts(smoke)
    assert only.progress.models_per_minute is not None
    assert only.progress.models == 6  # three canaries and their twins
