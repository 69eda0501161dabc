"""The durability of file names, which differs between file systems; a commit syncs no more than necessary.

POSIX guarantees a name only after its folder is synced, which is a second wait for the disk. Two kinds of file system
guarantee more; Linux reports the kind of each in `/proc/self/mountinfo`:

ext4 and XFS have one ordered journal of names and inodes. The sync of a file writes all earlier entries to the disk,
including the file's own names and the folders above them.

On NFS, creations, links and removals have reached the server's disk when they return; syncing a folder has no effect
(`nfs_fsync_dir`; RFC 1813, "Synchronous modifying operations").
"""

from __future__ import annotations

import os
from contextlib import suppress
from enum import Enum
from pathlib import Path


class Names(Enum):
    """The operation that makes a file's name durable."""

    FOLDER = "the sync of its folder"
    FILE = "the sync of the file"
    NOTHING = "nothing"


DURABLE_BY = {"ext4": Names.FILE, "xfs": Names.FILE, "nfs": Names.NOTHING, "nfs4": Names.NOTHING}


# Local file systems whose kernel changes a file's inode or time of change (`ctime`, which no program can set) with
# every change of its bytes, including mapped ones. For other file systems this is unknown.
STAMPING = ("ext4", "xfs", "btrfs")


def file_system(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str | None:
    """The kind of a folder's file system, as Linux names it; None if unknown."""
    with suppress(OSError, ValueError, IndexError):
        device = os.stat(folder).st_dev
        number = f"{os.major(device)}:{os.minor(device)}"
        for mount in (line.split() for line in mounts.read_text(errors="replace").splitlines()):
            if mount[2] == number:  # the fields of proc_pid_mountinfo(5): the type follows a lone hyphen
                return mount[mount.index("-") + 1]
    return None


def is_stamping(folder: Path) -> bool:
    """Whether any change of a file's bytes in this folder is certain to change its inode or time of change."""
    return file_system(folder) in STAMPING


def names_in(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> Names:
    """The operation that makes names in a folder durable; the folder's sync if unknown."""
    return DURABLE_BY.get(file_system(folder, mounts) or "", Names.FOLDER)


def sync(path: Path) -> None:
    """Sync a file, or a folder, so that its entries survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Folders:
    """Creates folders below `root` durably: none is lost once a file in it is durable."""

    def __init__(self, root: Path) -> None:
        self.names = names_in(root)
        self.stamping = is_stamping(root)
        self._root = root
        self._lasting: set[Path] = set()  # folders whose names are durable, or will be with a file in them

    def make(self, folder: Path) -> None:
        """Create a folder if it does not exist, one level only, so that a removed store is not created again.

        Another process may have created the folder and its parent, and died before syncing them.
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
