"""The vocabulary: a task is a marked pure function, a job one call of it, and work how much a job computes.

Nothing here knows how, where or whether a job runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa

Inputs = Sequence[pa.Table]
Function = Callable[[Any, Inputs], pa.Table]
Many = Callable[[Sequence[Any], Sequence[Inputs]], Iterator[tuple[int, "pa.Table | Exception"]]]
Amounts = Mapping[str, float]  # of each unit
F = TypeVar("F", bound=Callable[..., pa.Table])

# Marks, in a field's metadata, the number of a class: `engram plan` prints which class of the data sets it is.
CLASS_NUMBER = "class number"
# Marks, in a field's metadata, a threshold that no job sees and the answer alone reads: it is part of a run's name.
ANSWER_ONLY = "read by the answer alone"


@dataclass(frozen=True)
class Work:
    """How much a job computes, counted before it runs: what its price is estimated from.

    Units have names, such as `train mlp1 on 28x28x1`, of which a machine does so many a second.

    `trained` grows with the epoch that a training reaches: a link of a chain has only what it adds to the link before.
    `besides` is what else it computes. Where a training ends by itself, so that nobody knows when, `trained` is what is
    expected, and it is between `least` and `most` times that.
    """

    trained: Amounts = field(default_factory=dict)
    besides: Amounts = field(default_factory=dict)
    least: float = 1.0
    most: float = 1.0

    def beyond(self, before: Work) -> Work:
        """What is left of it after a link that ends earlier."""
        left = {unit: max(0.0, count - before.trained.get(unit, 0.0)) for unit, count in self.trained.items()}
        return Work(left, self.besides, self.least, self.most)

    @property
    def amounts(self) -> Amounts:
        """All units together."""
        both = dict(self.trained)
        for unit, count in self.besides.items():
            both[unit] = both.get(unit, 0.0) + count
        return both


def format_shape(shape: tuple[int, ...]) -> str:
    """`28x28x1`: how a unit says which images it is of."""
    return "x".join(map(str, shape))


@dataclass(frozen=True)
class Task:
    """The properties of a task, as its decorator marks them.

    With `gpus` above 0 it computes on a GPU where there is one; how many of its calls share that is measured.
    `many(configs, inputs)` computes several jobs in one call and yields (index, table or exception) as each ends;
    only jobs with equal `batch_key(config)` share such a call. A task that `gathers` accepts fewer inputs than planned:
    its inputs are a collection, none of which has a place of its own. `trains` is how many networks a job trains,
    which is what a run's pace is counted in. `work(config)` counts what a job computes, from which
    its time is estimated; without it the jobs of a task are taken to be like those that were timed.
    """

    name: str
    version: int
    gpus: float = 0.0
    many: Many | None = None
    batch_key: Callable[[Any], object] | None = None
    gathers: bool = False
    trains: int = 0
    work: Callable[[Any], Work] | None = None


def task(
    *,
    version: int,
    name: str | None = None,
    gpus: float = 0.0,
    many: Many | None = None,
    batch_key: Callable[[Any], object] | None = None,
    gathers: bool = False,
    trains: int = 0,
    work: Callable[[Any], Work] | None = None,
) -> Callable[[F], F]:
    """Mark a pure function `(config, inputs) -> pyarrow.Table` as a task; the function itself is returned unchanged.

    The name defaults to `module.function` without the packages above it. Raise `version` by hand in the commit that
    changes what the function computes: results of other versions are then no longer taken for this one's.
    """

    def mark(function: F) -> F:
        known_as = name or f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
        function.__task__ = Task(known_as, version, gpus, many, batch_key, gathers, trains, work)  # type: ignore[attr-defined]
        return function

    return mark


def marks(function: Callable[..., Any]) -> Task:
    """The mark of a task function; TypeError for a function that is not one."""
    mark = getattr(function, "__task__", None)
    if not isinstance(mark, Task):
        raise TypeError(f"{function!r} is not a task; mark it with @task(version=...)")
    return mark


def single_table(many: Many, config: Any, inputs: Inputs) -> pa.Table:
    """The table of one job, computed by what computes several in a call; the exception that ended it is raised."""
    ((_, outcome),) = many([config], [inputs])
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


@dataclass(frozen=True, eq=False)
class Job:
    """One call of a task: the function, its frozen config, and the jobs whose tables it reads, in order.

    `after` names the job that reaches an earlier point of the same training; its stored state is where this one may
    continue from, which makes no difference to the result. One that `waits` has it computed first even where nothing
    reads its table.
    """

    function: Function
    config: Any
    inputs: tuple[Job, ...] = ()
    after: Job | None = None
    waits: bool = False


@dataclass(frozen=True)
class NoSettings:
    """The config of a task whose inputs alone bear on its table."""


# A root is a table that a user asks for by name: one job's, or the rows of several jobs' one after another.
Roots = Mapping[str, "Job | tuple[Job, ...]"]
