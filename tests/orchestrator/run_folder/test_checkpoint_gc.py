"""A state goes when nobody needs it any more, and not before."""

from __future__ import annotations

import os
from pathlib import Path

import chains
import pyarrow as pa
import pytest

from orchestrator.planning.plan import Plan
from orchestrator.run_folder.journal import Journal
from orchestrator.run_folder.other_runs import CheckpointGc
from orchestrator.store import Store, open_store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "store"))


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
    assert 1 == listed.count(str(runs))
    monkeypatch.undo()
    assert {links[-1]} == store.states()
