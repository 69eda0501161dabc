"""Whatever can become of a job of a call becomes its outcome, and no other's."""

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
class Asked:
    """What the task is to do: an error's name, or nothing but its sum."""

    value: int = 0
    raises: str = ""


class OutOfMemoryError(RuntimeError):
    """Named as torch names its own."""


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


def summed(config: Asked, inputs: Inputs) -> Any:
    """The value and all inputs, in their order; or the error that is asked for."""
    if config.raises == "no table":
        return "text"
    if config.raises == "union":
        union = pa.UnionArray.from_dense(pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])])
        return pa.table({"values": union})
    if config.raises:
        raise ERRORS[config.raises]
    return pa.table({"values": [[config.value, *(table["values"][0].as_py()[0] for table in inputs)]]})


@task(version=3)
def alone(config: Asked, inputs: Inputs) -> pa.Table:
    table: pa.Table = summed(config, inputs)
    return table


def several(configs: Sequence[Asked], inputs: Sequence[Inputs]) -> Iterator[tuple[int, pa.Table | Exception]]:
    """The last comes first; -1 is left out, -2 breaks the call, and errors are given where they belong."""
    for index in reversed(range(len(configs))):
        if configs[index].value == -2:
            raise RuntimeError("all of them\nfell")
        if configs[index].value != -1:
            try:
                yield index, summed(configs[index], inputs[index])
            except Exception as error:
                yield index, error


@task(version=1, many=several)
def together(config: Asked, inputs: Inputs) -> pa.Table:
    table: pa.Table = summed(config, inputs)
    return table


@task(version=1)
def link(config: Asked, inputs: Inputs) -> pa.Table:
    given = list(checkpoints.earlier_checkpoints(0))
    checkpoints.leave(0, b"left by " + str(config.value).encode())
    return pa.table({"given": [given], "wanted": [checkpoints.wanted(0)]})


def linked(configs: Sequence[Asked], inputs: Sequence[Inputs]) -> Iterator[tuple[int, pa.Table | Exception]]:
    for index, config in enumerate(configs):
        given = list(checkpoints.earlier_checkpoints(index))
        checkpoints.leave(index, b"left by " + str(config.value).encode())
        yield index, pa.table({"given": [given], "wanted": [checkpoints.wanted(index)]})


@task(version=1, many=linked)
def links(config: Asked, inputs: Inputs) -> pa.Table:
    raise AssertionError("they are computed together")


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store", create=True)


def key(number: int) -> str:
    return f"{number:064x}"


def item(number: int, config: Asked, *inputs: int, task: str = "alone", **more: Any) -> Item:
    return Item(key(number), f"{__name__}:{task}", config, tuple(map(key, inputs)), **more)


def of(store: Store, *items: Item, **more: Any) -> tuple[calls.Outcome, ...]:
    """What becomes of these jobs, sent in one call."""
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
    """A store some of whose calls raise; `order` says what was written, in order."""

    def __init__(self, path: Path, **raising: Exception) -> None:
        super().__init__(path, True)
        self.raising, self.order = raising, list[str]()

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


# What is sent


def test_what_a_call_and_its_items_leave_unsaid() -> None:
    assert Item("a", "b:c", 1) == Item("a", "b:c", 1, (), (), False)
    assert Call(1, "t", ()) == Call(1, "t", (), 0.0, 0.0, 1, "auto", None, (), False, "", 0.0)
    assert Done("a", 1.0, "w") == Done("a", 1.0, "w", False, None, 0)
    assert Lost("a", "b") == Lost("a", "b", False, None)


def test_no_job_at_all_is_no_trouble(store: LocalStore) -> None:
    call = Call(1, "toys", ())
    assert Finished(call, (), ()) == perform(call, store)


# What is read


def test_inputs_come_in_their_order_however_often_each_is_named(store: LocalStore) -> None:
    put(store, 8, 80)
    put(store, 9, 90)
    assert [Done, Done] == [type(each) for each in of(store, item(1, Asked(1), 9, 8, 9), item(2, Asked(2), 8, 9))]
    assert [store.read(key(each))["values"][0].as_py() for each in (1, 2)] == [[1, 90, 80, 90], [2, 80, 90]]


def test_an_input_that_several_jobs_read_is_read_once(tmp_path: Path) -> None:
    store = Failing(tmp_path / "store")
    put(store, 8, 80)
    of(store, item(1, Asked(), 8), item(2, Asked(), 8))
    assert store.order.count("read") == 1


def test_a_job_without_its_inputs_names_those_that_are_absent_or_damaged_and_the_others_are_computed(
    store: LocalStore,
) -> None:
    put(store, 7, 70)
    put(store, 8, 80)
    break_open(store, 8)
    outcomes = of(store, item(1, Asked(), 7, 8, 9), item(2, Asked(), 7))
    assert Missing(key(1), (key(8), key(9))) == outcomes[0]
    assert isinstance(outcomes[1], Done)
    assert {key(2), key(7)} == store.keys()


@pytest.mark.parametrize("error", [Unreadable("no answer"), StoreError("no answer"), OSError("no answer")])
def test_an_input_that_cannot_be_read_for_now_loses_the_job_and_nothing_else(tmp_path: Path, error: Exception) -> None:
    store = Failing(tmp_path / "store", read=error)
    put(store, 8, 80)
    assert (Lost(key(1), f"input {key(8)[:12]} cannot be read: no answer"),) == of(store, item(1, Asked(), 8))


def test_a_damaged_input_that_cannot_be_set_aside_pauses_the_run(tmp_path: Path) -> None:
    store = Failing(tmp_path / "store", read=Unwritable("read-only"))
    put(store, 8, 80)
    assert (Refused(key(1), "read-only"),) == of(store, item(1, Asked(), 8))


# What the task does


@pytest.mark.parametrize("task", ["alone", "together"])
@pytest.mark.parametrize(
    ("raises", "line"),
    [("value", "ValueError: not a number we like"), ("silent", "KeyError"), ("memory", EXHAUSTED["memory"][0])],
)
def test_an_error_of_the_task_is_final_and_kept_beside_the_store(
    store: LocalStore, task: str, raises: str, line: str
) -> None:
    (outcome,) = of(store, item(1, Asked(raises=raises), task=task))
    assert isinstance(outcome, Failed)
    assert (key(1), line) == (outcome.key, outcome.error)
    assert outcome.traceback.startswith("Traceback")
    assert "in summed" in outcome.traceback
    assert outcome.traceback == FailureLog.from_text(store.failure(key(1)) or "").traceback
    of(store, item(1, Asked(5), task=task))
    assert store.failure(key(1)) is None  # it has succeeded since


@pytest.mark.parametrize("error", [Unwritable("read-only"), OSError("gone")])
def test_an_error_that_cannot_be_kept_is_told_all_the_same(tmp_path: Path, error: Exception) -> None:
    store = Failing(tmp_path / "store", write_failure=error)
    (outcome,) = of(store, item(1, Asked(raises="value")))
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith("ValueError")


def test_what_is_no_table_is_an_error_of_the_task(store: LocalStore) -> None:
    (outcome,) = of(store, item(1, Asked(raises="no table")))
    assert isinstance(outcome, Failed)
    assert outcome.error == "TypeError: test_outcomes.alone returned a str; a task returns a pyarrow.Table"
    assert key(1) not in store


def test_a_table_that_no_store_can_hold_is_an_error_of_the_task(store: LocalStore) -> None:
    (outcome,) = of(store, item(1, Asked(raises="union"), task="together"))
    assert isinstance(outcome, Failed)
    assert outcome.error.startswith("TypeError")
    assert key(1) not in store


@pytest.mark.parametrize("task", ["alone", "together"])
def test_a_process_whose_device_is_broken_must_end(store: LocalStore, task: str) -> None:
    with pytest.raises(Poisoned, match=r"^RuntimeError: CUDA error: an illegal memory access was encountered$"):
        of(store, item(1, Asked(raises="device"), task=task))
    assert store.failure(key(1)) is None


@pytest.mark.parametrize("raises", EXHAUSTED)
def test_memory_that_runs_out_for_several_is_not_the_fault_of_one(store: LocalStore, raises: str) -> None:
    line, exhausted = EXHAUSTED[raises]
    failing = Asked(raises=raises)
    of_both = of(store, item(1, failing, task="together"), item(2, Asked(2), task="together"))
    assert [(line, exhausted)] == [(each.cause, each.exhausted) for each in of_both if isinstance(each, Lost)]
    assert key(2) in store
    (outcome,) = of(store, item(1, failing, task="together"))
    assert isinstance(outcome, Failed)
    assert line == outcome.error


def test_the_memory_of_a_gpu_that_calls_share_is_not_the_fault_of_one(store: LocalStore) -> None:
    shared = Call(1, "alone", (item(1, Asked(raises="device memory")),), gpus=0.5, sharers=2)
    ((outcome,),) = [perform(shared, store).outcomes]
    assert isinstance(outcome, Lost)
    assert outcome.exhausted == "device"


def test_a_result_says_how_much_of_the_hosts_memory_its_call_took(store: LocalStore) -> None:
    (outcome,) = of(store, item(1, Asked()))
    assert isinstance(outcome, Done)
    assert outcome.memory == store.record(key(1))["host_bytes"] > 1e6


def test_an_error_of_one_of_several_is_its_own(store: LocalStore) -> None:
    outcomes = of(store, item(1, Asked(raises="value"), task="together"), item(2, Asked(2), task="together"))
    assert {key(1): Failed, key(2): Done} == {each.key: type(each) for each in outcomes}


def test_jobs_that_break_together_are_sent_again_and_what_was_done_stays(store: LocalStore) -> None:
    items = [item(number, Asked(value), task="together") for number, value in ((1, 5), (2, -2), (3, 7))]
    outcomes = {each.key: each for each in of(store, *items)}
    assert isinstance(outcomes[key(3)], Done)
    assert [Lost(key(each), "RuntimeError: all of them fell") for each in (1, 2)] == [
        outcomes[key(1)],
        outcomes[key(2)],
    ]
    assert {key(3)} == store.keys()


def test_a_job_that_is_left_out_of_a_call_is_sent_again(store: LocalStore) -> None:
    left_out = of(store, item(4, Asked(-1), task="together"), item(5, Asked(5), task="together"))
    cause = "RuntimeError: the task computed several jobs at once and left this one out"
    assert [Lost(key(4), cause)] == [each for each in left_out if each.key == key(4)]


# What is stored


def test_a_record_says_how_many_were_computed_together_and_what_of(store: LocalStore) -> None:
    put(store, 8, 80)
    of(store, item(1, Asked(4), 8))
    of(store, item(2, Asked(5), task="together"), item(3, Asked(6), task="together"))
    one, two = store.record(key(1)), store.record(key(2))
    assert (one["together"], two["together"]) == (1, 2)
    assert ("test_outcomes.alone", 3, f"{__name__}:alone", [key(8)], {"value": 4, "raises": ""}) == tuple(
        one[name] for name in ("task", "version", "function", "inputs", "config")
    )


@pytest.mark.parametrize("task", ["alone", "together"])
def test_the_seconds_of_a_job_are_those_since_the_one_before_it(
    store: LocalStore, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = iter([10.0, 12.0, 15.0, 20.0, 29.0])  # begun; ended, begun; ended, begun
    monkeypatch.setattr(time, "perf_counter", lambda: next(readings))
    outcomes = of(store, item(1, Asked(1), task=task), item(2, Asked(2), task=task))
    assert [each.seconds for each in outcomes if isinstance(each, Done)] == [2.0, 5.0]


def test_a_result_that_differs_from_the_one_stored_is_told_and_the_first_stays(store: LocalStore) -> None:
    put(store, 1, 6)
    put(store, 2, 7)
    outcomes = of(store, item(1, Asked(5)), item(2, Asked(7)))
    assert [each.differs for each in outcomes if isinstance(each, Done)] == [True, False]
    assert store.read(key(1))["values"][0].as_py() == [6]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (Unwritable("full"), Refused(key(1), "full")),
        (StoreError("no answer"), Lost(key(1), "StoreError: no answer")),
        (OSError("input/output\nerror"), Lost(key(1), "OSError: input/output error")),
    ],
)
def test_a_result_that_cannot_be_stored_is_no_fault_of_the_job(
    tmp_path: Path, error: Exception, outcome: calls.Outcome
) -> None:
    store = Failing(tmp_path / "store", write=error)
    assert (outcome,) == of(store, item(1, Asked(1)))
    assert store.failure(key(1)) is None


# Checkpoints


def given(store: Store, number: int) -> list[bytes]:
    values: list[bytes] = store.read(key(number))["given"][0].as_py()
    return values


def test_a_job_may_go_on_from_the_checkpoints_before_it_the_nearest_first(store: LocalStore) -> None:
    store.write_state(key(7), b"near")
    store.write_state(key(9), b"far")
    (outcome,) = of(store, item(1, Asked(1), task="link", earlier_keys=(key(7), key(8), key(9))))
    assert isinstance(outcome, Done)
    assert given(store, 1) == [b"near", b"far"]
    assert {key(7), key(9)} == store.states()  # nobody wanted its own


def test_a_damaged_checkpoint_is_told_and_the_one_before_it_serves(tmp_path: Path) -> None:
    class Torn(LocalStore):
        def state(self, key: str) -> bytes:
            if key.endswith("7"):
                raise Damaged("the state is torn")
            if key.endswith("8"):
                raise Absent("none")
            return b"far"

    store = Torn(tmp_path / "store", True)
    call = Call(1, "toys", (item(1, Asked(1), task="link", earlier_keys=(key(7), key(8), key(9))),))
    told = f"the state is torn; {key(1)[:12]} continues from an earlier one, or starts again"
    assert (told,) == perform(call, store).messages
    assert given(store, 1) == [b"far"]


@pytest.mark.parametrize(("leaves", "keep", "left"), [(True, False, True), (False, True, True), (False, False, False)])
def test_a_checkpoint_is_left_where_it_leads_on_or_the_run_keeps_all(
    store: LocalStore, leaves: bool, keep: bool, left: bool
) -> None:
    of(store, item(1, Asked(1), task="link", leaves=leaves), keep=keep)
    assert ({key(1)} if left else set()) == store.states()
    assert left == store.read(key(1))["wanted"][0].as_py()


def test_each_of_several_leaves_its_own_checkpoint(store: LocalStore) -> None:
    store.write_state(key(9), b"before the second")
    both = (
        item(1, Asked(1), task="links", leaves=True),
        item(2, Asked(2), task="links", leaves=True, earlier_keys=(key(9),)),
    )
    assert [Done, Done] == [type(each) for each in of(store, *both)]
    assert [store.state(key(each)) for each in (1, 2)] == [b"left by 1", b"left by 2"]
    assert [given(store, each) for each in (1, 2)] == [[], [b"before the second"]]


def test_a_checkpoint_is_stored_before_its_result_and_no_result_without_it(tmp_path: Path) -> None:
    store = Failing(tmp_path / "store")
    of(store, item(1, Asked(1), task="link", leaves=True))
    assert store.order == ["write_state", "write"]
    refusing = Failing(tmp_path / "other", write_state=Unwritable("full"))
    assert (Refused(key(1), "full"),) == of(refusing, item(1, Asked(1), task="link", leaves=True))
    assert key(1) not in refusing


# The GPU's memory


@pytest.mark.parametrize(("gpus", "there", "emptied"), [(0.5, True, 1), (0.0, True, 0), (0.5, False, 0)])
def test_after_a_call_on_a_gpu_its_cached_memory_is_given_back(
    store: LocalStore, gpus: float, there: bool, emptied: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    count: list[int] = []
    cuda = types.SimpleNamespace(is_available=lambda: there, empty_cache=lambda: count.append(1))
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    of(store, gpus=gpus)
    assert emptied == len(count)
    monkeypatch.delitem(sys.modules, "torch")
    of(store, gpus=gpus)  # nothing was loaded, so nothing is cached
