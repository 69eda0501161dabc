"""Standard output and error streams that may be closed, full, or pipes without a reader."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

from orchestrator.errors import EngramError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class Unprintable(EngramError):
    """Raised if standard output cannot be written."""


class Output(io.FileIO):
    """Standard output whose write errors raise Unprintable. A closed pipe raises BrokenPipeError."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise Unprintable(f"cannot write to standard output: {error.strerror}") from None


class Messages(io.FileIO):
    """Standard error stream that ignores write errors."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def stand_in() -> None:
    """Make `sys.stdout` and `sys.stderr` usable even if their descriptors are closed.

    A closed descriptor is opened on /dev/null. Otherwise a store file could be assigned its number, and the output of
    libraries would be written into that file.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # Read-only, so that writing to standard output raises an error.
            os.open(os.devnull, os.O_RDONLY)
    if sys.stdout is sys.__stdout__:
        sys.stdout = _text(Output(1, "w", closefd=False), sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _text(Messages(2, "w", closefd=False), sys.stderr)


def give_up_output() -> None:
    """Redirect standard output to /dev/null, so that the interpreter does not fail when it flushes at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _text(raw: io.FileIO, replaced_stream: TextIO | None) -> TextIO:
    """Wrap `raw` in a text stream with the encoding of `replaced_stream`."""
    encoding = getattr(replaced_stream, "encoding", None) or "utf-8"
    # Unencodable characters are escaped, so that a name that contains one does not prevent the output.
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, "backslashreplace", line_buffering=True)
