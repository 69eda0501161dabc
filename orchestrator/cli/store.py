"""The store that a command works on, and the handling of unexpected errors."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import sys
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from orchestrator.cli.terminal import say
from orchestrator.errors import EngramError, SpecError, StoreError
from orchestrator.quantities import printable
from orchestrator.store import atomic_write, store_location

if TYPE_CHECKING:
    from orchestrator.store import Store

DEBUG = "--debug"


@contextlib.contextmanager
def command_store(location: str | None, create: bool = False) -> Iterator[Store]:
    """The store for a command. An unexpected error ends as one line; its traceback is kept in the store."""
    from orchestrator.store import is_there, open_store

    place = store_location(location)
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


def output_file(option: str, text: str, suffixes: Collection[str] = ()) -> Path:
    """The path of the file that an option has written at the end of a command, checked before the work begins.

    Raises SpecError if it has none of the `suffixes`, or cannot be written: a folder, or one that is missing, say.
    """
    if not text.strip():
        raise SpecError(f"{option} is empty; it must be the file to write")
    path = path_of(option, text)
    if suffixes and path.suffix not in suffixes:
        raise SpecError(f"{option} {text}: its name must end in {', '.join(suffixes)}")
    try:
        is_new = not os.path.lexists(path)
        # A pipe without a reader is refused rather than waited for.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o666))
        if is_new:
            path.unlink()
    except (OSError, ValueError) as error:
        if not path.absolute().parent.is_dir():
            raise SpecError(f"{option} is {text}; the folder it is written to must exist") from None
        raise SpecError(f"{option} {text} cannot be written: {getattr(error, 'strerror', None) or error}") from None
    return path


def output_folder(option: str, text: str) -> Path:
    """The path of the folder that an option has filled at the end of a command, checked before the work begins.

    Raises SpecError if it is no folder, or cannot be made or written to.
    """
    if not text.strip():
        raise SpecError(f"{option} is empty; it must be the folder to write")
    path = path_of(option, text)
    try:
        existing = next(above for above in (path.absolute(), *path.absolute().parents) if os.path.lexists(above))
        if not existing.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        with tempfile.TemporaryDirectory(prefix=".engram-", dir=existing) as draft:
            for name in path.absolute().relative_to(existing).parts:
                (Path(draft) / name).touch()
    except (OSError, ValueError) as error:
        raise SpecError(f"{option} {text} cannot be written: {getattr(error, 'strerror', None) or error}") from None
    return path


def one_line(error: object) -> str:
    """The message of an error in one line."""
    return printable(" ".join(str(error).split())).removesuffix(".")
