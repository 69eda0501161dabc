"""Reasons to end a start early: a signal, a deadline, or an exhausted budget."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from orchestrator.executors.calls import Call
from orchestrator.spec.options import Execution
from orchestrator.spec.yaml_file import Prices

GRACE = 10.0  # seconds that running calls get to end when the run stops
PROGRAM_GRACE = 5.0  # last seconds of GRACE, in which programs that jobs have started must end
INTERRUPT_SECONDS = 1.0  # seconds between repeated interrupts of a computation in this process
INSTANT = 0.001  # seconds of a timer that rings at once
JOIN_SECONDS = 1.0  # seconds that a thread gets to write its line


class OutOfTime(BaseException):
    """A computation in this thread exceeded GRACE. It is not an Exception, so that no task catches it."""


class Stop:
    """The reason to stop, if any. Only the first reason is kept.

    `running` is the number of running calls, for the message when a signal arrives. `ask_programs` is called before a
    computation in this process is interrupted, so that it can end the program that it has started.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self.running = 0
        self.ask_programs: Callable[[], object] = str
        self._inside = False

    def ask(self, reason: str) -> None:
        self.reason = self.reason or reason

    @contextmanager
    def handle_signals(self, report: Callable[[str], object] = str) -> Iterator[None]:
        """On the first SIGINT or SIGTERM, request a stop and report it at once. On the second, end the process."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        is_own_request = False  # whether a signal requested the stop
        are_programs_asked = False

        def handle_signal(number: int, _frame: FrameType | None) -> None:
            nonlocal is_own_request
            if self.reason is not None:
                raise KeyboardInterrupt
            is_own_request = True
            self.ask(signal.Signals(number).name)
            if self._inside:
                signal.setitimer(signal.ITIMER_REAL, max(INSTANT, GRACE - PROGRAM_GRACE))

        def handle_timer(_number: int, _frame: FrameType | None) -> None:
            nonlocal are_programs_asked
            if not self._inside:
                return
            if not are_programs_asked:
                are_programs_asked = True
                signal.setitimer(signal.ITIMER_REAL, min(GRACE, PROGRAM_GRACE), INTERRUPT_SECONDS)
                self.ask_programs()
                return
            raise OutOfTime

        def first() -> None:
            if self.reason is None or is_own_request:
                report(self._message())

        handlers = {signal.SIGINT: handle_signal, signal.SIGTERM: handle_signal, signal.SIGALRM: handle_timer}
        with _call_on_signal({signal.SIGINT, signal.SIGTERM}, first):
            earlier_handlers = {number: signal.signal(number, handler) for number, handler in handlers.items()}
            try:
                yield
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                for number, handler in earlier_handlers.items():
                    signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: not set from Python

    @contextmanager
    def computing_here(self) -> Iterator[None]:
        """Raise OutOfTime GRACE seconds after a signal that arrives inside the block.

        For calls computed in this thread.
        """
        self._inside = True
        try:
            yield
        finally:
            self._inside = False

    def _message(self) -> str:
        if self.running == 0:
            calls = "running work"
        else:
            calls = f"{self.running} running call{'s'[: self.running != 1]}"
        return f"stopping: no new job is started, {calls} may take {GRACE:.0f} s to end; Ctrl-C again to stop at once"


@contextmanager
def _call_on_signal(numbers: Collection[int], call: Callable[[], object]) -> Iterator[None]:
    """Call a function in a separate thread when the first of these signals arrives.

    Python's signal handlers wait until the main thread returns from a library call, which may take seconds. The
    interpreter, however, writes the signal number to a pipe as soon as it arrives.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    earlier_fd = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def watch() -> None:
        while arrived := os.read(reading, 1):
            if arrived[0] in numbers:
                with suppress(Exception):  # the output may be closed
                    call()
                return

    thread = threading.Thread(target=watch, name="stop", daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(earlier_fd)
        os.close(writing)  # ends the thread
        thread.join(JOIN_SECONDS)
        if not thread.is_alive():
            os.close(reading)


HOUR = 3600.0  # seconds


class Budget:
    """Counts the GPU hours and processor hours of calls, whatever their outcome.

    A call that holds a quarter of a GPU for an hour uses a quarter of a GPU hour, and no processor hours if its jobs
    state no processors. `spent` returns the reason to stop.
    """

    def __init__(self, execution: Execution) -> None:
        self.gpu_hours = self.cpu_hours = 0.0
        self._most_gpu_hours = execution.max_gpu_hours
        self._most_cost = execution.max_cost
        self._prices = execution.prices or Prices()
        self.limited = self._most_gpu_hours is not None or self._most_cost is not None

    def charge(self, calls: Iterable[Call], seconds: float) -> None:
        """Charge concurrent calls that have run for this many seconds."""
        for call in calls:
            self.gpu_hours += call.gpus * seconds / HOUR
            self.cpu_hours += call.cpus * seconds / HOUR

    @property
    def cost(self) -> float:
        """The cost of the hours used, in the currency of the prices."""
        return self.gpu_hours * self._prices.gpu + self.cpu_hours * self._prices.cpu

    @property
    def spent(self) -> str | None:
        """Return the reason to stop. Returns None while the budget is not exhausted."""
        if self._most_gpu_hours is not None and self.gpu_hours >= self._most_gpu_hours:
            return f"used {self.gpu_hours:.3g} GPU hours, limit {self._most_gpu_hours:g} (--max-gpu-hours)"
        if self._most_cost is not None and self.cost >= self._most_cost:
            unit = f" {self._prices.currency}".rstrip()
            return f"spent {self.cost:.3g}{unit}, limit {self._most_cost:g}{unit} (--max-cost)"
        return None
