"""Captures the output that a thread prints while it computes.

The output is shown on stderr, because stdout is for results, and the last part is kept.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from orchestrator.store.failure_log import PRINTED_BYTES
from orchestrator.store.job_files import STREAMS


class Stream:
    """Replaces a stream. Text from the thread that created it goes to `display`, and the last part is kept."""

    def __init__(self, stream: Any, display: Any) -> None:
        self._stream = stream
        self._display = display
        self._thread = threading.get_ident()
        self._texts: deque[str] = deque()
        self._size = 0
        self._copy: IO[str] | None = None

    def write(self, text: str) -> Any:
        if threading.get_ident() != self._thread:
            return self._stream.write(text)
        self._texts.append(text)
        self._size += len(text)
        while self._size - len(self._texts[0]) >= PRINTED_BYTES:
            self._size -= len(self._texts.popleft())
        if self._copy is not None:
            self._copy_text(text)
        return self._display.write(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def text(self) -> str:
        return "".join(self._texts)[-PRINTED_BYTES:]

    def clear(self) -> None:
        self._texts.clear()
        self._size = 0

    def start_copy(self, path: Path) -> None:
        """Append the kept text, and from now on all text, to this file."""
        self._copy = open(path, "a", encoding="utf-8", errors="replace")  # noqa: SIM115 (see stop_copy)
        if text := self.text():
            self._copy_text(text)

    def stop_copy(self) -> None:
        if self._copy is not None:
            with suppress(OSError):
                self._copy.close()
            self._copy = None

    def _copy_text(self, text: str) -> None:
        assert self._copy is not None
        with suppress(OSError):  # a full disk must not fail the job that prints
            self._copy.write(text)
            self._copy.flush()  # so that readers see it at once, in order with the output of programs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Printed:
    """The last parts of the output to stdout and stderr."""

    def __init__(self, stdout: Stream, stderr: Stream) -> None:
        self._streams = dict(zip(STREAMS, (stdout, stderr), strict=True))

    def texts(self) -> dict[str, str]:
        result = {}
        for name, stream in self._streams.items():
            result[name] = stream.text()
        return result

    def clear(self) -> None:
        for stream in self._streams.values():
            stream.clear()

    def start_copy(self, folder: Path) -> None:
        """Append the kept output, and from now on all output, to the files `stdout` and `stderr` in this folder."""
        for name, stream in self._streams.items():
            stream.start_copy(folder / name)

    def stop_copy(self) -> None:
        for stream in self._streams.values():
            stream.stop_copy()


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
        for stream in streams:
            stream.stop_copy()
        for name, stream, original in zip(STREAMS, streams, original_streams, strict=True):
            if getattr(sys, name) is stream:  # the task may have replaced the stream
                setattr(sys, name, original)
