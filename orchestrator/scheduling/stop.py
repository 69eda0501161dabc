"""The wish to stop early: from a signal or a deadline."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

GRACE = 10.0  # seconds that running calls get to end in, once the run is to stop
AGAIN = 1.0  # seconds after which what is computed here is interrupted once more, if it went on


class OutOfTime(BaseException):
    """What is computed in this thread did not end in its grace. No Exception, so that no task catches it."""


class Stop:
    """Whether to stop, and why; the first reason is kept.

    `running` is how many calls are running, for those who are told what they wait for.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self.running = 0
        self._inside = False

    def ask(self, reason: str) -> None:
        self.reason = self.reason or reason

    @contextmanager
    def on_signals(self, tell: Callable[[str], object] = str) -> Iterator[None]:
        """On the first SIGINT or SIGTERM ask to stop, and say so at once; on the second end the process."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def asked(number: int, _frame: FrameType | None) -> None:
            if self.reason is not None:
                raise KeyboardInterrupt
            self.ask(signal.Signals(number).name)
            if self._inside:
                signal.setitimer(signal.ITIMER_REAL, GRACE, AGAIN)
            # In a thread of its own: this one may just be in the midst of writing a line.
            with suppress(RuntimeError):
                threading.Thread(target=tell, args=(self._said(),), name="stop", daemon=True).start()

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
                signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: not of Python's making

    @contextmanager
    def computing_here(self) -> Iterator[None]:
        """Where calls are computed in this thread: OutOfTime, GRACE seconds after a signal has asked inside."""
        self._inside = True
        try:
            yield
        finally:
            self._inside = False

    def _said(self) -> str:
        calls = "what is running" if self.running == 0 else f"{self.running} running call{'s'[: self.running != 1]}"
        wait = f"{calls} may take {GRACE:.0f} s more to end"
        return f"{self.reason}: nothing more is begun, {wait}; once more (Ctrl-C) ends the run at once"
