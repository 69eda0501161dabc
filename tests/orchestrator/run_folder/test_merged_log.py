"""The logs of a sweep's cells, read as one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.run_folder.journal import Journal, MergedLog, now


def at(second: int, event: str, **more: Any) -> dict[str, Any]:
    return {"time": f"2026-01-01T00:00:{second:02}.000+00:00", "event": event, **more}


@pytest.fixture
def cells(tmp_path: Path) -> tuple[Journal, Journal]:
    journals = (Journal(tmp_path / "one"), Journal(tmp_path / "other"))
    for journal in journals:
        journal.folder.mkdir()
    return journals


SHARED = at(4, "done", key="shared", task="train", seconds=1.0)


def kinds(log: MergedLog, settled: bool = True) -> list[tuple[str, str]]:
    return [(event["event"], event.get("key", "")) for event in log.read(settled)]


def test_events_come_by_time_and_those_of_both_cells_once(cells: tuple[Journal, Journal]) -> None:
    one, other = cells
    one.append([at(0, "started"), at(1, "stored", key="a"), at(1, "stored", key="b"), SHARED, at(6, "finished")])
    # Each cell's log has its own time of when a stored result was noted.
    other.append([at(0, "started"), at(2, "stored", key="b"), at(3, "stored", key="c"), SHARED, at(5, "lost")])
    stored = [("stored", key) for key in "abc"]
    assert [("started", ""), *stored, ("done", "shared"), ("lost", ""), ("finished", "")] == kinds(MergedLog(cells))


def test_what_a_later_start_repeats_is_there_again(cells: tuple[Journal, Journal]) -> None:
    for journal in cells:
        journal.append([at(0, "started"), at(1, "stored", key="a"), at(2, "paused")])
    cells[0].append([at(8, "started"), at(9, "stored", key="a")])
    first = [("started", ""), ("stored", "a"), ("paused", "")]
    assert [*first, *first[:2]] == kinds(MergedLog(cells))


def test_a_log_read_in_pieces_is_the_log_read_at_once(cells: tuple[Journal, Journal]) -> None:
    log, pieces = MergedLog(cells), []
    for journal in cells:
        journal.append([at(0, "started"), at(1, "stored", key="a")])
        pieces += kinds(log)
    for journal in cells:
        journal.append([SHARED])
        pieces += kinds(log)
    assert [("started", ""), ("stored", "a"), ("done", "shared")] == pieces == kinds(MergedLog(cells))


def test_what_another_log_may_still_precede_is_awaited(cells: tuple[Journal, Journal]) -> None:
    cells[0].append([at(0, "started"), {"time": now(), "event": "lost"}])
    log = MergedLog(cells)
    assert [("started", "")] == kinds(log, settled=False)
    assert [("lost", "")] == kinds(log)


def test_a_single_log_is_read_as_it_stands_up_to_a_position(cells: tuple[Journal, Journal]) -> None:
    events = [at(1, "started"), at(0, "stored", key="a"), at(0, "stored", key="a")]
    cells[0].append(events)
    log = MergedLog(cells[:1])
    assert events == log.read()
    assert (cells[0].folder / "events.jsonl").stat().st_size == log.position
    assert [] == log.read()


def test_what_the_cells_did_before_there_was_a_sweep_is_not_the_sweeps(cells: tuple[Journal, Journal]) -> None:
    cells[0].append([at(0, "started"), at(1, "finished"), at(5, "started")])
    assert [("started", "")] == kinds(MergedLog(cells, since=at(4, "")["time"]))
