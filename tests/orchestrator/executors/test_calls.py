"""A call is computed as it says, and what a task notes lies beside its result and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from orchestrator.executors.calls import Call, Done, Item, Outcome, Refused, perform
from orchestrator.executors.gpu_packing import GpuMeasurement
from orchestrator.run_folder.journal import Journal
from orchestrator.store import Store, open_store
from tasks.contract.job import Inputs, task
from tasks.worker import compute_context

RUN = "toys-1"
FACTS = {"way": "graph", "stack": 8, "bytes_per_member": 1e6, "device_bytes": 1e9, "busy": 0.5}


@dataclass(frozen=True)
class Number:
    value: int = 0


def one(config: Number) -> pa.Table:
    """Says what was asked; an even number notes its value, one over 10 what it must not, one below 0 settles."""
    asked = compute_context.current_context()
    if config.value < 0:
        asked.settle("anything", lambda: {"number": config.value})
    elif config.value > 10:
        compute_context.note(way="loop", key="mine", task="mine", config={}, seconds=-1.0, device="cuda:7", versions={})
    elif config.value % 2 == 0:
        compute_context.note(**FACTS, number=config.value)
    return pa.table({"way": [asked.way], "members": [asked.members], "sharers": [asked.sharers]})


def several(configs: Sequence[Number], inputs: Sequence[Inputs]) -> Iterator[tuple[int, pa.Table | Exception]]:
    for index, config in enumerate(configs):
        yield index, one(config)


@task(version=1, many=several)
def together(config: Number, inputs: Inputs) -> pa.Table:
    return one(config)


@task(version=1)
def alone(config: Number, inputs: Inputs) -> pa.Table:
    return one(config)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    opened = open_store(tmp_path / "store")
    Journal(opened.folder("runs") / RUN).create({}, None)
    return opened


def key(number: int) -> str:
    return f"{number:064x}"


def call(name: str, *values: int, **more: Any) -> Call:
    items = tuple(Item(key(at), f"{__name__}:{name}", Number(value)) for at, value in enumerate(values))
    return Call(1, name, items, **more)


def outcomes(store: Store, name: str, *values: int, **more: Any) -> tuple[Outcome, ...]:
    return perform(call(name, *values, **more), store).outcomes


@pytest.mark.parametrize("name", ["alone", "together"])
def test_jobs_are_computed_in_the_manner_that_the_call_says(store: Store, name: str) -> None:
    outcomes(store, name, 1, 3, way="stack", members=5, sharers=3, runs=(RUN,))
    assert store.read(key(1)).to_pylist() == [{"way": "stack", "members": 5, "sharers": 3}]
    assert compute_context.current_context().way == "auto"  # and what comes after the call is not


@pytest.mark.parametrize("name", ["alone", "together"])
def test_each_record_has_what_was_noted_of_its_own_result(store: Store, name: str) -> None:
    outcomes(store, name, 2, 1, 4)
    records = [store.record(key(at)) for at in range(3)]
    assert [record.get("number") for record in records] == [2, None, 4]
    assert [record.get("way") for record in records] == ["graph", None, "graph"]


def test_a_note_never_stands_for_what_is_recorded_anyway(store: Store) -> None:
    outcomes(store, "alone", 12)
    record = store.record(key(0))
    assert ("loop", key(0), "test_calls.alone", {"value": 12}) == tuple(
        record[name] for name in ("way", "key", "task", "config")
    )
    assert record["seconds"] >= 0
    assert "python" in record["versions"]


def test_what_fills_a_gpu_goes_back_with_the_outcome(store: Store) -> None:
    found = outcomes(store, "together", 2, 1)
    assert [GpuMeasurement(8, 1e6, 1e9, 0.5), None] == [each.measured for each in found if isinstance(each, Done)]


@pytest.mark.parametrize("name", ["alone", "together"])
def test_where_a_choice_cannot_be_kept_the_run_is_to_pause_and_no_job_has_failed(store: Store, name: str) -> None:
    (Path(store.location) / "runs" / RUN / "ways").write_text("in the way")
    found = outcomes(store, name, 1, -1, runs=(RUN,))
    assert [Done, Refused] == [type(each) for each in found]
    assert "ways" in getattr(found[1], "cause", "")
    assert store.failure(key(1)) is None


def test_without_a_run_what_is_settled_holds_for_the_call_and_is_kept_nowhere(store: Store) -> None:
    assert [Done, Done] == [type(each) for each in outcomes(store, "together", -1, -2)]
    assert not (Path(store.location) / "runs" / RUN / "ways").exists()
