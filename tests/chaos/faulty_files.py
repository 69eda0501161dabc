"""A file system that passes everything on to a folder, with faults.

    python -m tests.chaos.faulty_files BACKING MOUNT FAULTS

FAULTS is JSON: a list of faults, each with its `calls` (such as `write`), and
    after, times   how many calls pass before it, and how many it then comes to
    share          or the share of all calls that it comes to
    delay          seconds for which it holds a call up
    error          the error that it raises instead of the call (EIO, ESTALE, ENOSPC, ...)
    done           whether the call has been done nevertheless, as when the reply of a server is lost
    part           how much of a write is done before the error; without an error it is a short write
and options of the mount: {"attr_timeout": 30, ...}.
"""

from __future__ import annotations

import errno
import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mfusepy

STATUS = ("st_mode", "st_nlink", "st_uid", "st_gid", "st_size", "st_ino")


class FaultyFiles(mfusepy.Operations):  # type: ignore[misc]
    use_ns = True

    def __init__(self, root: str, faults: Sequence[dict[str, Any]]) -> None:
        self._root = root
        self._faults = [{"seen": 0, **fault} for fault in faults]
        self._random = random.Random(0)
        self._lock = threading.Lock()

    def _met(self, call: str) -> dict[str, Any] | None:
        """The fault that applies to this call, after its delay."""
        with self._lock:
            for fault in self._faults:
                if call in fault["calls"]:
                    fault["seen"] += 1
                    number = fault["seen"] - fault.get("after", 0)
                    if self._random.random() < fault["share"] if "share" in fault else 0 < number <= fault["times"]:
                        break
            else:
                return None
        time.sleep(fault.get("delay", 0.0))
        return fault

    def _call(self, name: str, do: Callable[[], Any]) -> Any:
        fault = self._met(name)
        if fault is None or "error" not in fault:
            return do()
        if fault.get("done"):
            do()
        raise mfusepy.FuseOSError(getattr(errno, fault["error"]))

    def _path(self, path: str) -> str:
        return self._root + path

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        status = self._call("getattr", lambda: os.lstat(self._path(path)))
        times = {}
        for name in ("st_atime", "st_mtime", "st_ctime"):
            times[name] = getattr(status, f"{name}_ns")
        return {name: getattr(status, name) for name in STATUS} | times

    def readdir(self, path: str, fh: int) -> list[str]:
        names: list[str] = self._call("readdir", lambda: os.listdir(self._path(path)))
        return [".", "..", *names]

    def mkdir(self, path: str, mode: int) -> Any:
        return self._call("mkdir", lambda: os.mkdir(self._path(path), mode))

    def rmdir(self, path: str) -> Any:
        return os.rmdir(self._path(path))

    def unlink(self, path: str) -> Any:
        return self._call("unlink", lambda: os.unlink(self._path(path)))

    def rename(self, old: str, new: str, *flags: int) -> Any:
        return self._call("rename", lambda: os.rename(self._path(old), self._path(new)))

    def link(self, target: str, source: str) -> Any:
        return self._call("link", lambda: os.link(self._path(source), self._path(target)))

    def symlink(self, target: str, source: str) -> Any:
        return os.symlink(source, self._path(target))

    def readlink(self, path: str) -> str:
        return os.readlink(self._path(path))

    def chmod(self, path: str, mode: int) -> Any:
        return os.chmod(self._path(path), mode)

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> Any:
        return self._call("utimens", lambda: os.utime(self._path(path), ns=times))

    def statfs(self, path: str) -> dict[str, int]:
        status = os.statvfs(self._path(path))
        names = ("f_bavail", "f_bfree", "f_blocks", "f_bsize", "f_frsize", "f_namemax")
        return {name: getattr(status, name) for name in names}

    def open(self, path: str, flags: int) -> int:
        # The kernel gives every write its place.
        handle: int = self._call("open", lambda: os.open(self._path(path), flags & ~os.O_APPEND))
        return handle

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        handle: int = self._call("create", lambda: os.open(self._path(path), os.O_RDWR | os.O_CREAT | os.O_TRUNC, mode))
        return handle

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        data: bytes = self._call("read", lambda: os.pread(fh, size, offset))
        return data

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        fault = self._met("write")
        if fault is None or not {"error", "part"} & fault.keys():
            return os.pwrite(fh, data, offset)
        written_bytes = os.pwrite(fh, data[: max(1, int(len(data) * fault.get("part", 1.0)))], offset)
        if "error" in fault:
            raise mfusepy.FuseOSError(getattr(errno, fault["error"]))
        return written_bytes

    def truncate(self, path: str, length: int, fh: int | None = None) -> Any:
        return self._call("truncate", lambda: os.truncate(self._path(path), length))

    def fsync(self, path: str, datasync: int, fh: int) -> Any:
        return self._call("fsync", lambda: os.fsync(fh))

    def fsyncdir(self, path: str, datasync: int, fh: int) -> Any:
        return self._call("fsyncdir", lambda: None)

    def flush(self, path: str, fh: int) -> int:
        self._call("flush", lambda: None)
        return 0

    def release(self, path: str, fh: int) -> Any:
        return os.close(fh)


if __name__ == "__main__":
    backing, mount, options_text = sys.argv[1:]
    options = json.loads(options_text)
    files = FaultyFiles(str(Path(backing).resolve()), options.pop("faults"))
    mfusepy.FUSE(files, mount, foreground=True, **options)
