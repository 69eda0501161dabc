"""Damaged files of a run are detected and affect only that run.

Also covers the request stored in `run.json` and the merged logs of a sweep's cells.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import toys

from orchestrator.errors import StoreError
from orchestrator.planning.plan import Plan
from orchestrator.run_folder import other_runs, run_files
from orchestrator.run_folder.journal import Journal, MergedLog, cell_description, sweep_description
from orchestrator.spec.resolve import Cell, pin_cells, resolve_cells
from orchestrator.spec.specification import Spec
from orchestrator.store.provenance import now
from tests.support.shell import Here

RUN = ("run", "toys", "--address", "none", "parts=2")
OTHER = ("run", "toys", "--address", "none", "parts=3")
KEY = "a" * 64
TIME = "2026-01-01T00:00:00+00:00"
ASKED = Spec("toys", "three", {"label": "x"}, {"seconds": ("1", "2")}, {"tolerate": 1, "together": 4})


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store of two runs."""
    engram = Here(tmp_path_factory.mktemp("ran"))
    engram(*RUN)
    engram(*OTHER)
    return engram.folder


@pytest.fixture
def engram(two_runs: Path, tmp_path: Path) -> Here:
    shutil.copytree(two_runs, tmp_path, dirs_exist_ok=True)
    return Here(tmp_path)


@pytest.fixture
def damaged(engram: Here) -> str:
    """The run whose files are damaged."""
    return run_of(engram, 2)


@pytest.fixture
def intact(engram: Here) -> str:
    return run_of(engram, 3)


def run_of(engram: Here, parts: int) -> str:
    journals = []
    for path in (engram.folder / "engram-store" / "runs").glob("[!.]*"):
        journals.append(Journal(path))
    (run,) = (journal.run for journal in journals if parts == journal.about()["config"]["parts"])
    return run


def states(engram: Here) -> dict[str, str]:
    return {run["run"]: run["state"] for run in engram.json("runs")["runs"]}


def folder(engram: Here, run: str) -> Path:
    return engram.folder / "engram-store" / "runs" / run


def flipped(data: bytes, position: int, bit: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1 :]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("plan.json", "{}"),
        ("plan.json", "[]"),
        ("plan.json", '{"roots": {"summary": "a"}, "jobs": []}'),
        ("plan.json", '{"roots": {}, "jobs": [["a"]]}'),
        ("plan.json", '{"roots": {}, "jobs": [], "after": []}'),
        ("plan.json", "[" * 100_000),
        ("run.json", "{}"),
        ("run.json", '{"audit": 3}'),
        ("run.json", '{"audit": "toys", "cells": ["../elsewhere"]}'),
        ("run.json", '{"audit": "toys", "cells": ["a", "b"], "settings": [{}]}'),
        ("run.json", '{"audit": "toys", "created": 7}'),
    ],
)
def test_damaged_file_stops_only_its_run(engram: Here, damaged: str, intact: str, name: str, text: str) -> None:
    path = folder(engram, damaged) / name
    path.write_text(text)
    messages = set()
    for command in (RUN, ("status", damaged), ("resume", damaged)):
        messages.add(engram(*command, code=1).stderr)
    (line,) = messages
    assert line.startswith(f"engram: cannot read {path}: ")
    assert line.endswith("start the run again, which reuses the stored results\n")
    assert line.count("\n") == 1
    assert path.read_text() == text
    assert line == engram("runs").stderr
    assert states(engram) == {damaged: "unreadable", intact: "finished"}
    assert engram.json(*OTHER)["jobs"]["done"] == 0
    path.parent.rename(engram.folder / "away")
    assert engram.json(*RUN)["jobs"] == {"planned": 3, "stored": 3, "done": 0, "failed": 0}


@pytest.mark.parametrize("name", ["plan.json", "run.json"])
def test_commands_agree_on_every_flipped_bit(engram: Here, damaged: str, name: str) -> None:
    path = folder(engram, damaged) / name
    good = path.read_bytes()
    chance = random.Random(0)
    for _ in range(5):
        path.write_bytes(flipped(good, chance.randrange(len(good)), chance.randrange(8)))
        messages = set()
        for command in (RUN, ("status", damaged), ("resume", damaged)):
            messages.add(engram(*command, code=1).stderr)
        assert len(messages) == 1


@pytest.mark.parametrize("name", ["plan.json", "run.json"])
def test_no_flipped_bit_changes_the_content(tmp_path: Path, name: str) -> None:
    journal = Journal(tmp_path / "toys-1")
    journal.create({"audit": "toys", "config": {"parts": 2}}, Plan.from_roots(toys.plan(toys.Config(parts=2))))
    path = journal.folder / name
    good = path.read_bytes()

    def read() -> tuple[object, ...]:
        return {**journal.about(), "sha256": None}["config"], journal.roots(), journal.tasks()

    before = read()
    for position in range(0, len(good), 7):
        path.write_bytes(flipped(good, position, position % 8))
        try:
            assert before == read()  # a flip in the digest's key leaves the content unchanged
        except StoreError:
            continue


def test_older_files_without_digest_are_read(engram: Here, damaged: str) -> None:
    for name in ("plan.json", "run.json"):
        path = folder(engram, damaged) / name
        path.write_text(json.dumps(run_files.unseal(path.read_bytes())))
        assert b"sha256" not in path.read_bytes()
    assert engram.json("status", damaged)["state"] == "finished"
    assert engram.json("resume", damaged, "--address", "none")["jobs"]["done"] == 0


@pytest.mark.parametrize("indent", [None, 2])
def test_sealed_json_detects_every_relevant_change(indent: int | None) -> None:
    value = {"a": [1, {"b": "ü"}], "c": "}"}
    data = run_files.seal(value, indent)
    assert value == run_files.unseal(data)
    assert set(json.loads(data)) == {*value, "sha256"}
    for position in range(len(data)):
        for bit in range(8):
            try:
                unsealed = run_files.unseal(flipped(data, position, bit))
            except ValueError:
                continue
            assert value == {name: unsealed[name] for name in value}


@pytest.mark.parametrize(
    "event",
    [
        [1],
        1,
        None,
        {},
        {"event": "done"},
        {"event": "done", "time": "yesterday"},
        {"event": "done", "time": TIME},
        {"event": "finished", "time": TIME, "jobs": [1], "note": 3},
        {"event": "failed", "time": TIME, "key": ["a"]},
        {"event": "tolerated", "time": TIME, "keys": 3},
    ],
)
def test_invalid_event_line_is_skipped(engram: Here, damaged: str, intact: str, event: object) -> None:
    log = folder(engram, damaged) / "events.jsonl"
    line = json.dumps(event)
    log.write_text(f"{line}\n{log.read_text()}{line}\n{'[' * 100_000}\nnot json\n")
    assert states(engram) == {damaged: "finished", intact: "finished"}
    for command in ("status", damaged, "--watch"), ("explain", damaged), ("resume", damaged, "--address", "none"):
        engram(*command)


@pytest.mark.parametrize(
    "text", ["[]", "3", '{"a": 1}', '{"a": ["x"], "b": [null, -1, true, Infinity]}', "[" * 100_000, "\x00"]
)
def test_invalid_timings_are_ignored(engram: Here, damaged: str, intact: str, text: str) -> None:
    for run in (damaged, intact):
        (folder(engram, run) / "timings.json").write_text(text)
    assert engram.json("plan", "toys", "parts=4")["expected_seconds"] is None
    assert engram.json(*OTHER)["state"] == "finished"


def test_only_valid_timings_count(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "timings.json").write_text('{"a": [1.0, "x", 3], "b": {}, "c": []}')
    assert other_runs.mean_seconds(tmp_path) == {"a": 2.0}


def test_drivers_with_equal_process_numbers_share_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in two containers, which both number their processes from 1."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    plan = Plan.from_roots(toys.plan(toys.Config(parts=2)))
    first, second = Journal(tmp_path / "toys-1"), Journal(tmp_path / "toys-1")
    seal = run_files.seal

    def interleaved(*arguments: object, **keywords: object) -> bytes:
        monkeypatch.setattr(run_files, "seal", seal)  # once: in the middle of the first the second does all of it
        second.create({"audit": "toys", "by": "second"}, plan)
        return seal(*arguments, **keywords)  # type: ignore[arg-type]

    monkeypatch.setattr(run_files, "seal", interleaved)
    first.create({"audit": "toys", "by": "first"}, plan)
    assert first.about()["by"] == "second"
    assert set(first.tasks()) == set(plan.jobs)
    assert os.listdir(tmp_path) == ["toys-1"]


@pytest.mark.parametrize(
    ("event", "is_one"),
    [
        ({"event": "started", "time": TIME, "planned": 1, "stored": 0, "tasks": {"a": 1}}, True),
        ({"event": "started", "time": TIME, "planned": "1"}, False),
        ({"event": "done", "time": TIME, "key": KEY, "task": "a", "seconds": 0.5, "worker": "here"}, True),
        ({"event": "done", "time": TIME, "key": KEY, "task": "a", "seconds": "0.5"}, False),
        ({"event": "of another version", "time": TIME, "anything": [1]}, True),
        ({"event": "stored", "time": "2026-01-01T00:00:00", "key": KEY}, False),  # of no time zone: not to be ordered
    ],
)
def test_events_require_the_fields_of_their_kind(event: dict[str, object], is_one: bool) -> None:
    assert is_one == run_files.is_event(event)


def test_last_start_is_read_despite_damaged_lines(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    started = {"event": "started", "planned": 2, "stored": 0, "tasks": {}}
    failure = {"event": "failed", "key": "a", "task": "b", "error": 'it said "event": "started"'}
    assert journal.last_start() == []
    journal.append([{"event": "finished"}])
    assert [event["event"] for event in journal.last_start()] == ["finished"]
    journal.append([started, {"event": "interrupted"}, started, failure])
    assert [event["event"] for event in journal.last_start()] == ["started", "failed"]
    with open(tmp_path / "events.jsonl", "a") as log:
        log.write('{"time": "now", "event": "started", "planned": -1}\n')
    assert [event["event"] for event in journal.last_start()] == ["started", "failed"]


def test_cell_stores_the_request_for_it_alone() -> None:
    for cell in pin_cells(resolve_cells(ASKED), {}):
        request = cell_description(cell)["asked"]
        assert request["preset"] == "three"
        assert request["sweep"] == {}
        assert request["tolerate"] == 1
        assert request["set"] == {"label": "x", **cell.setting}
        (repeated_cell,) = resolve_cells(Spec("toys", request["preset"], request["set"]))
        assert cell.config == repeated_cell.config


def test_sweep_stores_the_request_for_all_cells() -> None:
    cells = resolve_cells(ASKED)
    about = sweep_description(cells, [f"run {number}" for number in range(len(cells))])
    fields = {"set": {"label": "x"}, "sweep": {"seconds": ["1", "2"]}}
    assert about["asked"] == {"preset": "three", **fields, "tolerate": 1}
    assert [cell.setting for cell in cells] == about["settings"]


def test_mixed_specifications_store_no_request() -> None:
    cells = [*resolve_cells(Spec("toys", "few")), *resolve_cells(Spec("toys", "few", {"label": "x"}))]
    assert "asked" not in sweep_description(cells, ["a", "b"])
    assert "asked" not in cell_description(Cell("toys", cells[0].config))


@pytest.mark.parametrize(
    "specification", [[], {"set": 1}, {"sweep": {"a": "1,2"}}, {"preset": 3}, {"tolerate": "2"}, {"sweep": None}]
)
def test_invalid_request_is_damage(tmp_path: Path, specification: object) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"audit": "toys", "config": {}, "asked": specification}))
    with pytest.raises(StoreError, match="'asked' has a wrong form"):
        Journal(tmp_path).about()


def event_at(second: int, event: str, **more: Any) -> dict[str, Any]:
    return {"time": f"2026-01-01T00:00:{second:02}.000+00:00", "event": event, **more}


@pytest.fixture
def cells(tmp_path: Path) -> tuple[Journal, Journal]:
    journals = (Journal(tmp_path / "one"), Journal(tmp_path / "other"))
    for journal in journals:
        journal.folder.mkdir()
    return journals


SHARED = event_at(4, "done", key="shared", task="train", seconds=1.0)


def kinds(log: MergedLog, settled: bool = True) -> list[tuple[str, str]]:
    return [(event["event"], event.get("key", "")) for event in log.read(settled)]


def test_merged_events_are_ordered_and_unique(cells: tuple[Journal, Journal]) -> None:
    first_cell, second_cell = cells
    first_cell.append(
        [
            event_at(0, "started"),
            event_at(1, "stored", key="a"),
            event_at(1, "stored", key="b"),
            SHARED,
            event_at(6, "finished"),
        ]
    )
    # Each cell's log has its own time of when a stored result was noted.
    second_cell.append(
        [
            event_at(0, "started"),
            event_at(2, "stored", key="b"),
            event_at(3, "stored", key="c"),
            SHARED,
            event_at(5, "lost"),
        ]
    )
    stored_events = [("stored", key) for key in "abc"]
    assert kinds(MergedLog(cells)) == [
        ("started", ""),
        *stored_events,
        ("done", "shared"),
        ("lost", ""),
        ("finished", ""),
    ]


def test_result_stored_for_both_cells_appears_once(cells: tuple[Journal, Journal]) -> None:
    first_cell, second_cell = cells
    first_cell.append([event_at(0, "started"), event_at(1, "stored", results={"train": ["a", "b"]})])
    second_cell.append(
        [
            event_at(0, "started"),
            event_at(2, "stored", results={"train": ["b", "c"], "test": ["d"]}),
            event_at(3, "finished"),
        ]
    )
    unsealed = []
    for event in MergedLog(cells).read():
        if event["event"] == "stored":
            unsealed.append(event["results"])
    assert unsealed == [{"train": ["a", "b"]}, {"train": ["c"], "test": ["d"]}]


def test_last_start_is_read_by_kind(cells: tuple[Journal, Journal]) -> None:
    journal = cells[0]
    done = {"task": "train", "seconds": 1.0}
    journal.append([event_at(0, "started"), event_at(1, "done", key="aa", **done)])
    journal.append(
        [
            event_at(5, "started"),
            event_at(6, "done", key="bb", **done),
            event_at(7, "done", key="bb", **done),
            event_at(8, "lost"),
        ]
    )
    assert [event["event"] for event in journal.last_start()] == ["started", "done", "done", "lost"]
    assert [event["event"] for event in journal.last_start(("started", "lost"))] == ["started", "lost"]
    assert journal.last_computed() == {"bb"}


def test_repeated_events_of_a_later_start_appear_again(cells: tuple[Journal, Journal]) -> None:
    for journal in cells:
        journal.append([event_at(0, "started"), event_at(1, "stored", key="a"), event_at(2, "paused")])
    cells[0].append([event_at(8, "started"), event_at(9, "stored", key="a")])
    first = [("started", ""), ("stored", "a"), ("paused", "")]
    assert [*first, *first[:2]] == kinds(MergedLog(cells))


def test_log_read_in_pieces_is_complete(cells: tuple[Journal, Journal]) -> None:
    log = MergedLog(cells)
    pieces = []
    for journal in cells:
        journal.append([event_at(0, "started"), event_at(1, "stored", key="a")])
        pieces += kinds(log)
    for journal in cells:
        journal.append([SHARED])
        pieces += kinds(log)
    assert [("started", ""), ("stored", "a"), ("done", "shared")] == pieces == kinds(MergedLog(cells))


def test_events_that_may_be_preceded_are_awaited(cells: tuple[Journal, Journal]) -> None:
    cells[0].append([event_at(0, "started"), {"time": now(), "event": "lost"}])
    log = MergedLog(cells)
    assert kinds(log, settled=False) == [("started", "")]
    assert kinds(log) == [("lost", "")]


def test_single_log_is_read_in_file_order(cells: tuple[Journal, Journal]) -> None:
    events = [event_at(1, "started"), event_at(0, "stored", key="a"), event_at(0, "stored", key="a")]
    cells[0].append(events)
    log = MergedLog(cells[:1])
    assert events == log.read()
    assert (cells[0].folder / "events.jsonl").stat().st_size == log.position
    assert log.read() == []


def test_events_before_the_sweep_are_excluded(cells: tuple[Journal, Journal]) -> None:
    cells[0].append([event_at(0, "started"), event_at(1, "finished"), event_at(5, "started")])
    assert kinds(MergedLog(cells, start_time=event_at(4, "")["time"])) == [("started", "")]
