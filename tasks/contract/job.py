"""Tasks, jobs and work.

A task is a marked pure function, a job is one call of a task, and work is the amount of computation in a job. This
module is independent of execution.
"""

from __future__ import annotations

import importlib
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import pyarrow as pa

from tasks.contract.operations import InputStep, Operations, Step
from tasks.contract.quantities import ByteCount
from tasks.contract.resources import NO_RESOURCES, Resources

Inputs = Sequence[pa.Table]
Function = Callable[[Any, Inputs], pa.Table]
Many = Callable[[Sequence[Any], Sequence[Inputs]], Iterator[tuple[int, "pa.Table | Exception"]]]
Amounts = Mapping[str, float]  # unit -> amount
Number = int | Callable[[Any], int]  # or the function that returns it for a config
Spreads = bool | Callable[[Any], bool]
F = TypeVar("F", bound=Callable[..., pa.Table])

# Metadata key of fields that hold a class number. `engram run --dry-run` prints the name of the class instead.
CLASS_NUMBER = "class number"
# Metadata key of fields that hold a threshold used only by the answer. Such a field is part of a run's name.
ANSWER_ONLY = "read by the answer alone"
# Metadata key of config fields that were added after the first stored results and whose default computes the same as
# before. They enter keys only with another value, so that stored results stay valid.
ADDED_LATER = "added later"


@dataclass(frozen=True)
class Work:
    """The amount of computation in a job, counted before it runs, from which its price is estimated.

    A unit has a name, such as `train mlp1 on 28x28x1`, and a machine computes a certain number of these units per
    second. `trained` grows with the epoch that a training run reaches: a later link of a chain counts only its
    additional epochs. `besides` counts all other computation. If training stops automatically, `trained` is the
    expected amount, and the actual amount is between `least` and `most` times the expected one.

    `operations` gives the operations of one unit, or a step from which they are counted, so that a price is also known
    for a machine on which the unit was never timed. A unit without an entry, such as a user's program, is only timed.
    `device_bytes` is the device memory of the job if it is known without tracing a step, otherwise 0.
    """

    trained: Amounts = field(default_factory=dict)
    besides: Amounts = field(default_factory=dict)
    least: float = 1.0
    most: float = 1.0
    operations: Mapping[str, Operations | Step | InputStep] = field(default_factory=dict)
    device_bytes: float = 0.0

    def beyond(self, before: Work) -> Work:
        """Return the work that remains after an earlier link of the chain."""
        remaining = {}
        for unit, count in self.trained.items():
            remaining[unit] = max(0.0, count - before.trained.get(unit, 0.0))
        return replace(self, trained=remaining)

    @property
    def amounts(self) -> Amounts:
        """The sum of `trained` and `besides` for each unit."""
        totals = dict(self.trained)
        for unit, count in self.besides.items():
            totals[unit] = totals.get(unit, 0.0) + count
        return totals


def format_shape(shape: tuple[int, ...]) -> str:
    """Format an image shape for use in a unit name: `28x28x1`."""
    return "x".join(map(str, shape))


@dataclass(frozen=True)
class Task:
    """The properties of a task, set by its decorator.

    gpus: If above 0, the task uses a GPU when one is available. The number of tasks that share a GPU is measured. If 2
        or more, the task needs that number of GPUs in one machine, and shares them with no other job.
    spreads: Whether several processes may compute a job together, each with a GPU or a processor of its own (see
        `tasks.worker.process_group`), or a function `(config)` that returns this.
    cpus, memory: The processors and the bytes of host memory that a job needs, or functions `(config)` that return
        them. If 0, a job counts as one processor, and its memory is measured.
    many(configs, inputs): Computes several jobs with equal `batch_key(config)` in one call, and yields (index, table or
        exception) as each job ends.
    gathers: The inputs are an unordered collection, and fewer inputs than planned are accepted.
    trains: The number of networks that a job trains. The pace of a run is measured in networks.
    work(config): Returns the amount of computation, from which the run time is estimated. If None, the run time of
        earlier jobs of the task is used instead.
    """

    name: str
    version: int
    gpus: float = 0.0
    many: Many | None = None
    batch_key: Callable[[Any], object] | None = None
    gathers: bool = False
    trains: int = 0
    work: Callable[[Any], Work] | None = None
    cpus: Number = 0
    memory: Number = 0
    spreads: Spreads = False


def task(
    *,
    version: int,
    name: str | None = None,
    gpus: float = 0.0,
    cpus: Number = 0,
    memory: Number | str = 0,
    many: Many | None = None,
    batch_key: Callable[[Any], object] | None = None,
    gathers: bool = False,
    trains: int = 0,
    work: Callable[[Any], Work] | None = None,
    spreads: Spreads = False,
) -> Callable[[F], F]:
    """Mark a pure function `(config, inputs) -> pyarrow.Table` as a task. The function is returned unchanged.

    The name defaults to `module.function` without the packages. Raise `version` in the commit that changes the results
    of the function, so that results of earlier versions are not reused. `memory` may also be text, such as `8GB`.
    """
    if gpus > 1 and gpus != int(gpus):
        raise ValueError(f"gpus is {gpus}; above 1, it must be a whole number")
    needed_memory: Number = memory if callable(memory) else ByteCount.parse(memory)

    def mark(function: F) -> F:
        known_as = name or f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
        properties = Task(known_as, version, gpus, many, batch_key, gathers, trains, work, cpus, needed_memory, spreads)
        function.__task__ = properties  # type: ignore[attr-defined]
        return function

    return mark


def marks(function: Callable[..., Any]) -> Task:
    """Return the properties of a task. Raises TypeError if the function is not one."""
    mark = getattr(function, "__task__", None)
    if not isinstance(mark, Task):
        raise TypeError(f"{function!r} is not a task; mark it with @task(version=...)")
    return mark


def load_function(name: str) -> Function:
    """Return the task function that `module:name` names."""
    module, _, path = name.partition(":")
    function: Function = operator.attrgetter(path)(importlib.import_module(module))
    return function


def single_table(many: Many, config: Any, inputs: Inputs) -> pa.Table:
    """Compute the table of one job with a function that computes several. Raises the exception of the job."""
    ((_, outcome),) = many([config], [inputs])
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


@dataclass(frozen=True, eq=False)
class Job:
    """One call of a task: the function, its frozen config, and the jobs whose tables it reads, in order.

    `after` is a job that reaches an earlier epoch of the same training run. This job may continue from the stored state
    of `after`, with the same result. If `waits` is set, `after` is computed first even if no other job reads its table.
    `resources` are those that this job states itself, for example because its user did. They override its task's.
    """

    function: Function
    config: Any
    inputs: tuple[Job, ...] = ()
    after: Job | None = None
    waits: bool = False
    resources: Resources = NO_RESOURCES


def resources_of(job: Job) -> Resources:
    """Return the resources that a job needs: those that it states, and otherwise those of its task."""
    mark = marks(job.function)
    gpus = int(mark.gpus) if mark.gpus > 1 else 0
    if not (gpus or mark.cpus or mark.memory):
        return job.resources
    stated = job.resources
    return replace(
        stated,
        gpus=stated.gpus or gpus,
        cpus=stated.cpus or _number(mark.cpus, job.config),
        memory=stated.memory or ByteCount(_number(mark.memory, job.config)),
    )


def may_spread(function: Function, config: Any) -> bool:
    """Return whether several processes may compute a job together."""
    spreads = marks(function).spreads
    return spreads(config) if callable(spreads) else spreads


def _number(amount: Number, config: Any) -> int:
    return amount(config) if callable(amount) else amount


@dataclass(frozen=True)
class NoSettings:
    """The config of a task whose table depends only on its inputs."""


# A root is a named table of a run: the table of one job, or the concatenated tables of several jobs.
Roots = Mapping[str, "Job | tuple[Job, ...]"]
