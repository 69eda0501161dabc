"""A call is computed as specified, and a task's notes are stored only with its own result."""

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
    """Return the context. An even number notes its value, one above 10 reserved names; one below 0 settles a choice."""
    context = compute_context.current_context()
    if config.value < 0:
        context.settle("anything", lambda: {"number": config.value})
    elif config.value > 10:
        compute_context.note(way="loop", key="mine", task="mine", config={}, seconds=-1.0, device="cuda:7", versions={})
    elif config.value % 2 == 0:
        compute_context.note(**FACTS, number=config.value)
    return pa.table({"way": [context.way], "members": [context.members], "sharers": [context.sharers]})


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
    items = tuple(Item(key(index), f"{__name__}:{name}", Number(value)) for index, value in enumerate(values))
    return Call(1, name, items, **more)


def outcomes(store: Store, name: str, *values: int, **more: Any) -> tuple[Outcome, ...]:
    return perform(call(name, *values, **more), store).outcomes


@pytest.mark.parametrize("name", ["alone", "together"])
def test_jobs_are_computed_as_the_call_specifies(store: Store, name: str) -> None:
    outcomes(store, name, 1, 3, way="stack", members=5, sharers=3, runs=(RUN,))
    assert store.read(key(1)).to_pylist() == [{"way": "stack", "members": 5, "sharers": 3}]
    assert compute_context.current_context().way == "auto"  # the context ends with the call


@pytest.mark.parametrize("name", ["alone", "together"])
def test_each_record_has_its_own_notes(store: Store, name: str) -> None:
    outcomes(store, name, 2, 1, 4)
    records = [store.record(key(index)) for index in range(3)]
    assert [record.get("number") for record in records] == [2, None, 4]
    assert [record.get("way") for record in records] == ["graph", None, "graph"]


def test_notes_cannot_replace_recorded_fields(store: Store) -> None:
    outcomes(store, "alone", 12)
    record = store.record(key(0))
    assert tuple(record[name] for name in ("way", "key", "task", "config")) == (
        "loop",
        key(0),
        "test_calls.alone",
        {"value": 12},
    )
    assert record["seconds"] >= 0
    assert "python" in record["versions"]


def test_gpu_measurement_returns_with_the_outcome(store: Store) -> None:
    call_outcomes = outcomes(store, "together", 2, 1)
    assert [outcome.measured for outcome in call_outcomes if isinstance(outcome, Done)] == [
        GpuMeasurement(8, 1e6, 1e9, 0.5),
        None,
    ]


@pytest.mark.parametrize("name", ["alone", "together"])
def test_unsaved_choice_pauses_the_run_without_failures(store: Store, name: str) -> None:
    (Path(store.location) / "runs" / RUN / "ways").write_text("in the way")
    call_outcomes = outcomes(store, name, 1, -1, runs=(RUN,))
    assert [Done, Refused] == [type(outcome) for outcome in call_outcomes]
    assert "ways" in getattr(call_outcomes[1], "cause", "")
    assert store.failure(key(1)) is None


def test_without_a_run_choices_are_not_stored(store: Store) -> None:
    assert [Done, Done] == [type(outcome) for outcome in outcomes(store, "together", -1, -2)]
    assert not (Path(store.location) / "runs" / RUN / "ways").exists()
