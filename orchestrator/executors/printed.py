"""Captures the output that a thread prints while it computes.

The output is shown on stderr, because stdout is for results, and the last part is kept.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from orchestrator.store.failure_log import PRINTED_BYTES


class Stream:
    """Replaces a stream. Text from the thread that created it goes to `display`, and the last part is kept."""

    def __init__(self, stream: Any, display: Any) -> None:
        self._stream = stream
        self._display = display
        self._thread = threading.get_ident()
        self._texts: deque[str] = deque()
        self._size = 0

    def write(self, text: str) -> Any:
        if threading.get_ident() != self._thread:
            return self._stream.write(text)
        self._texts.append(text)
        self._size += len(text)
        while self._size - len(self._texts[0]) >= PRINTED_BYTES:
            self._size -= len(self._texts.popleft())
        return self._display.write(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def text(self) -> str:
        return "".join(self._texts)[-PRINTED_BYTES:]

    def clear(self) -> None:
        self._texts.clear()
        self._size = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Printed:
    """The last parts of the output to stdout and stderr."""

    def __init__(self, stdout: Stream, stderr: Stream) -> None:
        self._streams = stdout, stderr

    def texts(self) -> dict[str, str]:
        result = {}
        for name, stream in zip(("stdout", "stderr"), self._streams, strict=True):
            result[name] = stream.text()
        return result

    def clear(self) -> None:
        for stream in self._streams:
            stream.clear()


@contextmanager
def keep_printed() -> Iterator[Printed]:
    """Capture this thread's output to `sys.stdout` and `sys.stderr` inside the block, including warnings.

    Output written directly by C code, or by other threads and processes, is not captured and appears as usual.
    """
    original_streams = sys.stdout, sys.stderr
    streams = Stream(sys.stdout, sys.stderr), Stream(sys.stderr, sys.stderr)
    sys.stdout, sys.stderr = streams
    try:
        yield Printed(*streams)
    finally:
        for name, stream, original in zip(("stdout", "stderr"), streams, original_streams, strict=True):
            if getattr(sys, name) is stream:  # the task may have replaced the stream
                setattr(sys, name, original)
