"""Services that a worker offers to the job it computes: its key, folders for its output and its state, and a log.

None of them affects results, so none is in a config or key. The worker provides them (`use_services`), and a task that
runs a user's program reads them (`current_services`). Outside a run, output, state and metrics are not kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path


class JobServices:
    """What the worker keeps for one job. This base class keeps nothing, as outside a run.

    A service costs nothing until it is used: folders are created when `output` or `state` is first read.

    key: The job's key. Empty outside a run.
    gpus: Number of GPUs that the job may use.
    cpus: Number of processors that the job may use, or 0 for any number.
    """

    def __init__(self, key: str = "", gpus: int = 0, cpus: int = 0) -> None:
        self.key = key
        self.gpus = gpus
        self.cpus = cpus

    @property
    def output(self) -> Path | None:
        """An existing folder, or None if the output is not kept.

        The job appends to the files `stdout` and `stderr` in it while it runs. The worker keeps them with the job,
        whether or not it succeeds. From the first read on, the worker also appends what the job prints in this
        process. The output of earlier attempts is in other files.
        """
        return None

    @property
    def state(self) -> Path | None:
        """An existing folder that survives the death of this process, or None if a temporary folder suffices.

        It has the contents that an earlier attempt at this job left. Removed once the result is stored.
        """
        return None

    @property
    def inherited(self) -> tuple[int, ...]:
        """Descriptors that the job's program must inherit (`pass_fds`). Read it after `state`.

        They hold the lock of the state folder. If this process is killed, the next attempt therefore waits until the
        program has ended, too.
        """
        return ()

    @property
    def is_stopping(self) -> bool:
        """Whether the run is being stopped, so that the job must end its program and raise `RunStopped`.

        Read from time to time while the job runs. If the job does not end within a few seconds, its process is killed.
        """
        return False

    def read_file(self, name: str) -> bytes:
        """Return a file of the run's store. Raises OSError, or a StoreError in a run, if it cannot be read."""
        raise OSError(f"the file {name} is in the store of a run, and this process computes no job of a run")

    def save_state(self) -> None:
        """Copy the state folder to the store, if no other machine sees the folder, at most once per interval.

        Called from time to time while the job runs.
        """

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Show the metrics of a training while it runs, and keep them. Raises ValueError if they are not numbers."""


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


class RunStopped(RuntimeError):
    """A job has ended its program because the run is being stopped. The job is lost, not failed."""


class ProgramDied(RuntimeError):
    """A job's program was ended by a signal, or its machine ran out of memory. The job is lost, not failed.

    `is_out_of_memory`: whether the cause is the host's memory.
    """

    def __init__(self, message: str, is_out_of_memory: bool = False) -> None:
        super().__init__(message)
        self.is_out_of_memory = is_out_of_memory
