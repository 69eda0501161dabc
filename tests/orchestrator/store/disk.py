"""A simulated disk that refuses system calls and shows what a crash or power cut leaves of a folder.

Files are real. Only syncing is simulated and recorded: a power cut removes everything unsynced. Names become durable as
on one of the kinds of file system that the store distinguishes.
"""

from __future__ import annotations

import builtins
import contextlib
import fcntl
import io
import itertools
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.store.durability import Names

REAL_LSTAT = os.lstat
REAL_LISTDIR = os.listdir
REAL_OPEN = builtins.open
REAL_WRITE = os.write
BY_PATH = ("open", "mkdir", "link", "rename", "replace", "unlink", "stat", "lstat", "listdir")
BY_HANDLE = ("read", "writev", "readv", "fstat", "fsync", "close")


class Crash(BaseException):
    """The process is killed here: none of its later calls happens."""


class Disk:
    """All system calls on a folder while `watching`. `calls` lists them in order, and `refused` is the call that
    failed."""

    def __init__(self, root: Path, names: Names = Names.FOLDER) -> None:
        self.root = root
        self.names = names
        self.calls: list[str] = []
        self.refused = ""
        self.remembers = True  # whether syncing has an effect; another process may die before it syncs
        self._at: int | None = None
        self._error: Callable[[], BaseException] = Crash
        self._handles: dict[int, Path] = {}
        self._numbers: dict[int, int] = {}  # an inode's, which is given to another file one day, to ours
        self._fresh = itertools.count()
        self._names: dict[int, dict[str, int]] = {}  # of folders, on the disk
        self._bytes: dict[int, bytes] = {}  # of files, on the disk
        for folder, _, files in os.walk(root):
            for name in files:
                self.keep(os.path.join(folder, name))
        self._keep_names()

    @property
    def crashed(self) -> bool:
        return self._at is not None and len(self.calls) >= self._at and self._error is Crash

    def refuse(self, number: int, error: Callable[[], BaseException]) -> None:
        """Raise an error instead of call `number`, counted from 1. A Crash also replaces all later calls."""
        self._at = number
        self._error = error
        self.calls = []

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for name in BY_PATH:
                patch.setattr(os, name, self._by_path(name, getattr(os, name)))
            for name in BY_HANDLE:
                patch.setattr(os, name, self._by_handle(name, getattr(os, name)))
            patch.setattr(fcntl, "flock", self._by_handle("flock", fcntl.flock))
            opened = self._by_path("read", builtins.open)
            patch.setattr(builtins, "open", opened)
            patch.setattr(io, "open", opened)
            yield

    def after_power_cut(self, to: Path, eager: bool = False) -> Path:
        """The folder after a power cut, restored in another one.

        Unsynced names and bytes are gone. On an `eager` disk, names persist and only bytes are gone.
        """
        self._restore(self._number(os.stat(self.root)), self.root, to, eager)
        return to

    def _restore(self, number: int, real: Path, to: Path, eager: bool) -> None:
        to.mkdir()
        names = self._names.get(number, {})
        if eager and real.is_dir():
            names = {name: self._number(REAL_LSTAT(real / name)) for name in REAL_LISTDIR(real)}
        for name, inner in names.items():
            if inner in self._names or (eager and (real / name).is_dir()):
                self._restore(inner, real / name, to / name, eager)
            else:
                (to / name).write_bytes(self._bytes.get(inner, b""))

    def _by_path(self, name: str, act: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *arguments: Any, **more: Any) -> Any:
            if not self._ours(path):
                return act(path, *arguments, **more)
            self._count(name, path)
            if name in ("unlink", "replace", "rename"):
                self._retire(path if name == "unlink" else arguments[0])
            result = act(path, *arguments, **more)
            if name == "open":
                self._handles[result] = Path(path)
            if name == "mkdir":
                self._names[self._number(REAL_LSTAT(path))] = {}
            if self.names is Names.NOTHING:
                self._keep_names()
            return result

        return call

    def _by_handle(self, name: str, act: Callable[..., Any]) -> Callable[..., Any]:
        def call(handle: Any, *arguments: Any) -> Any:
            if handle not in self._handles:
                return act(handle, *arguments)
            path = self._handles[handle]
            if name == "close":  # in any case, so that none is left open
                del self._handles[handle]
                act(handle)
            dead = self.crashed
            try:
                self._count(name, path)
            except BaseException:
                if name == "writev" and not dead:
                    data = b"".join(arguments[0])
                    REAL_WRITE(handle, data[: len(data) // 2])
                raise
            if name == "fsync":
                return self._sync(path) if self.remembers else None
            return None if name == "close" else act(handle, *arguments)

        return call

    def _count(self, name: str, path: Any) -> None:
        self.calls.append(f"{name} {path}")
        if len(self.calls) == self._at or self.crashed:
            self.refused = self.refused or self.calls[-1]
            raise self._error()

    def _ours(self, path: Any) -> bool:
        return isinstance(path, str | os.PathLike) and Path(path).is_relative_to(self.root)

    def _sync(self, path: Path) -> None:
        self.keep(path)
        if self.names is Names.FILE:  # the journal up to here
            self._keep_names()

    def _keep_names(self, folder: str | None = None) -> None:
        """Make all present names durable. Uses no watched call."""
        folder = folder or str(self.root)
        self.keep(folder)
        for path in (os.path.join(folder, name) for name in REAL_LISTDIR(folder)):
            if stat.S_ISDIR(REAL_LSTAT(path).st_mode):
                self._keep_names(path)

    def keep(self, path: Any) -> None:
        """Make the present content of a path durable."""
        status = REAL_LSTAT(path)
        number = self._number(status)
        if stat.S_ISDIR(status.st_mode):
            self._names[number] = {
                name: self._number(REAL_LSTAT(os.path.join(path, name))) for name in REAL_LISTDIR(path)
            }
        elif stat.S_ISREG(status.st_mode):
            with REAL_OPEN(path, "rb") as file:
                self._bytes[number] = file.read()

    def _number(self, status: os.stat_result) -> int:
        if status.st_ino not in self._numbers:
            self._numbers[status.st_ino] = next(self._fresh)
        return self._numbers[status.st_ino]

    def _retire(self, path: Any) -> None:
        """Forget a deleted file's inode number, which another file may get."""
        with contextlib.suppress(FileNotFoundError):
            status = REAL_LSTAT(path)
            if status.st_nlink == 1:
                self._numbers.pop(status.st_ino, None)
