"""What a thread prints while it computes: it appears on stderr, since stdout is for results, and its end is kept."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from orchestrator.store.failure_log import PRINTED_BYTES


class Stream:
    """Stands for a stream: what the thread that made it writes is `shown` elsewhere, and its end is kept."""

    def __init__(self, stream: Any, shown: Any) -> None:
        self._stream = stream
        self._shown = shown
        self._thread = threading.get_ident()
        self._kept: deque[str] = deque()
        self._size = 0

    def write(self, text: str) -> Any:
        if threading.get_ident() != self._thread:
            return self._stream.write(text)
        self._kept.append(text)
        self._size += len(text)
        while self._size - len(self._kept[0]) >= PRINTED_BYTES:
            self._size -= len(self._kept.popleft())
        return self._shown.write(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def text(self) -> str:
        return "".join(self._kept)[-PRINTED_BYTES:]

    def clear(self) -> None:
        self._kept.clear()
        self._size = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Printed:
    """The ends of what was printed to stdout and to stderr."""

    def __init__(self, stdout: Stream, stderr: Stream) -> None:
        self._streams = stdout, stderr

    def texts(self) -> dict[str, str]:
        return {name: stream.text() for name, stream in zip(("stdout", "stderr"), self._streams, strict=True)}

    def clear(self) -> None:
        for stream in self._streams:
            stream.clear()


@contextmanager
def keep_printed() -> Iterator[Printed]:
    """Keep what this thread prints inside the block through `sys.stdout` and `sys.stderr`, as warnings do.

    What C code writes by itself, and what other threads and processes print, appears where it always did, and is not
    kept.
    """
    before = sys.stdout, sys.stderr
    streams = Stream(sys.stdout, sys.stderr), Stream(sys.stderr, sys.stderr)
    sys.stdout, sys.stderr = streams
    try:
        yield Printed(*streams)
    finally:
        for name, ours, theirs in zip(("stdout", "stderr"), streams, before, strict=True):
            if getattr(sys, name) is ours:  # the task may have set one of its own, and left it
                setattr(sys, name, theirs)
