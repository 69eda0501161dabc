"""Services that a worker offers to the job it computes: its key, folders for its output and its state, and a log.

None of them affects results, so none is in a config or key. The worker provides them (`use_services`), and a task that
runs a user's program reads them (`current_services`). Outside a run, output and metrics are not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

LogMetrics = Callable[[Mapping[str, float], int], None]


def discard_metrics(_metrics: Mapping[str, float], _step: int) -> None:
    """Ignore the metrics of a job outside a run."""


def keep_nothing() -> None:
    """Do nothing: a state folder that other processes see needs no upload."""


@dataclass(frozen=True)
class JobServices:
    """What the worker keeps for one job.

    key: The job's key. Empty outside a run.
    output: An existing folder. The job writes the files `stdout` and `stderr` into it while it runs; the worker keeps
        them with the job, whether or not it succeeds. None: the output is not kept.
    state: An existing folder that survives the death of this process, with the contents that an earlier attempt at this
        job left. The worker removes it once the result is stored. None: a temporary folder suffices.
    save_state(): Called from time to time while the job runs. Copies the state folder to the store if no other machine
        sees it, at most once per interval.
    log(metrics, step): Shows the metrics of a training while it runs, and keeps them.
    gpus: Number of GPUs that the job may use.
    """

    key: str = ""
    output: Path | None = None
    state: Path | None = None
    save_state: Callable[[], None] = keep_nothing
    log: LogMetrics = discard_metrics
    gpus: int = 0


_services: ContextVar[JobServices | None] = ContextVar("services", default=None)
_NONE = JobServices()


@contextmanager
def use_services(services: JobServices) -> Iterator[None]:
    """Offer these services to the job that is computed inside the block."""
    token = _services.set(services)
    try:
        yield
    finally:
        _services.reset(token)


def current_services() -> JobServices:
    """Return the services for the job that is being computed."""
    services = _services.get()
    return _NONE if services is None else services


class ProgramDied(RuntimeError):
    """A job's program was ended by a signal, or its machine ran out of memory. The job is lost, not failed.

    `is_out_of_memory`: whether the cause is the host's memory.
    """

    def __init__(self, message: str, is_out_of_memory: bool = False) -> None:
        super().__init__(message)
        self.is_out_of_memory = is_out_of_memory
