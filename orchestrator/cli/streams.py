"""Standard output and error that may be closed, full, or a pipe without a reader."""

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
    """Standard output does not take the command's result."""


class Output(io.FileIO):
    """Standard output: what it does not take ends the command in one line; a pipe's reader has seen enough."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise Unprintable(f"cannot write to standard output: {error.strerror}") from None


class Messages(io.FileIO):
    """Standard error whose write errors are ignored."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def stand_in() -> None:
    """Make `sys.stdout` and `sys.stderr` streams that are there whatever became of the descriptors.

    A closed one is taken, so that no file of the store gets its number and with it what libraries print.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # Not to be written, so that standard output says what is wrong with it.
            os.open(os.devnull, os.O_RDONLY)
    if sys.stdout is sys.__stdout__:
        sys.stdout = _text(Output(1, "w", closefd=False), sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _text(Messages(2, "w", closefd=False), sys.stderr)


def give_up_output() -> None:
    """Let the interpreter's end find nothing of standard output that it could fail to write."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _text(raw: io.FileIO, before: TextIO | None) -> TextIO:
    """A text stream on this, with the encoding that Python has chosen for the one before."""
    encoding = getattr(before, "encoding", None) or "utf-8"
    # A letter that the encoding has not is escaped: a table is not kept back for a name in it.
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, "backslashreplace", line_buffering=True)
