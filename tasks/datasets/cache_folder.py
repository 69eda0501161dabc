"""The cache folder of this machine, with a bound on its size.

The folder is ENGRAM_CACHE or, if that is not set, `engram` in the user's cache folder. ENGRAM_CACHE_SIZE, such as
200GB, bounds the size of all files in it; without it, only the disk does. If there is too little room for a new file of
images, those that were not used for the longest time are removed, but never a file that a process on this machine is
reading. All files may be deleted at any time.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tasks.contract.quantities import ByteCount
from tasks.datasets.dataset import DatasetError
from tasks.worker.files import expand_home

SIZE_VARIABLE = "ENGRAM_CACHE_SIZE"
# Files of images, which can be large: decoded data sets and squares, also of earlier versions.
IMAGES = re.compile(r"[0-9a-f]{64}\.(pixels|arrow|squares\.npy)")


def cache_folder() -> Path:
    """Return the cache folder, which need not exist."""
    configured_path = os.environ.get("ENGRAM_CACHE")
    if configured_path:
        return expand_home(configured_path).absolute()
    return expand_home(os.environ.get("XDG_CACHE_HOME") or "~/.cache").absolute() / "engram"


def allowed_size() -> ByteCount | None:
    """Return the size in bytes that the cache may have, or None if only the disk bounds it."""
    text = os.environ.get(SIZE_VARIABLE)
    if not text:
        return None
    try:
        return ByteCount.parse(text)
    except ValueError as error:
        raise DatasetError(f"{SIZE_VARIABLE}: {error}") from None


@dataclass(frozen=True)
class Room:
    """Bytes of the cache: of all files, of those that can be removed, and those that are free on the disk.

    `removable` are the files of images that no process is reading, in the order of their last use.
    """

    used: int
    removable: tuple[tuple[Path, int], ...]
    free: int
    allowed: int | None

    def missing(self, needed: int) -> int:
        """Return the bytes that must be removed before `needed` bytes are written."""
        missing = needed - self.free
        if self.allowed is not None:
            missing = max(missing, self.used + needed - self.allowed)
        return max(0, missing)

    def check(self, needed: int) -> None:
        """Raise DatasetError if there is no room for `needed` bytes, even without all removable files."""
        if self.missing(needed) <= sum(size for _, size in self.removable):
            return
        reason = f"the disk has {gigabytes(self.free)} free"
        remedy = "set ENGRAM_CACHE to a folder with more room"
        if self.allowed is not None and self.used + needed > self.allowed:
            reason = f"{SIZE_VARIABLE} allows {gigabytes(self.allowed)}"
            remedy = f"raise {SIZE_VARIABLE}"
        others = self.used - sum(size for _, size in self.removable)
        raise DatasetError(
            f"the images need {gigabytes(needed)} in the cache {cache_folder()}, but {reason}, and its other "
            f"files of {gigabytes(others)} cannot be removed; {remedy}"
        )


def measure_room() -> Room:
    folder = cache_folder()
    used = 0
    candidates = []
    with suppress(FileNotFoundError):
        for entry in os.scandir(folder):
            with suppress(OSError):  # removed by another process
                state = entry.stat(follow_symlinks=False)
                used += state.st_size
                if IMAGES.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    candidates.append((state.st_mtime, Path(entry.path), state.st_size))
    removable = tuple((path, size) for _, path, size in sorted(candidates) if not _is_in_use(path))
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    return Room(used, removable, shutil.disk_usage(existing).free, allowed_size())


def make_room(needed: int) -> None:
    """Remove unused files of images so that `needed` bytes can be written.

    Raises DatasetError, without removing anything, if that is impossible.
    """
    room = measure_room()
    room.check(needed)
    missing = room.missing(needed)
    for path, size in room.removable:
        if missing <= 0:
            return
        with suppress(FileNotFoundError):
            path.unlink()
        missing -= size


def open_in_use(path: Path) -> BinaryIO:
    """Open a file of images. It is in use until it is closed, and counts as used now."""
    file = open(path, "rb", buffering=0)  # noqa: SIM115 - open as long as its images are read
    with suppress(OSError):  # without file locks, the file may be removed, and is then written again
        fcntl.flock(file, fcntl.LOCK_SH)
        os.utime(path)
    return file


def _is_in_use(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
    except OSError:
        return True


def gigabytes(count: int) -> str:
    """Return a number of bytes in GB, with one decimal below 10 GB and two below 1 GB."""
    if count < 10**9:
        return f"{count / 10**9:.2f} GB"
    return f"{count / 10**9:.1f} GB" if count < 10**10 else f"{count / 10**9:,.0f} GB"
