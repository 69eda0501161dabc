"""Requests to stop early, from a signal or a deadline."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

GRACE = 10.0  # seconds that running calls have to end once the run is to stop
AGAIN = 1.0  # seconds between further interrupts of a computation in this process


class OutOfTime(BaseException):
    """A computation in this thread exceeded GRACE. Not an Exception, so that no task catches it."""


class Stop:
    """Whether to stop, and why; the first reason is kept.

    `running` is the number of running calls, which the message on a signal states.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self.running = 0
        self._inside = False

    def ask(self, reason: str) -> None:
        self.reason = self.reason or reason

    @contextmanager
    def on_signals(self, tell: Callable[[str], object] = str) -> Iterator[None]:
        """On the first SIGINT or SIGTERM ask to stop, and report it at once; on the second end the process."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def asked(number: int, _frame: FrameType | None) -> None:
            if self.reason is not None:
                raise KeyboardInterrupt
            self.ask(signal.Signals(number).name)
            if self._inside:
                signal.setitimer(signal.ITIMER_REAL, GRACE, AGAIN)
            # In its own thread: this one may be in the middle of writing a line.
            with suppress(RuntimeError):
                threading.Thread(target=tell, args=(self._message(),), name="stop", daemon=True).start()

        def over(_number: int, _frame: FrameType | None) -> None:
            if self._inside:
                raise OutOfTime

        handlers = {signal.SIGINT: asked, signal.SIGTERM: asked, signal.SIGALRM: over}
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in before.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: not set from Python

    @contextmanager
    def computing_here(self) -> Iterator[None]:
        """For calls computed in this thread: raise OutOfTime GRACE seconds after a signal that arrives inside."""
        self._inside = True
        try:
            yield
        finally:
            self._inside = False

    def _message(self) -> str:
        calls = "what is running" if self.running == 0 else f"{self.running} running call{'s'[: self.running != 1]}"
        wait = f"{calls} may take {GRACE:.0f} s more to end"
        return f"{self.reason}: nothing more is begun, {wait}; once more (Ctrl-C) ends the run at once"
