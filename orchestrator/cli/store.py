"""The store that a command uses, its output paths, and the handling of unexpected errors."""

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
    """Open the store for a command.

    An unexpected error is reported in one line, and its traceback is saved in the store.
    """
    from orchestrator.store import is_there, open_store

    path = store_location(location)
    if not create and not is_there(path):
        raise SpecError(
            f"there is no store at {path}; run an audit first, or set the location with --store or ENGRAM_STORE"
        )
    opened_store = open_store(path, create)
    try:
        yield opened_store
    except KeyboardInterrupt:
        say("engram: stopped immediately; stored results are kept; repeat the command to continue")
        raise
    except (EngramError, BrokenPipeError, typer.Exit):
        raise
    except Exception as error:
        if DEBUG in sys.argv:
            raise
        if isinstance(error, OSError) and error.errno in atomic_write.DISK_ERRORS:
            path_in_error = error.filename or opened_store.location
            raise StoreError(
                f"cannot use {path_in_error}: {error.strerror}; fix the problem and repeat the command to continue"
            ) from error
        raise EngramError(_save_traceback(error, opened_store)) from error


@contextlib.contextmanager
def report_interrupt() -> Iterator[None]:
    """Report the interruption if Ctrl-C is pressed before the command has opened a store."""
    try:
        yield
    except KeyboardInterrupt:
        say("engram: stopped before the run was started")
        raise


def _save_traceback(error: Exception, opened_store: Store) -> str:
    """Write a traceback to the store and return the message to show."""
    import time
    import traceback

    line = f"unexpected {type(error).__name__}: {one_line(error)}"
    try:
        path = opened_store.folder("crashes") / f"{time.strftime('%Y-%m-%dT%H-%M-%S')}-{time.time_ns() % 10**9:09d}.txt"
        path.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
    except (EngramError, OSError) as refused:  # reported together with the original error
        return f"{line} (a bug in engram; {DEBUG} shows the traceback, which could not be saved: {refused})"
    return f"{line} (a bug in engram; its traceback is in {path})"


def store_option(location: str | None) -> str:
    """Return the `--store` option that a command needs for this store.

    Returns an empty string if the default applies.
    """
    if location is None or location == os.environ.get("ENGRAM_STORE"):
        return ""
    return f" --store {shlex.quote(location)}"


def path_of(option: str, text: str) -> Path:
    """Return the path given by an option. Raises SpecError if it refers to the home directory of an unknown user."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise SpecError(f"{option} {text}: there is no user of that name") from None


def output_file(option: str, text: str, suffixes: Collection[str] = ()) -> Path:
    """Return the path of the file that a command writes when it finishes, checked before the work begins.

    Raises SpecError if its suffix is not in `suffixes`, or if it cannot be written, for example because it is a folder
    or because its folder does not exist.
    """
    if not text.strip():
        raise SpecError(f"{option} is empty; it must be the file to write")
    path = path_of(option, text)
    if suffixes and path.suffix not in suffixes:
        raise SpecError(f"{option} {text}: its name must end in {', '.join(suffixes)}")
    try:
        is_new = not os.path.lexists(path)
        # Reject a pipe without a reader instead of blocking on it.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o666))
        if is_new:
            path.unlink()
    except (OSError, ValueError) as error:
        if not path.absolute().parent.is_dir():
            raise SpecError(f"{option} {text}: the folder {path.parent} does not exist") from None
        raise SpecError(f"{option} {text} cannot be written: {getattr(error, 'strerror', None) or error}") from None
    return path


def output_folder(option: str, text: str) -> Path:
    """Return the path of the folder that a command fills when it finishes, checked before the work begins.

    Raises SpecError if it is not a folder, or cannot be created or written to.
    """
    if not text.strip():
        raise SpecError(f"{option} is empty; it must be the folder to write")
    path = path_of(option, text)
    try:
        existing = next(
            ancestor for ancestor in (path.absolute(), *path.absolute().parents) if os.path.lexists(ancestor)
        )
        if not existing.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        with tempfile.TemporaryDirectory(prefix=".engram-", dir=existing) as draft:
            for name in path.absolute().relative_to(existing).parts:
                (Path(draft) / name).touch()
    except (OSError, ValueError) as error:
        raise SpecError(f"{option} {text} cannot be written: {getattr(error, 'strerror', None) or error}") from None
    return path


def one_line(error: object) -> str:
    """Return the message of an error as one line."""
    return printable(" ".join(str(error).split())).removesuffix(".")
