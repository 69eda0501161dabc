"""Which jobs other living runs compute, found at the cost of those that live."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import toys

from orchestrator.planning.plan import Plan
from orchestrator.run_folder.journal import Journal
from orchestrator.run_folder.other_runs import ConcurrentRuns
from orchestrator.store.lease import acquire


def run(runs: Path, name: str, parts: int) -> set[str]:
    plan = Plan.from_roots(toys.plan(toys.Config(parts=parts)))
    Journal(runs / name).create({}, plan)
    return set(plan.jobs)


def test_an_earlier_living_run_claims_what_it_shares_and_its_log_says_whether_it_does_something(tmp_path: Path) -> None:
    seconds = [0.0]
    ours = run(tmp_path, "ours", 3)
    theirs = run(tmp_path, "theirs", 2)
    with acquire([tmp_path / "theirs"]) as lease:
        neighbours = ConcurrentRuns(tmp_path, ["ours"], lease.since + 1, monotonic=lambda: seconds[0])
        [(name, (holder, shared, idle))] = neighbours.find_claims(ours).items()
        assert ("theirs", os.getpid(), ours & theirs, 0.0) == (name, holder.pid, shared, idle)
        seconds[0] = 30.0
        assert 30.0 == neighbours.find_claims(ours)["theirs"][2]
        Journal(tmp_path / "theirs").append([{"event": "done"}])
        assert 0.0 == neighbours.find_claims(ours)["theirs"][2]
    assert {} == neighbours.find_claims(ours)


def test_of_two_runs_the_later_one_leaves_to_the_earlier_one_and_not_the_other_way_round(tmp_path: Path) -> None:
    keys = run(tmp_path, "a", 2) | run(tmp_path, "b", 3)
    with acquire([tmp_path / "a"]) as one, acquire([tmp_path / "b"]) as other:
        since = {"a": one.since, "b": other.since}
        claimed = {name: set(ConcurrentRuns(tmp_path, [name], since[name]).find_claims(keys)) for name in since}
    assert {"a": set(), "b": {"a"}} == claimed


def test_runs_that_have_ended_are_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for index in range(20):
        run(tmp_path, f"ended-{index}", 2)
        acquire([tmp_path / f"ended-{index}"]).release()
    keys = run(tmp_path, "ours", 2)
    listed: list[str] = []
    whole = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: (listed.append(os.fspath(path)), whole(path))[1])
    assert {} == ConcurrentRuns(tmp_path, ["ours"], 0.0).find_claims(keys)
    assert {".drivers"} >= {Path(path).name for path in listed}
