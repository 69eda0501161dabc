"""Runs calls in this process, one at a time, so that a debugger works and nothing but our own modules is needed."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from orchestrator.calls import Call, Finished, Poisoned, perform
from orchestrator.errors import EngramError
from orchestrator.store import open_store


class LocalExecutor:
    """The executor for `--address none`. A call runs inside `wait`; Ctrl-C inside a task is the task's."""

    slots = 1
    window = 1

    def __init__(self, store: str) -> None:
        self._store = open_store(store, create=False)
        self._submitted: deque[Call] = deque()

    def submit(self, call: Call) -> None:
        self._submitted.append(call)

    def wait(self, seconds: float) -> Sequence[Finished]:  # noqa: ARG002  # a call takes what it takes
        if not self._submitted:
            return []
        call = self._submitted.popleft()
        try:
            return [perform(call, self._store)]
        except Poisoned as error:
            raise EngramError(f"this process cannot go on: {error}; start the same command again") from None

    def cancel(self) -> None:
        self._submitted.clear()

    def close(self) -> None:
        self._submitted.clear()
