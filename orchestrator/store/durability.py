"""Durability of file names, which differs between file systems. A commit syncs no more than necessary.

POSIX guarantees a name only after its folder is synced, which means waiting for the disk a second time. Two groups of
file systems guarantee more. Linux reports the file system of each mount in `/proc/self/mountinfo`:

ext4 and XFS have one ordered journal of names and inodes. Syncing a file writes all earlier entries to the disk,
including the file's own names and the folders above them.

On NFS, a file creation, link or removal has reached the server's disk when it returns. Syncing a folder has no effect
(`nfs_fsync_dir`; RFC 1813, "Synchronous modifying operations").
"""

from __future__ import annotations

import os
from contextlib import suppress
from enum import Enum
from pathlib import Path


class Names(Enum):
    """The operation that makes a file name durable."""

    FOLDER = "the sync of its folder"
    FILE = "the sync of the file"
    NOTHING = "nothing"


DURABLE_BY = {"ext4": Names.FILE, "xfs": Names.FILE, "nfs": Names.NOTHING, "nfs4": Names.NOTHING}


# Local file systems on which every change to a file's bytes, even through a memory map, changes its inode or change
# time (`ctime`, which no program can set). For other file systems this is unknown.
STAMPING = ("ext4", "xfs", "btrfs")


def file_system(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str | None:
    """Return the type of a folder's file system, as Linux names it. Returns None if unknown."""
    with suppress(OSError, ValueError, IndexError):
        device = os.stat(folder).st_dev
        number = f"{os.major(device)}:{os.minor(device)}"
        for mount in (line.split() for line in mounts.read_text(errors="replace").splitlines()):
            if mount[2] == number:  # the fields are those of proc_pid_mountinfo(5): the type follows a lone hyphen
                return mount[mount.index("-") + 1]
    return None


def is_stamping(folder: Path) -> bool:
    """Whether any change to a file's bytes in this folder is certain to change its inode or change time."""
    return file_system(folder) in STAMPING


def names_in(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> Names:
    """Return the operation that makes names in a folder durable. If unknown, this is syncing the folder."""
    return DURABLE_BY.get(file_system(folder, mounts) or "", Names.FOLDER)


def sync(path: Path) -> None:
    """Sync a file, or a folder so that its entries survive a power failure."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Folders:
    """Creates folders below `root` durably: a folder is never lost once a file in it is durable."""

    def __init__(self, root: Path) -> None:
        self.names = names_in(root)
        self.stamping = is_stamping(root)
        self._root = root
        self._lasting: set[Path] = set()  # folders whose names are durable, or will be once a file in them is

    def make(self, folder: Path) -> None:
        """Create a folder if it does not exist. Creates one level only, so that a removed store is not recreated.

        Another process may have created the folder and its parent and died before syncing them.
        """
        if folder in self._lasting:
            return
        if not folder.exists():
            folder.mkdir(exist_ok=True)
        if self.names is Names.FOLDER:
            parent = folder.parent
            if parent != self._root and parent not in self._lasting:
                sync(parent.parent)
                self._lasting.add(parent)
            sync(parent)
        self._lasting.add(folder)
