"""Each way in which a job can end gives that job's outcome and no other's."""

from __future__ import annotations

import sys
import time
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from orchestrator.errors import Absent, Damaged, StoreError, Unreadable, Unwritable
from orchestrator.executors import calls
from orchestrator.executors.calls import Call, Done, Failed, Finished, Item, Lost, Missing, Poisoned, Refused, perform
from orchestrator.store import Store, WriteEffect
from orchestrator.store.failure_log import FailureLog
from orchestrator.store.local import LocalStore
from tasks.contract.job import Inputs, task
from tasks.worker import checkpoints


@dataclass(frozen=True)
class Instruction:
    """The instruction for a task: raise a named error, or return the sum."""

    value: int = 0
    raises: str = ""


class OutOfMemoryError(RuntimeError):
    """Has the name of torch's own error."""


ERRORS: Mapping[str, Exception] = {
    "value": ValueError("not a number\n  we like"),
    "silent": KeyError(),
    "memory": MemoryError("no room"),
    "device memory": OutOfMemoryError("no room there"),
    "device": RuntimeError("CUDA error: an illegal memory access\nwas encountered"),
}


EXHAUSTED = {
    "memory": ("the host's memory ran out: MemoryError: no room", "host"),
    "device memory": ("the GPU's memory ran out: OutOfMemoryError: no room there", "device"),
}


def summed(config: Instruction, inputs: Inputs) -> Any:
    """The value and all inputs in order, or the requested error."""
    if config.raises == "no table":
        return "text"
    if config.raises == "union":
        union = pa.UnionArray.from_dense(pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])])
        return pa.table({"values": union})
    if config.raises:
        raise ERRORS[config.raises]
    return pa.table({"values": [[config.value, *(table["values"][0].as_py()[0] for table in inputs)]]})


@task(version=3)
def alone(config: Instruction, inputs: Inputs) -> pa.Table:
    table: pa.Table = summed(config, inputs)
    return table


def several(configs: Sequence[Instruction], inputs: Sequence[Inputs]) -> Iterator[tuple[int, pa.Table | Exception]]:
    """Yields the last job first. -1 is left out, -2 breaks the call, and errors are yielded for their jobs."""
    for index in reversed(range(len(configs))):
        if configs[index].value == -2:
            raise RuntimeError("all of them\nfell")
        if configs[index].value != -1:
            try:
                yield index, summed(configs[index], inputs[index])
            except Exception as error:
                yield index, error


@task(version=1, many=several)
def together(config: Instruction, inputs: Inputs) -> pa.Table:
    table: pa.Table = summed(config, inputs)
    return table


@task(version=1)
def link(config: Instruction, inputs: Inputs) -> pa.Table:
    earlier = list(checkpoints.earlier_checkpoints(0))
    checkpoints.leave(0, b"left by " + str(config.value).encode())
    return pa.table({"given": [earlier], "wanted": [checkpoints.is_state_requested(0)]})


def linked(configs: Sequence[Instruction], inputs: Sequence[Inputs]) -> Iterator[tuple[int, pa.Table | Exception]]:
    for index, config in enumerate(configs):
        earlier = list(checkpoints.earlier_checkpoints(index))
        checkpoints.leave(index, b"left by " + str(config.value).encode())
        yield index, pa.table({"given": [earlier], "wanted": [checkpoints.is_state_requested(index)]})


@task(version=1, many=linked)
def links(config: Instruction, inputs: Inputs) -> pa.Table:
    raise AssertionError("they are computed together")


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store", create=True)


def key(number: int) -> str:
    return f"{number:064x}"


def item(number: int, config: Instruction, *inputs: int, task: str = "alone", **more: Any) -> Item:
    return Item(key(number), f"{__name__}:{task}", config, tuple(map(key, inputs)), **more)


def perform_items(store: Store, *items: Item, **more: Any) -> tuple[calls.Outcome, ...]:
    """The outcomes of jobs sent in one call."""
    return perform(Call(1, "toys", items, **more), store).outcomes


def put(store: Store, number: int, value: int) -> None:
    store.write(key(number), pa.table({"values": [[value]]}), {})


def break_open(store: LocalStore, number: int) -> Path:
    """Change a byte of a stored result."""
    (path,) = Path(store.location).glob(f"results/*/{key(number)}*")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o600)
    path.write_bytes(bytes(data))
    return path


class Failing(LocalStore):
    """A store with failing methods. `order` lists the methods called."""

    def __init__(self, path: Path, **raising: Exception) -> None:
        super().__init__(path, True)
        self.raising = raising
        self.order = list[str]()

    def _may(self, name: str) -> None:
        self.order.append(name)
        if name in self.raising:
            raise self.raising[name]

    def read(self, key: str) -> pa.Table:
        self._may("read")
        return super().read(key)

    def write(self, key: str, table: pa.Table, record: Mapping[str, Any]) -> WriteEffect:
        self._may("write")
        return super().write(key, table, record)

    def write_failure(self, key: str, text: str) -> None:
        self._may("write_failure")
        super().write_failure(key, text)

    def write_state(self, key: str, data: bytes) -> None:
        self._may("write_state")
        super().write_state(key, data)


# Calls


def test_call_and_item_defaults() -> None:
    assert Item("a", "b:c", 1) == Item("a", "b:c", 1, (), (), False)
    assert Call(1, "t", ()) == Call(1, "t", (), 0.0, 0.0, 1, "auto", None, (), False, "", 0.0)
    assert Done("a", 1.0, "w") == Done("a", 1.0, "w", False, None, 0)
    assert Lost("a", "b") == Lost("a", "b", False, None)


def test_empty_call_succeeds(store: LocalStore) -> None:
    call = Call(1, "toys", ())
    assert Finished(call, (), ()) == perform(call, store)


# Inputs


def test_repeated_inputs_keep_their_order(store: LocalStore) -> None:
    put(store, 8, 80)
    put(store, 9, 90)
    assert [Done, Done] == [
        type(outcome)
        for outcome in perform_items(store, item(1, Instruction(1), 9, 8, 9), item(2, Instruction(2), 8, 9))
    ]
    assert store.read(key(1))["values"][0].as_py() == [1, 90, 80, 90]
    assert store.read(key(2))["values"][0].as_py() == [2, 80, 90]


def test_shared_input_is_read_once(tmp_path: Path) -> None:
    store = Failing(tmp_path / "store")
    put(store, 8, 80)
    perform_items(store, item(1, Instruction(), 8), item(2, Instruction(), 8))
    assert store.order.count("read") == 1


def test_job_lists_its_missing_and_damaged_inputs(
    store: LocalStore,
) -> None:
    put(store, 7, 70)
    put(store, 8, 80)
    break_open(store, 8)
    outcomes = perform_items(store, item(1, Instruction(), 7, 8, 9), item(2, Instruction(), 7))
    assert Missing(key(1), (key(8), key(9))) == outcomes[0]
    assert isinstance(outcomes[1], Done)
    assert store.keys() == {key(2), key(7)}


@pytest.mark.parametrize("error", [Unreadable("no answer"), StoreError("no answer"), OSError("no answer")])
def test_temporarily_unreadable_input_loses_only_the_job(tmp_path: Path, error: Exception) -> None:
    store = Failing(tmp_path / "store", read=error)
    put(store, 8, 80)
    assert (Lost(key(1), f"input {key(8)[:12]} cannot be read: no answer"),) == perform_items(
        store, item(1, Instruction(), 8)
    )


def test_damaged_input_without_quarantine_pauses_the_run(tmp_path: Path) -> None:
    store = Failing(tmp_path / "store", read=Unwritable("read-only"))
    put(store, 8, 80)
    assert (Refused(key(1), "read-only"),) == perform_items(store, item(1, Instruction(), 8))


# Tasks


@pytest.mark.parametrize("task", ["alone", "together"])
@pytest.mark.parametrize(
    ("raises", "line"),
    [("value", "ValueError: not a number we like"), ("silent", "KeyError"), ("memory", EXHAUSTED["memory"][0])],
)
def test_task_error_is_final_and_stored(store: LocalStore, task: str, raises: str, line: str) -> None:
    (outcome,) = perform_items(store, item(1, Instruction(raises=raises), task=task))
    assert isinstance(outcome, Failed)
    assert key(1) == outcome.key
    assert line == outcome.error
    assert outcome.traceback.startswith("Traceback")
    assert "in summed" in outcome.traceback
    assert outcome.traceback == FailureLog.from_text(store.failure(key(1)) or "").traceback
    perform_items(store, item(1, Instruction(5), task=task))
    assert store.failure(key(1)) is None  # it has succeeded since


@pytest.mark.parametrize("error", [Unwritable("read-only"), OSError("gone")])
def test_unstored_error_is_still_reported(tmp_path: Path, error: Exception) -> None:
    store = Failing(tmp_path / "store", write_failure=error)
    (outcome,) = perform_items(store, item(1, Instruction(raises="value")))
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith("ValueError")


def test_result_other_than_a_table_fails(store: LocalStore) -> None:
    (outcome,) = perform_items(store, item(1, Instruction(raises="no table")))
    assert isinstance(outcome, Failed)
    assert outcome.error == "TypeError: test_outcomes.alone returned a str; a task returns a pyarrow.Table"
    assert key(1) not in store


def test_table_that_cannot_be_stored_fails(store: LocalStore) -> None:
    (outcome,) = perform_items(store, item(1, Instruction(raises="union"), task="together"))
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith("TypeError")
    assert key(1) not in store


@pytest.mark.parametrize("task", ["alone", "together"])
def test_process_with_broken_device_must_end(store: LocalStore, task: str) -> None:
    with pytest.raises(Poisoned, match=r"^RuntimeError: CUDA error: an illegal memory access was encountered$"):
        perform_items(store, item(1, Instruction(raises="device"), task=task))
    assert store.failure(key(1)) is None


@pytest.mark.parametrize("raises", EXHAUSTED)
def test_memory_error_of_several_jobs_fails_none(store: LocalStore, raises: str) -> None:
    line, exhausted = EXHAUSTED[raises]
    failing = Instruction(raises=raises)
    of_both = perform_items(store, item(1, failing, task="together"), item(2, Instruction(2), task="together"))
    assert [(line, exhausted)] == [
        (job_outcome.cause, job_outcome.exhausted) for job_outcome in of_both if isinstance(job_outcome, Lost)
    ]
    assert key(2) in store
    (outcome,) = perform_items(store, item(1, failing, task="together"))
    assert isinstance(outcome, Failed)
    assert line == outcome.error


def test_memory_error_on_a_shared_gpu_fails_none(store: LocalStore) -> None:
    shared = Call(1, "alone", (item(1, Instruction(raises="device memory")),), gpus=0.5, sharers=2)
    ((outcome,),) = [perform(shared, store).outcomes]
    assert isinstance(outcome, Lost)
    assert outcome.exhausted == "device"


def test_result_reports_memory_of_its_call(store: LocalStore) -> None:
    (outcome,) = perform_items(store, item(1, Instruction()))
    assert isinstance(outcome, Done)
    assert outcome.memory == store.record(key(1))["host_bytes"] > 1e6


def test_error_of_one_job_affects_only_it(store: LocalStore) -> None:
    outcomes = perform_items(
        store, item(1, Instruction(raises="value"), task="together"), item(2, Instruction(2), task="together")
    )
    assert {outcome.key: type(outcome) for outcome in outcomes} == {key(1): Failed, key(2): Done}


def test_jobs_that_fail_together_are_resent(store: LocalStore) -> None:
    items = []
    for number, value in ((1, 5), (2, -2), (3, 7)):
        items.append(item(number, Instruction(value), task="together"))
    outcomes = {outcome.key: outcome for outcome in perform_items(store, *items)}
    assert isinstance(outcomes[key(3)], Done)
    assert Lost(key(1), "RuntimeError: all of them fell") == outcomes[key(1)]
    assert Lost(key(2), "RuntimeError: all of them fell") == outcomes[key(2)]
    assert store.keys() == {key(3)}


def test_job_left_out_of_a_call_is_resent(store: LocalStore) -> None:
    left_out = perform_items(store, item(4, Instruction(-1), task="together"), item(5, Instruction(5), task="together"))
    cause = "RuntimeError: the task computed several jobs at once and left this one out"
    assert [Lost(key(4), cause)] == [outcome for outcome in left_out if outcome.key == key(4)]


# Results


def test_record_names_batch_size_and_inputs(store: LocalStore) -> None:
    put(store, 8, 80)
    perform_items(store, item(1, Instruction(4), 8))
    perform_items(store, item(2, Instruction(5), task="together"), item(3, Instruction(6), task="together"))
    one = store.record(key(1))
    two = store.record(key(2))
    assert one["together"] == 1
    assert two["together"] == 2
    assert tuple(one[name] for name in ("task", "version", "function", "inputs", "config")) == (
        "test_outcomes.alone",
        3,
        f"{__name__}:alone",
        [key(8)],
        {"value": 4, "raises": ""},
    )


@pytest.mark.parametrize("task", ["alone", "together"])
def test_seconds_of_a_job_exclude_earlier_jobs(store: LocalStore, task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([10.0, 12.0, 15.0, 20.0, 29.0])  # begun; ended, begun; ended, begun
    monkeypatch.setattr(time, "perf_counter", lambda: next(readings))
    outcomes = perform_items(store, item(1, Instruction(1), task=task), item(2, Instruction(2), task=task))
    assert [outcome.seconds for outcome in outcomes if isinstance(outcome, Done)] == [2.0, 5.0]


def test_different_result_is_reported_and_first_kept(store: LocalStore) -> None:
    put(store, 1, 6)
    put(store, 2, 7)
    outcomes = perform_items(store, item(1, Instruction(5)), item(2, Instruction(7)))
    assert [outcome.differs for outcome in outcomes if isinstance(outcome, Done)] == [True, False]
    assert store.read(key(1))["values"][0].as_py() == [6]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (Unwritable("full"), Refused(key(1), "full")),
        (StoreError("no answer"), Lost(key(1), "StoreError: no answer")),
        (OSError("input/output\nerror"), Lost(key(1), "OSError: input/output error")),
    ],
)
def test_job_is_not_blamed_for_storage_errors(tmp_path: Path, error: Exception, outcome: calls.Outcome) -> None:
    store = Failing(tmp_path / "store", write=error)
    assert (outcome,) == perform_items(store, item(1, Instruction(1)))
    assert store.failure(key(1)) is None


# Checkpoints


def earlier_states(store: Store, number: int) -> list[bytes]:
    values: list[bytes] = store.read(key(number))["given"][0].as_py()
    return values


def test_job_continues_from_nearest_checkpoint_first(store: LocalStore) -> None:
    store.write_state(key(7), b"near")
    store.write_state(key(9), b"far")
    (outcome,) = perform_items(store, item(1, Instruction(1), task="link", earlier_keys=(key(7), key(8), key(9))))
    assert isinstance(outcome, Done)
    assert earlier_states(store, 1) == [b"near", b"far"]
    # no other job needed its state
    assert store.states() == {key(7), key(9)}


def test_damaged_checkpoint_falls_back_to_earlier_one(tmp_path: Path) -> None:
    class Torn(LocalStore):
        def state(self, key: str) -> bytes:
            if key.endswith("7"):
                raise Damaged("the state is torn")
            if key.endswith("8"):
                raise Absent("none")
            return b"far"

    store = Torn(tmp_path / "store", True)
    call = Call(1, "toys", (item(1, Instruction(1), task="link", earlier_keys=(key(7), key(8), key(9))),))
    message = f"the state is torn; {key(1)[:12]} continues from an earlier one, or starts again"
    assert (message,) == perform(call, store).messages
    assert earlier_states(store, 1) == [b"far"]


@pytest.mark.parametrize(
    ("leaves", "keep", "is_kept"), [(True, False, True), (False, True, True), (False, False, False)]
)
def test_checkpoint_is_kept_if_needed_or_requested(store: LocalStore, leaves: bool, keep: bool, is_kept: bool) -> None:
    perform_items(store, item(1, Instruction(1), task="link", leaves=leaves), keep=keep)
    assert ({key(1)} if is_kept else set()) == store.states()
    assert is_kept == store.read(key(1))["wanted"][0].as_py()


def test_each_job_keeps_its_own_checkpoint(store: LocalStore) -> None:
    store.write_state(key(9), b"before the second")
    linked_items = (
        item(1, Instruction(1), task="links", leaves=True),
        item(2, Instruction(2), task="links", leaves=True, earlier_keys=(key(9),)),
    )
    assert [Done, Done] == [type(outcome) for outcome in perform_items(store, *linked_items)]
    assert store.state(key(1)) == b"left by 1"
    assert store.state(key(2)) == b"left by 2"
    assert earlier_states(store, 1) == []
    assert earlier_states(store, 2) == [b"before the second"]


def test_checkpoint_is_stored_before_its_result(tmp_path: Path) -> None:
    store = Failing(tmp_path / "store")
    perform_items(store, item(1, Instruction(1), task="link", leaves=True))
    assert store.order == ["write_state", "write"]
    refusing = Failing(tmp_path / "other", write_state=Unwritable("full"))
    assert (Refused(key(1), "full"),) == perform_items(refusing, item(1, Instruction(1), task="link", leaves=True))
    assert key(1) not in refusing


# The GPU's memory


@pytest.mark.parametrize(("gpus", "has_gpu", "emptied"), [(0.5, True, 1), (0.0, True, 0), (0.5, False, 0)])
def test_cached_gpu_memory_is_freed_after_a_call(
    store: LocalStore, gpus: float, has_gpu: bool, emptied: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    count: list[int] = []
    cuda = types.SimpleNamespace(is_available=lambda: has_gpu, empty_cache=lambda: count.append(1))
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    perform_items(store, gpus=gpus)
    assert emptied == len(count)
    monkeypatch.delitem(sys.modules, "torch")
    perform_items(store, gpus=gpus)  # torch was not loaded, so there is no cache
