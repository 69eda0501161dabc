"""The links of a chain are computed in sequence, from states that the store keeps only while they are needed.

A disturbed chain gives the same tables as an uninterrupted training.
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


def training_counts(folder: Path) -> Counter[str]:
    """Count how often each epoch was trained, as `number:epoch`."""
    log = folder / "epochs.log"
    return Counter(log.read_text().split()) if log.exists() else Counter()


def each_epoch_once(models: int, epochs: int) -> Counter[str]:
    return Counter(f"{number}:{epoch}" for number in range(models) for epoch in range(1, epochs + 1))


def continued_from(store: Store, report: Report, root: str = "links") -> list[int]:
    """The epoch at which each link continued."""
    return [store.record(key)["continued_from"] for key in report.roots[root]]


def values(report: Report, root: str = "ends") -> list[int]:
    column: list[int] = report.table(root)["value"].to_pylist()
    return column


def run_in_one_link(tmp_path: Path, **fields: Any) -> Report:
    return run(open_store(str(tmp_path / "elsewhere")), link=0, **fields)


def file_of(store: Store, key: str) -> Path:
    return Path(store.location) / "states" / f"{key}.state"


def test_links_continue_without_training_an_epoch_twice(store: Store, tmp_path: Path) -> None:
    report = run(store, models=2, epochs=6, link=2, folder=str(tmp_path))
    assert report.state == "finished"
    assert each_epoch_once(2, 6) == training_counts(tmp_path)
    assert continued_from(store, report) == [0, 2, 4] * 2
    assert values(run_in_one_link(tmp_path, models=2, epochs=6)) == values(report)
    assert set() == store.states()


@pytest.mark.parametrize("together", [1, 2, 5])
def test_links_of_different_chains_share_calls(store: Store, tmp_path: Path, together: int) -> None:
    report = run(store, replace(HERE, together=together), models=5, epochs=3, folder=str(tmp_path))
    assert each_epoch_once(5, 3) == training_counts(tmp_path)
    assert {store.record(key)["together"] for key in report.roots["links"][:1]} <= {together}
    assert values(run_in_one_link(tmp_path, models=5, epochs=3)) == values(report)


def test_chain_is_finished_before_others_begin(store: Store) -> None:
    states_over_time: list[set[str]] = []
    cell = Cell("chains", chains.Config(models=3, epochs=3))
    report = start([cell], store, replace(HERE, together=1), lambda _: states_over_time.append(store.states()))
    assert report.state == "finished"
    assert max(map(len, states_over_time)) <= 3  # at most one for each chain, and few chains at one time


@pytest.mark.parametrize("failing_epoch", [1, 3, 5])
def test_killed_run_continues_from_last_stored_link(store: Store, tmp_path: Path, failing_epoch: int) -> None:
    fields: dict[str, Any] = {
        "models": 1,
        "epochs": 6,
        "link": 2,
        "trouble": "die",
        "at": failing_epoch,
        "folder": str(tmp_path),
    }
    driver = multiprocessing.get_context("spawn").Process(target=run, args=(store,), kwargs=fields)
    driver.start()
    driver.join()
    assert driver.exitcode == -signal.SIGKILL
    assert (1 if failing_epoch > 1 else 0) == len(store.states())
    (tmp_path / "mended").touch()
    report = run(store, **fields)
    assert report.state == "finished"
    assert training_counts(tmp_path) == each_epoch_once(1, 6)
    assert continued_from(store, report) == [0, 2, 4]
    assert set() == store.states()


@pytest.mark.parametrize("harm", ["flip", "cut", "empty", "swap", "folder", "delete"])
def test_damaged_state_is_reported_and_recomputed(store: Store, tmp_path: Path, harm: str) -> None:
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
    assert report.state == "finished"
    assert continued_from(store, report) == [0, 0]
    assert values(run_in_one_link(tmp_path, models=1, epochs=4)) == values(report)
    lines = [event["line"] for event in events if event["event"] == "told"]
    assert (0 if harm == "delete" else 1) == len(lines)
    assert all(line.startswith(f"state {first} was damaged: ") and "\n" not in line for line in lines)
    if harm != "folder":
        assert set() == store.states()


def test_missing_state_falls_back_to_earlier_link(store: Store, tmp_path: Path) -> None:
    fields: dict[str, Any] = {"models": 1, "epochs": 3, "folder": str(tmp_path), "trouble": "raise", "at": 3}
    states: dict[str, bytes] = {}
    cell = Cell("chains", chains.Config(**fields))
    start([cell], store, HERE, lambda _: states.update({key: store.state(key) for key in store.states()}))
    first, second, _ = run(store, **fields).roots["links"]
    store.remove_state(second)
    store.write_state(first, states[first])
    (tmp_path / "mended").touch()
    report = run(store, **fields)
    assert continued_from(store, report)[-1] == 1
    assert set() == store.states()


def test_links_after_a_failed_one_run_later(store: Store, tmp_path: Path) -> None:
    fields: dict[str, Any] = {"models": 2, "epochs": 4, "folder": str(tmp_path), "trouble": "raise", "at": 2}
    report = run(store, **fields)
    assert report.state == "failed"
    assert report.exit_code == 3
    assert report.jobs == {"planned": 9, "stored": 5, "done": 5, "failed": 1}
    assert {error.partition(": ")[2] for _, _, error in report.failures} == {"epoch 2 cannot be had"}
    # the unfinished run needs it
    assert store.states() == {report.roots["links"][0]}
    (tmp_path / "mended").touch()
    resumed = resume(report.run, store, HERE)
    assert resumed.state == "finished"
    assert training_counts(tmp_path) == each_epoch_once(2, 4)
    assert continued_from(store, resumed) == [0, 1, 2, 3] * 2
    assert set() == store.states()


def test_tolerated_failure_leaves_out_its_later_links(store: Store, tmp_path: Path) -> None:
    fields: dict[str, Any] = {"models": 2, "epochs": 4, "folder": str(tmp_path), "trouble": "raise", "at": 2}
    report = run(store, replace(HERE, tolerate=1), **fields)
    assert report.table("summary")["estimate"].to_pylist() == [11.0]  # 1 of the one, 1 + 2 + 3 + 4 of the other
    assert Counter({"0:1": 1, **{f"1:{epoch}": 1 for epoch in range(1, 5)}}) == training_counts(tmp_path)


def test_kept_state_is_extended_by_another_run(store: Store, tmp_path: Path) -> None:
    short = run(store, KEEPING, models=2, epochs=2, folder=str(tmp_path))
    assert set(short.roots["ends"]) == store.states()
    longer = run(store, models=2, epochs=4, folder=str(tmp_path))
    assert continued_from(store, longer) == [0, 1, 2, 3] * 2
    assert training_counts(tmp_path) == each_epoch_once(2, 4)
    assert set() == store.states()


def test_kept_unbroken_training_can_be_extended(store: Store, tmp_path: Path) -> None:
    run(store, KEEPING, models=1, epochs=3, link=0, folder=str(tmp_path))
    longer = run(store, models=1, epochs=6, link=3, folder=str(tmp_path))
    assert training_counts(tmp_path) == each_epoch_once(1, 6)
    assert continued_from(store, longer) == [0, 3]


def test_run_without_keep_removes_earlier_states(store: Store) -> None:
    run(store, KEEPING, epochs=2)
    assert len(store.states()) == 2
    run(store, KEEPING, epochs=2)
    assert len(store.states()) == 2
    run(store, epochs=2)
    assert set() == store.states()


def test_state_stays_while_an_unfinished_run_needs_it(store: Store, tmp_path: Path) -> None:
    fields: dict[str, Any] = {"models": 1, "folder": str(tmp_path), "trouble": "raise", "at": 3}
    longer = run(store, epochs=4, **fields)
    short = run(store, epochs=2, **fields)
    assert longer.state == "failed"
    assert short.state == "finished"
    assert store.states() == {short.roots["ends"][0]}
    (tmp_path / "mended").touch()
    assert resume(longer.run, store, HERE).state == "finished"
    assert each_epoch_once(1, 4) == training_counts(tmp_path)
    assert set() == store.states()


def test_store_that_refuses_a_state_pauses_the_run(
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
    assert paused.state == "paused"
    assert paused.jobs["done"] == 0
    assert "No space left" in paused.note
    monkeypatch.undo()
    assert run(store, **fields).state == "finished"


def test_link_without_state_is_not_recomputed(store: Store, tmp_path: Path) -> None:
    run(store, models=1, epochs=2, folder=str(tmp_path))
    longer = run(store, models=1, epochs=4, folder=str(tmp_path))
    assert continued_from(store, longer) == [0, 1, 0, 3]
    assert values(run_in_one_link(tmp_path, models=1, epochs=4)) == values(longer)


def test_chain_runs_with_a_bucket(s3: Server, tmp_path: Path) -> None:
    store = open_store(f"s3://{BUCKET}/audits")
    fields: dict[str, Any] = {"models": 1, "epochs": 3, "folder": str(tmp_path), "trouble": "raise", "at": 3}
    failed = run(store, **fields)
    assert store.states() == {failed.roots["links"][1]}
    (tmp_path / "mended").touch()
    report = run(store, **fields)
    assert continued_from(store, report) == [0, 1, 2]
    assert training_counts(tmp_path) == each_epoch_once(1, 3)
    assert set() == store.states()
