"""Runs calls one at a time in this process, for debugging and for machines without Ray."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

from orchestrator.errors import EngramError
from orchestrator.executors import environment
from orchestrator.executors.calls import Call, Finished, Poisoned, perform
from orchestrator.executors.environment import count_gpus, first_gpus, variables
from orchestrator.quantities import format_count
from orchestrator.spec.options import GpusName
from orchestrator.store import open_store
from tasks.contract.resources import Resources


class LocalExecutor:
    """Runs each call inside `wait`. An interrupt during a task ends `wait` as it would any other function.

    A call that hangs cannot be ended, because it runs in this process.
    """

    slots = 1
    window = 1
    sharers = 1
    inside = True
    pages: Mapping[str, str] = {}
    growing = False

    def __init__(self, store: str, gpus: GpusName = "auto") -> None:
        if gpus == "none":
            self._visible = {"CUDA_VISIBLE_DEVICES": ""}
            self._gpu_count = 0
        else:
            self._visible = {}
            self._gpu_count = count_gpus()
        self.gpus = min(1, self._gpu_count)  # torch uses the first GPU only
        self.gpu_types: Mapping[str, int] = {}
        self._store = open_store(store)
        self._calls: deque[Call] = deque()

    @property
    def pending(self) -> int:
        return len(self._calls)

    def submit(self, call: Call) -> None:
        self._calls.append(call)

    def take_back(self, unwanted: Callable[[Call], bool]) -> Sequence[Call]:
        unwanted_calls = [call for call in self._calls if unwanted(call)]
        self._calls = deque(call for call in self._calls if not unwanted(call))
        return unwanted_calls

    def obstacle(self, resources: Resources) -> str | None:
        if resources.gpus > self._gpu_count:
            return f"this process (--address none) may use {format_count(self._gpu_count, 'GPU')}"
        return None

    def lacks(self) -> None:
        return None

    def wait(self, seconds: float) -> Sequence[Finished]:  # noqa: ARG002 (it happens here)
        if not self._calls:
            return ()
        call = self._calls.popleft()
        visible = self._visible
        if call.resources.gpus:
            visible = {"CUDA_VISIBLE_DEVICES": first_gpus(call.resources.gpus)}
        try:
            with variables(visible), environment.use_one_thread():
                return (perform(call, self._store),)
        except Poisoned as error:
            raise EngramError(
                f"this process can no longer compute ({error}); repeat the command to continue"
            ) from error

    def running(self) -> Sequence[tuple[Call, float]]:
        return ()  # calls run only inside `wait`, so none is running while the caller is

    def end(self, call: Call, reason: str) -> None:
        raise AssertionError(f"{call.task} cannot be ended in its own process: {reason}")

    def halt(self) -> None:
        self._calls.clear()

    def cancel(self) -> None:
        self._calls.clear()

    def close(self) -> None:
        self._calls.clear()
