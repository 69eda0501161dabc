"""Times of earlier jobs predict those of similar jobs.

The jobs that other running drivers compute are found by reading only their folders. A state is removed as soon as no
run needs it.
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


def test_timings_of_a_run_are_known_later(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    start(
        [Cell("toys", toys.Config(parts=5, seconds=0.1))], store, Execution(address="none", mlflow="off", report=False)
    )
    mean_seconds = other_runs.mean_seconds(store.folder("runs"))
    (part,) = (seconds for group, seconds in mean_seconds.items() if group.startswith("toys.part"))
    assert part > 0.09


def run(runs: Path, name: str, parts: int) -> set[str]:
    plan = Plan.from_roots(toys.plan(toys.Config(parts=parts)))
    Journal(runs / name).create({}, plan)
    return set(plan.jobs)


def test_earlier_run_claims_shared_jobs_and_shows_activity(tmp_path: Path) -> None:
    seconds = [0.0]
    our_keys = run(tmp_path, "ours", 3)
    their_keys = run(tmp_path, "theirs", 2)
    with acquire([tmp_path / "theirs"]) as lease:
        neighbours = ConcurrentRuns(tmp_path, ["ours"], lease.since + 1, monotonic=lambda: seconds[0])
        [(name, (holder, shared, idle))] = neighbours.find_claims(our_keys).items()
        assert name == "theirs"
        assert holder.pid == os.getpid()
        assert shared == our_keys & their_keys
        assert idle == 0.0
        seconds[0] = 30.0
        assert neighbours.find_claims(our_keys)["theirs"][2] == 30.0
        Journal(tmp_path / "theirs").append([{"event": "done"}])
        assert neighbours.find_claims(our_keys)["theirs"][2] == 0.0
    assert neighbours.find_claims(our_keys) == {}


def test_later_run_defers_to_the_earlier_one(tmp_path: Path) -> None:
    keys = run(tmp_path, "a", 2) | run(tmp_path, "b", 3)
    with acquire([tmp_path / "a"]) as first_lease, acquire([tmp_path / "b"]) as second_lease:
        since = {"a": first_lease.since, "b": second_lease.since}
        claimed = {}
        for name in since:
            claimed[name] = set(ConcurrentRuns(tmp_path, [name], since[name]).find_claims(keys))
    assert claimed == {"a": set(), "b": {"a"}}


def test_finished_runs_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for index in range(20):
        run(tmp_path, f"ended-{index}", 2)
        acquire([tmp_path / f"ended-{index}"]).release()
    keys = run(tmp_path, "ours", 2)
    listed_folders: list[str] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: (listed_folders.append(os.fspath(path)), scandir(path))[1])
    assert ConcurrentRuns(tmp_path, ["ours"], 0.0).find_claims(keys) == {}
    assert {Path(path).name for path in listed_folders} <= {".drivers"}


def plan_chain(store: Store, run: str, epochs: int) -> tuple[Plan, tuple[str, ...]]:
    """A run of one training in links of an epoch; its plan and the keys of its links."""
    plan = Plan.from_roots(chains.plan(chains.Config(models=1, epochs=epochs)))
    Journal(store.folder("runs") / run).create({}, plan)
    return plan, plan.roots["links"]


def store_links(store: Store, *keys: str) -> set[str]:
    """Results and states under these keys; all keys that are stored."""
    for key in keys:
        store.write(key, pa.table({"epoch": [1]}), {})
        store.write_state(key, b"weights")
    return store.keys()


def test_state_goes_once_its_next_link_is_stored(store: Store) -> None:
    plan, (first, second, _) = plan_chain(store, "a", 3)
    done = store_links(store, first, second)
    CheckpointGc(store, store.folder("runs"), ["a"], keep=False).pass_over(plan, second, done)
    assert store.states() == {second}


def test_state_stays_while_another_run_needs_it(store: Store) -> None:
    short, links = plan_chain(store, "short", 2)
    states = CheckpointGc(store, store.folder("runs"), ["short"], keep=False)
    done = store_links(store, *links)
    plan_chain(store, "long", 3)  # planned after the first look, as another start may do at any time
    states.clear(short, done)
    assert store.states() == {links[-1]}
    _, longer = plan_chain(store, "longer", 4)
    store_links(store, longer[2])
    states.clear(short, store.keys())
    # the third link is stored by now, and the fourth continues from it
    assert store.states() == {longer[2]}


def test_final_state_stays_on_request(store: Store) -> None:
    plan, links = plan_chain(store, "a", 2)
    done = store_links(store, *links)
    CheckpointGc(store, store.folder("runs"), ["a"], keep=True).clear(plan, done)
    assert store.states() == {links[-1]}


def test_runs_are_listed_again_only_for_new_ones(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, links = plan_chain(store, "a", 4)
    runs = store.folder("runs")
    plan_chain(store, "b", 2)
    states = CheckpointGc(store, runs, ["a"], keep=False)
    done = store_links(store, *links)
    listed_folders: list[str] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: (listed_folders.append(os.fspath(path)), scandir(path))[1])
    for link in links:
        states.pass_over(plan, link, done)
    assert listed_folders.count(str(runs)) == 1
    monkeypatch.undo()
    assert store.states() == {links[-1]}
