"""The store that a command works on, and the handling of unexpected errors."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from orchestrator.cli.terminal import say
from orchestrator.errors import EngramError, SpecError, StoreError
from orchestrator.quantities import printable
from orchestrator.store import DEFAULT_STORE, atomic_write

if TYPE_CHECKING:
    from orchestrator.store import Store

DEBUG = "--debug"


@contextlib.contextmanager
def command_store(location: str | None, create: bool = False) -> Iterator[Store]:
    """The store for a command. An unexpected error ends as one line; its traceback is kept in the store."""
    from orchestrator.store import is_there, open_store

    place = location or DEFAULT_STORE
    if not create and not is_there(place):
        raise SpecError(
            f"there is no store at {place}; run something first, or give its place by --store or ENGRAM_STORE"
        )
    opened = open_store(place, create)
    try:
        yield opened
    except KeyboardInterrupt:
        say("engram: stopped at once; what is stored stays, and the same command goes on from there")
        raise
    except (EngramError, BrokenPipeError, typer.Exit):
        raise
    except Exception as error:
        if DEBUG in sys.argv:
            raise
        if isinstance(error, OSError) and error.errno in atomic_write.AWAY:
            where = error.filename or opened.location
            raise StoreError(
                f"cannot use {where}: {error.strerror}; the same command goes on once that is mended"
            ) from error
        raise EngramError(_save_traceback(error, opened)) from error


@contextlib.contextmanager
def report_interrupt() -> Iterator[None]:
    """Say that the command has stopped, on Ctrl-C before it has a store."""
    try:
        yield
    except KeyboardInterrupt:
        say("engram: stopped; nothing was begun")
        raise


def _save_traceback(error: Exception, opened: Store) -> str:
    """Write a traceback into the store; return the message."""
    import time
    import traceback

    line = f"unexpected {type(error).__name__}: {one_line(error)}"
    try:
        path = opened.folder("crashes") / f"{time.strftime('%Y-%m-%dT%H-%M-%S')}-{time.time_ns() % 10**9:09d}.txt"
        path.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
    except (EngramError, OSError) as refused:  # reported besides the original error
        return f"{line} (a fault of engram's own; with {DEBUG} you see where, since no note can be left: {refused})"
    return f"{line} (a fault of engram's own; its traceback is in {path})"


def store_option(location: str | None) -> str:
    """The `--store` option that a command needs for this store; empty if the default applies."""
    if location is None or location == os.environ.get("ENGRAM_STORE"):
        return ""
    return f" --store {shlex.quote(location)}"


def path_of(option: str, text: str) -> Path:
    """The path given by an option. Raises SpecError for the home of an unknown user."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise SpecError(f"{option} {text}: there is no home of that name") from None


def one_line(error: object) -> str:
    """The message of an error in one line."""
    return printable(" ".join(str(error).split())).removesuffix(".")
