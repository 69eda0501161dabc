"""A call: several jobs of one task that are sent to one worker together, and the possible outcomes of each job.

The worker reads inputs from the store, computes, and stores each result before it replies. Only keys, configurations
and outcomes are transferred, not tables.
"""

from __future__ import annotations

import contextlib
import math
import sys
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from orchestrator.errors import Absent, Damaged, StoreError, Unwritable
from orchestrator.executors import strategy_cache
from orchestrator.executors.gpu_packing import GpuMeasurement
from orchestrator.executors.kept_services import KeptServices
from orchestrator.executors.metrics import Transfer, timed_store
from orchestrator.executors.printed import keep_printed
from orchestrator.executors.task_source import open_source
from orchestrator.run_folder.advances import AdvanceWriter
from orchestrator.spec.config_parts import plain
from orchestrator.store import Store, WriteEffect, read_each
from orchestrator.store.failure_log import FailureLog
from orchestrator.store.provenance import commit, device, now, process, versions
from tasks.contract.job import Function, load_function, marks, may_spread, single_table
from tasks.contract.resources import NO_RESOURCES, Resources
from tasks.user_code.acceptance import use_stand_ins
from tasks.worker import checkpoints, compute_context, hardware
from tasks.worker.checkpoints import Link
from tasks.worker.hardware import MemoryKind
from tasks.worker.job_services import ProgramDied, RunStopped, use_services
from tasks.worker.process_group import compute_together

RAN_OUT: Mapping[MemoryKind, str] = {"host": "the host's memory ran out", "device": "the GPU's memory ran out"}


@dataclass(frozen=True)
class Item:
    """One job in a call. `function` is `module:name`, `config` is plain data, and `inputs` are keys.

    A link of a training may continue from the checkpoints of earlier links (`earlier_keys`, nearest first). If `leaves`
    is set, it leaves its own checkpoint for the next link.
    """

    key: str
    function: str
    config: Any
    inputs: tuple[str, ...] = ()
    earlier_keys: tuple[str, ...] = ()
    leaves: bool = False
    source: str = ""  # digest of the function's files, if the user wrote them


@dataclass(frozen=True)
class Call:
    """Jobs of one task for one worker. `delay` is the time in seconds before the call is sent (retry back-off).

    `resources` are those that each of its jobs needs, if they need particular ones. The call then has its GPUs alone.
    """

    number: int
    task: str
    items: tuple[Item, ...]
    gpus: float = 0.0  # fraction of a GPU, or number of GPUs
    delay: float = 0.0
    sharers: int = 1  # concurrent calls on the same GPU
    way: compute_context.StrategyName = "auto"
    members: int | None = None  # maximum number of models in one step
    # The run that stores the strategy choices, followed by related runs; if empty, nothing is stored.
    runs: tuple[str, ...] = ()
    keep: bool = False  # whether every training leaves its checkpoint, even if it has no next link
    gpu_type: str = ""  # required GPU type, as Ray names it; empty: any
    memory: float = 0.0  # bytes of host memory needed; 0: unknown, infinite: all memory of a machine
    stand_ins: Mapping[str, str] = field(default_factory=dict)  # digests of code that the user accepted as equivalent
    group: str = ""  # jobs of the same group take about the same time; empty: the task
    resources: Resources = NO_RESOURCES
    processes: int = 1  # that compute each job together; with several GPUs, one per GPU

    @property
    def shares_gpu(self) -> bool:
        """Whether the call uses GPUs that the schedule distributes, rather than its own."""
        return self.gpus > 0 and not self.resources.gpus

    @property
    def cpus(self) -> int:
        """The number of processors that the call takes. A call with a GPU needs little of one, and waits for none."""
        return self.resources.cpus if self.gpus else self.cpus_without_gpu

    @property
    def cpus_without_gpu(self) -> int:
        """The number of processors that the call takes if it uses no GPU."""
        return max(self.resources.cpus, self.processes)


@dataclass(frozen=True)
class Done:
    """The job's result is in the store. `seconds` is its share of the call's computing time.

    `differs` is true if the key already had a different result; both are kept. `measured` is the task's measurement of
    the GPU that computed the job. `memory` is the peak host memory of its process during this call, in bytes (0:
    unknown).
    """

    key: str
    seconds: float
    worker: str
    differs: bool = False
    measured: GpuMeasurement | None = None
    memory: int = 0


@dataclass(frozen=True)
class Failed:
    """The task function raised an exception. This outcome is final for the run."""

    key: str
    error: str  # one line: type and message
    traceback: str


@dataclass(frozen=True)
class Missing:
    """Inputs are absent, or were damaged and have been set aside. The jobs that produce them must run again."""

    key: str
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class Lost:
    """The job was lost, but did not cause this itself.

    Its worker died (`died`), its node went away, or a read or the environment failed. `exhausted` names the memory that
    ran out, if that is the cause.
    """

    key: str
    cause: str
    died: bool = False
    exhausted: MemoryKind | None = None


@dataclass(frozen=True)
class Refused:
    """The store could not be written, so the whole run pauses."""

    key: str
    cause: str


Outcome = Done | Failed | Missing | Lost | Refused


@dataclass(frozen=True)
class Computation:
    """How a result was computed: seconds, jobs in the call, calls on the GPU, the task's notes and its output."""

    seconds: float
    together: int
    worker: str
    sharers: int
    notes: Mapping[str, Any]
    printed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Finished:
    """A call that has ended, with one outcome per item, and the reads and writes of its worker.

    `messages` contains lines for the user.
    """

    call: Call
    outcomes: tuple[Outcome, ...]
    messages: tuple[str, ...] = ()
    transfers: tuple[Transfer, ...] = ()


class Poisoned(Exception):
    """This process must end: after a CUDA error, it can no longer use the device."""


def perform(call: Call, store: Store) -> Finished:
    """Compute the jobs of a call in this process. Each result is stored, with the task's notes, when its job ends.

    Any error in a job becomes the job's outcome.
    """
    worker = process()
    store, transfers = timed_store(store)
    outcomes: list[Outcome] = []
    ready: list[tuple[Item, list[pa.Table]]] = []
    tables: dict[str, pa.Table] = {}
    for item in call.items:
        inputs = _read(item, store, tables)
        if isinstance(inputs, list):
            ready.append((item, inputs))
        else:
            outcomes.append(inputs)
    if call.runs:
        settle = strategy_cache.choice_settler(store, *call.runs)
    else:
        settle = compute_context.here()
    states = Checkpoints(store, call.keep)
    first_key = next((item.key for item in call.items), "")
    advances = AdvanceWriter(store, next(iter(call.runs), ""), call.group or call.task, first_key)
    context = compute_context.ComputeContext(
        call.way, call.members, call.sharers, settle, max(1, int(call.gpus)), advances.write, call.processes
    )
    hardware.reset_peak_memory()
    with ExitStack() as contexts:
        contexts.callback(advances.close)
        printed = contexts.enter_context(keep_printed())
        contexts.enter_context(use_stand_ins(call.stand_ins))
        notes = contexts.enter_context(compute_context.use_context(context))
        source = contexts.enter_context(open_source({item.function: item.source for item in call.items}))

        def open_services(item: Item) -> KeptServices:
            return KeptServices(item.key, math.ceil(call.gpus), call.cpus, store, printed, advances)

        results = contexts.enter_context(closing(_results(ready, states, open_services)))
        for item, seconds, result, services in results:
            problem = source.problem()
            if problem is not None and isinstance(result, pa.Table):
                result = problem
            if isinstance(result, Exception):
                texts = printed.texts()
            else:
                texts = {}
            job_notes = dict(notes)
            if services is not None:
                job_notes |= services.notes
                services.keep_output()
            computation = Computation(seconds, len(ready), worker, call.sharers, job_notes, texts)
            compute_context.note()  # reset, because notes on this result do not belong to the next
            outcome = _commit(item, result, computation, store, states.unstored.pop(item.key, None))
            outcomes.append(outcome)
            advances.stored += 1
            if services is not None:
                services.is_stored = isinstance(outcome, Done)
            if marks(_function_of(item)).many is None:
                printed.clear()  # the same applies to the output
    if call.gpus:
        _let_go()
    return Finished(call, tuple(outcomes), tuple(states.messages), tuple(transfers))


class Checkpoints:
    """The checkpoints from which a call's jobs may continue, and new ones that are not stored yet, by key."""

    def __init__(self, store: Store, keep: bool) -> None:
        self.unstored: dict[str, bytes] = {}
        self.messages: list[str] = []
        self._store = store
        self._keep = keep

    def link(self, item: Item) -> Link:
        """Return the link to the checkpoint from which a job may continue."""
        is_wanted = item.leaves or self._keep
        return Link(lambda: self._earlier_states(item), (lambda data: self._leave(item, data)) if is_wanted else None)

    def _earlier_states(self, item: Item) -> Iterator[bytes]:
        for key in item.earlier_keys:
            try:
                yield self._store.state(key)
            except Absent:
                continue
            except Damaged as error:
                self.messages.append(f"{error}; {item.key[:12]} continues from an earlier one, or starts again")

    def _leave(self, item: Item, data: bytes) -> None:
        self.unstored[item.key] = data


def _function_of(item: Item) -> Function:
    """Return the task function that an item names."""
    return load_function(item.function)


def _read(item: Item, store: Store, tables: dict[str, pa.Table]) -> list[pa.Table] | Outcome:
    absent = []
    for key, contents in read_each(store, (key for key in dict.fromkeys(item.inputs) if key not in tables)):
        match contents:
            case Absent() | Damaged():
                absent.append(key)
            case Unwritable():  # damaged, and cannot be set aside
                return Refused(item.key, str(contents))
            case StoreError() | OSError():
                return Lost(item.key, f"input {key[:12]} cannot be read: {contents}")
            case table:
                tables[key] = table
    if absent:
        return Missing(item.key, tuple(absent))
    return [tables[key] for key in item.inputs]


def _results(
    ready: list[tuple[Item, list[pa.Table]]], states: Checkpoints, open_services: Callable[[Item], KeptServices]
) -> Generator[tuple[Item, float, pa.Table | Exception, KeptServices | None]]:
    """Yield each job as it ends, with the seconds it took, the resulting table or exception, and its services.

    Jobs that are computed together have no services.
    """
    if not ready:
        return
    function = _function_of(ready[0][0])
    many = marks(function).many
    if compute_context.current_context().processes > 1 and may_spread(function, ready[0][0].config):
        together = partial(compute_together, ready[0][0].function)
        function = partial(single_table, together)
        many = many and together
    clock = time.perf_counter()
    if many is None or len(ready) == 1:
        for item, inputs in ready:
            with closing(open_services(item)) as services:
                try:
                    with checkpoints.use_links([states.link(item)]), use_services(services):
                        result: pa.Table | Exception = function(item.config, inputs)
                except Exception as error:
                    result = error
                yield item, time.perf_counter() - clock, result, services
            clock = time.perf_counter()
        return
    pending = dict(enumerate(item for item, _ in ready))
    try:
        with checkpoints.use_links([states.link(item) for item, _ in ready]):
            for index, result in many([item.config for item, _ in ready], [inputs for _, inputs in ready]):
                yield pending.pop(index), time.perf_counter() - clock, result, None
                clock = time.perf_counter()
        broken: Exception = RuntimeError("the task computed several jobs at once and left this one out")
    except StoreError as error:  # the strategy could not be stored, so smaller calls would not help
        for item in pending.values():
            yield item, 0.0, error, None
        return
    except Exception as error:  # concerns the jobs together, so the schedule sends the rest again in smaller calls
        broken = error
    for item in pending.values():
        yield item, 0.0, _JointFailure(_line(broken), hardware.exhausted_memory(broken)), None


class _JointFailure(Exception):
    """Several jobs failed together but may succeed one at a time. `exhausted` is as in `Lost`."""

    def __init__(self, line: str, exhausted: MemoryKind | None) -> None:
        super().__init__(line)
        self.exhausted = exhausted


def _commit(
    item: Item, result: pa.Table | Exception, computation: Computation, store: Store, state: bytes | None
) -> Outcome:
    if isinstance(result, Unwritable):
        return Refused(item.key, str(result))
    if isinstance(result, _JointFailure | StoreError):
        return Lost(item.key, str(result), exhausted=getattr(result, "exhausted", None))
    if isinstance(result, RunStopped):
        return Lost(item.key, "its program was ended because the run stops")
    if isinstance(result, ProgramDied):
        return Lost(item.key, str(result), died=True, exhausted="host" if result.is_out_of_memory else None)
    if isinstance(result, Exception):
        exhausted = hardware.exhausted_memory(result)
        # Fewer jobs per call, or fewer calls on the GPU, may fit.
        if exhausted and (computation.together > 1 or (exhausted == "device" and computation.sharers > 1)):
            return Lost(item.key, _line(result), exhausted=exhausted)
        text = "".join(traceback.format_exception(result))
        if "CUDA error" in str(result):
            raise Poisoned(_line(result))
        with contextlib.suppress(StoreError, OSError):
            store.write_failure(item.key, _failure_log(text, computation).to_text())
        return Failed(item.key, _line(result), text)
    if not isinstance(result, pa.Table):
        kind = type(result).__name__
        error = TypeError(f"{marks(_function_of(item)).name} returned a {kind}; a task returns a pyarrow.Table")
        return _commit(item, error, computation, store, None)
    record = _record(item, computation)
    try:
        if state is not None:  # before the result, because a job with a stored result is not run again
            store.write_state(item.key, state)
        entry = store.write(item.key, result, record)
    except Unwritable as error:
        return Refused(item.key, str(error))
    except (StoreError, OSError) as error:
        return Lost(item.key, _line(error))
    except TypeError as refused:  # the table has a type that cannot be stored
        return _commit(item, refused, computation, store, None)
    with contextlib.suppress(StoreError, OSError):  # the result is stored even if an earlier failure cannot be removed
        store.clear_failure(item.key)
    differs = entry is WriteEffect.CONFLICT
    measured = GpuMeasurement.from_notes(computation.notes)
    return Done(item.key, computation.seconds, computation.worker, differs, measured, record["host_bytes"])


def _record(item: Item, computation: Computation) -> dict[str, Any]:
    mark = marks(_function_of(item))
    record = {
        "key": item.key,
        "task": mark.name,
        "version": mark.version,
        "function": item.function,
        "config": plain(item.config, has_execution=False),
        "inputs": list(item.inputs),
        "seconds": computation.seconds,
        "finished": now(),
        "together": computation.together,
        "worker": computation.worker,
        "host_bytes": hardware.peak_memory(),
        "commit": commit(),
        "versions": dict(versions()),
        **device(computation.notes.get("device")),
    }
    return record | {name: value for name, value in computation.notes.items() if name not in record}


def _failure_log(text: str, computation: Computation) -> FailureLog:
    device_name = device(computation.notes.get("device"))["device"]
    return FailureLog(
        text,
        worker=computation.worker,
        time=now(),
        device=device_name,
        together=computation.together,
        **computation.printed,
    )


def _let_go() -> None:
    """Release the GPU memory cached by torch, so that other processes can use it."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


def _line(error: BaseException) -> str:
    """Format an exception as one line, naming the exhausted memory if that is the cause."""
    text = " ".join(str(error).split())
    if text:
        line = f"{type(error).__name__}: {text}"
    else:
        line = type(error).__name__
    exhausted = hardware.exhausted_memory(error)
    if exhausted:
        return f"{RAN_OUT[exhausted]}: {line}"
    return line
