"""The links of a chain are computed one after another from the states that the store keeps for them, and for no longer.

However a chain is disturbed, its tables are those of a training that never stopped.
"""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import chains
import pytest

from orchestrator.runs.lifecycle import resume, start
from orchestrator.runs.report import Report
from orchestrator.spec.resolve import Cell
from orchestrator.spec.specification import Execution
from orchestrator.store import Store, atomic_write, open_store
from tests.support.s3 import BUCKET, Server

HERE = Execution(address="none", mlflow="off", report=False)
KEEPING = replace(HERE, keep="state")


def run(
    store: Store, execution: Execution = HERE, events: list[Mapping[str, Any]] | None = None, **fields: Any
) -> Report:
    observe = None if events is None else events.append
    return start([Cell("chains", chains.Config(**fields))], store, execution, observe)


def trained(folder: Path) -> Counter[str]:
    """How often each epoch was really trained, as `number:epoch`."""
    log = folder / "epochs.log"
    return Counter(log.read_text().split()) if log.exists() else Counter()


def once(models: int, epochs: int) -> Counter[str]:
    return Counter(f"{number}:{epoch}" for number in range(models) for epoch in range(1, epochs + 1))


def continued(store: Store, report: Report, root: str = "links") -> list[int]:
    """From which epoch each link went on."""
    return [store.record(key)["continued_from"] for key in report.roots[root]]


def values(report: Report, root: str = "ends") -> list[int]:
    found: list[int] = report.table(root)["value"].to_pylist()
    return found


def unbroken(tmp_path: Path, **fields: Any) -> Report:
    return run(open_store(str(tmp_path / "elsewhere")), link=0, **fields)


def file_of(store: Store, key: str) -> Path:
    return Path(store.location) / "states" / f"{key}.state"


def test_each_link_goes_on_from_the_one_before_and_no_epoch_is_trained_twice(store: Store, tmp_path: Path) -> None:
    report = run(store, models=2, epochs=6, link=2, folder=str(tmp_path))
    assert report.state == "finished"
    assert once(2, 6) == trained(tmp_path)
    assert continued(store, report) == [0, 2, 4] * 2
    assert values(unbroken(tmp_path, models=2, epochs=6)) == values(report)
    assert set() == store.states()


@pytest.mark.parametrize("together", [1, 2, 5])
def test_links_of_different_chains_share_calls(store: Store, tmp_path: Path, together: int) -> None:
    report = run(store, replace(HERE, together=together), models=5, epochs=3, folder=str(tmp_path))
    assert once(5, 3) == trained(tmp_path)
    assert {together} >= {store.record(key)["together"] for key in report.roots["links"][:1]}
    assert values(unbroken(tmp_path, models=5, epochs=3)) == values(report)


def test_a_chain_is_finished_before_others_begin(store: Store) -> None:
    seen: list[set[str]] = []
    cell = Cell("chains", chains.Config(models=3, epochs=3))
    report = start([cell], store, replace(HERE, together=1), lambda _: seen.append(store.states()))
    assert report.state == "finished"
    assert max(map(len, seen)) <= 3  # not more than one for each chain, and few chains at one time


@pytest.mark.parametrize("at", [1, 3, 5])
def test_a_killed_run_goes_on_from_the_last_link_that_was_stored(store: Store, tmp_path: Path, at: int) -> None:
    fields: dict[str, Any] = {"models": 1, "epochs": 6, "link": 2, "trouble": "die", "at": at, "folder": str(tmp_path)}
    driver = multiprocessing.get_context("spawn").Process(target=run, args=(store,), kwargs=fields)
    driver.start()
    driver.join()
    assert driver.exitcode == -signal.SIGKILL
    assert (1 if at > 1 else 0) == len(store.states())
    (tmp_path / "mended").touch()
    report = run(store, **fields)
    assert ("finished", once(1, 6)) == (report.state, trained(tmp_path))
    assert continued(store, report) == [0, 2, 4]
    assert set() == store.states()


@pytest.mark.parametrize("harm", ["flip", "cut", "empty", "swap", "folder", "delete"])
def test_a_harmed_state_is_as_good_as_none_and_said_in_a_line(store: Store, tmp_path: Path, harm: str) -> None:
    fields: dict[str, Any] = {"models": 1, "epochs": 4, "link": 2, "folder": str(tmp_path)}
    failed = run(store, **fields, trouble="raise", at=3)
    first, last = failed.roots["links"]
    path = file_of(store, first)
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    if harm == "swap":
        store.write_state(last, store.state(first))
        file_of(store, last).replace(path)
    elif harm == "folder":
        path.unlink()
        path.mkdir()
    elif harm == "delete":
        path.unlink()
    else:
        path.write_bytes({"flip": data, "cut": data[:-1], "empty": b""}[harm])
    (tmp_path / "mended").touch()
    events: list[Mapping[str, Any]] = []
    report = run(store, events=events, **fields, trouble="raise", at=3)
    assert (report.state, continued(store, report)) == ("finished", [0, 0])
    assert values(unbroken(tmp_path, models=1, epochs=4)) == values(report)
    lines = [event["line"] for event in events if event["event"] == "told"]
    assert (0 if harm == "delete" else 1) == len(lines)
    assert all(line.startswith(f"state {first} was damaged: ") and "\n" not in line for line in lines)
    if harm != "folder":
        assert set() == store.states()


def test_without_the_nearest_state_a_link_goes_on_from_one_further_back(store: Store, tmp_path: Path) -> None:
    fields: dict[str, Any] = {"models": 1, "epochs": 3, "folder": str(tmp_path), "trouble": "raise", "at": 3}
    states: dict[str, bytes] = {}
    cell = Cell("chains", chains.Config(**fields))
    start([cell], store, HERE, lambda _: states.update({key: store.state(key) for key in store.states()}))
    first, second, _ = run(store, **fields).roots["links"]
    store.remove_state(second)
    store.write_state(first, states[first])
    (tmp_path / "mended").touch()
    report = run(store, **fields)
    assert continued(store, report)[-1] == 1
    assert set() == store.states()


def test_links_after_a_failed_one_are_not_run_and_go_on_from_its_start_once_it_is_mended(
    store: Store, tmp_path: Path
) -> None:
    fields: dict[str, Any] = {"models": 2, "epochs": 4, "folder": str(tmp_path), "trouble": "raise", "at": 2}
    report = run(store, **fields)
    assert (report.state, report.exit_code) == ("failed", 3)
    assert report.jobs == {"planned": 9, "stored": 5, "done": 5, "failed": 1}
    assert {"epoch 2 cannot be had"} == {error.partition(": ")[2] for _, _, error in report.failures}
    assert {report.roots["links"][0]} == store.states()  # a run that is not finished needs it
    (tmp_path / "mended").touch()
    again = resume(report.run, store, HERE)
    assert ("finished", once(2, 4)) == (again.state, trained(tmp_path))
    assert continued(store, again) == [0, 1, 2, 3] * 2
    assert set() == store.states()


def test_where_a_failed_link_is_tolerated_the_tables_go_without_those_after_it(store: Store, tmp_path: Path) -> None:
    fields: dict[str, Any] = {"models": 2, "epochs": 4, "folder": str(tmp_path), "trouble": "raise", "at": 2}
    report = run(store, replace(HERE, tolerate=1), **fields)
    assert report.table("summary")["estimate"].to_pylist() == [11.0]  # 1 of the one, 1 + 2 + 3 + 4 of the other
    assert Counter({"0:1": 1, **{f"1:{epoch}": 1 for epoch in range(1, 5)}}) == trained(tmp_path)


def test_a_kept_state_lets_another_run_train_longer(store: Store, tmp_path: Path) -> None:
    short = run(store, KEEPING, models=2, epochs=2, folder=str(tmp_path))
    assert set(short.roots["ends"]) == store.states()
    longer = run(store, models=2, epochs=4, folder=str(tmp_path))
    assert ([0, 1, 2, 3] * 2, once(2, 4)) == (continued(store, longer), trained(tmp_path))
    assert set() == store.states()


def test_an_unbroken_training_can_be_kept_and_trained_longer_too(store: Store, tmp_path: Path) -> None:
    run(store, KEEPING, models=1, epochs=3, link=0, folder=str(tmp_path))
    longer = run(store, models=1, epochs=6, link=3, folder=str(tmp_path))
    assert (once(1, 6), [0, 3]) == (trained(tmp_path), continued(store, longer))


def test_without_keep_the_states_of_an_earlier_run_with_it_go(store: Store) -> None:
    run(store, KEEPING, epochs=2)
    assert len(store.states()) == 2
    run(store, KEEPING, epochs=2)
    assert len(store.states()) == 2
    run(store, epochs=2)
    assert set() == store.states()


def test_a_state_stays_as_long_as_another_unfinished_run_needs_it(store: Store, tmp_path: Path) -> None:
    fields: dict[str, Any] = {"models": 1, "folder": str(tmp_path), "trouble": "raise", "at": 3}
    longer = run(store, epochs=4, **fields)
    short = run(store, epochs=2, **fields)
    assert (longer.state, short.state) == ("failed", "finished")
    assert {short.roots["ends"][0]} == store.states()
    (tmp_path / "mended").touch()
    assert resume(longer.run, store, HERE).state == "finished"
    assert (once(1, 4), set()) == (trained(tmp_path), store.states())


def test_a_store_that_cannot_take_a_state_is_a_pause(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields: dict[str, Any] = {"models": 1, "epochs": 3, "folder": str(tmp_path)}
    put = atomic_write.replace

    def full(tmp: Path, path: Path, *parts: bytes) -> None:
        if path.suffix == ".state":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        put(tmp, path, *parts)

    monkeypatch.setattr(atomic_write, "replace", full)
    paused = run(store, **fields)
    assert (paused.state, paused.jobs["done"]) == ("paused", 0)
    assert "No space left" in paused.note
    monkeypatch.undo()
    assert run(store, **fields).state == "finished"


def test_a_link_stored_without_a_state_is_not_computed_again_for_it(store: Store, tmp_path: Path) -> None:
    run(store, models=1, epochs=2, folder=str(tmp_path))
    longer = run(store, models=1, epochs=4, folder=str(tmp_path))
    assert continued(store, longer) == [0, 1, 0, 3]
    assert values(unbroken(tmp_path, models=1, epochs=4)) == values(longer)


def test_a_chain_runs_in_a_store_elsewhere(s3: Server, tmp_path: Path) -> None:
    store = open_store(f"s3://{BUCKET}/audits")
    fields: dict[str, Any] = {"models": 1, "epochs": 3, "folder": str(tmp_path), "trouble": "raise", "at": 3}
    failed = run(store, **fields)
    assert {failed.roots["links"][1]} == store.states()
    (tmp_path / "mended").touch()
    report = run(store, **fields)
    assert ([0, 1, 2], once(1, 3)) == (continued(store, report), trained(tmp_path))
    assert set() == store.states()
