"""What jobs took tells what others of their kind will take.

Which jobs other living runs compute, found at the cost of those that live.
A state goes when nobody needs it any more, and not before.
"""

from __future__ import annotations

import os
from pathlib import Path

import chains
import pyarrow as pa
import pytest
import toys

from orchestrator.planning.plan import Plan
from orchestrator.run_folder import other_runs
from orchestrator.run_folder.journal import Journal
from orchestrator.run_folder.other_runs import CheckpointGc, ConcurrentRuns
from orchestrator.runs.lifecycle import start
from orchestrator.spec.resolve import Cell
from orchestrator.spec.specification import Execution
from orchestrator.store import Store, open_store
from orchestrator.store.lease import acquire


def test_a_runs_timings_are_known_to_the_next(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    start(
        [Cell("toys", toys.Config(parts=5, seconds=0.1))], store, Execution(address="none", mlflow="off", report=False)
    )
    known = other_runs.mean_seconds(store.folder("runs"))
    (part,) = (seconds for group, seconds in known.items() if group.startswith("toys.part"))
    assert part > 0.09


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
        assert neighbours.find_claims(ours)["theirs"][2] == 30.0
        Journal(tmp_path / "theirs").append([{"event": "done"}])
        assert neighbours.find_claims(ours)["theirs"][2] == 0.0
    assert neighbours.find_claims(ours) == {}


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
    assert ConcurrentRuns(tmp_path, ["ours"], 0.0).find_claims(keys) == {}
    assert {".drivers"} >= {Path(path).name for path in listed}


def planned(store: Store, run: str, epochs: int) -> tuple[Plan, tuple[str, ...]]:
    """A run of one training in links of an epoch; its plan and the keys of its links."""
    plan = Plan.from_roots(chains.plan(chains.Config(models=1, epochs=epochs)))
    Journal(store.folder("runs") / run).create({}, plan)
    return plan, plan.roots["links"]


def stored(store: Store, *keys: str) -> set[str]:
    """Results and states under these keys; all keys that are stored."""
    for key in keys:
        store.write(key, pa.table({"epoch": [1]}), {})
        store.write_state(key, b"weights")
    return store.keys()


def test_the_state_that_a_link_went_on_from_goes_when_the_link_is_stored(store: Store) -> None:
    plan, (first, second, _) = planned(store, "a", 3)
    done = stored(store, first, second)
    CheckpointGc(store, store.folder("runs"), ["a"], keep=False).pass_over(plan, second, done)
    assert {second} == store.states()


def test_a_state_stays_while_another_run_is_to_go_on_from_it(store: Store) -> None:
    short, links = planned(store, "short", 2)
    states = CheckpointGc(store, store.folder("runs"), ["short"], keep=False)
    done = stored(store, *links)
    planned(store, "long", 3)  # planned after the first look, as another start may do at any time
    states.clear(short, done)
    assert {links[-1]} == store.states()
    _, longer = planned(store, "longer", 4)
    stored(store, longer[2])
    states.clear(short, store.keys())
    assert {longer[2]} == store.states()  # the third link is stored by now, and is the one that is gone on from


def test_what_a_chain_ends_with_stays_where_that_is_asked_for(store: Store) -> None:
    plan, links = planned(store, "a", 2)
    done = stored(store, *links)
    CheckpointGc(store, store.folder("runs"), ["a"], keep=True).clear(plan, done)
    assert {links[-1]} == store.states()


def test_runs_are_listed_again_only_when_there_is_a_new_one(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, links = planned(store, "a", 4)
    runs = store.folder("runs")
    planned(store, "b", 2)
    states = CheckpointGc(store, runs, ["a"], keep=False)
    done = stored(store, *links)
    listed: list[str] = []
    whole = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: (listed.append(os.fspath(path)), whole(path))[1])
    for link in links:
        states.pass_over(plan, link, done)
    assert listed.count(str(runs)) == 1
    monkeypatch.undo()
    assert {links[-1]} == store.states()
