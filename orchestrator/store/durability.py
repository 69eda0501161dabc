"""When a file's name outlives a power cut: file systems differ, and a commit waits for the disk no more than it must.

POSIX promises nothing of a name before its folder is synced, which is a second wait for the disk. Two kinds of file
system promise more, and Linux names the kind of each in `/proc/self/mountinfo`:

ext4 and XFS keep one ordered journal of names and inodes. The sync of a file brings all that came before it there to
the disk: the file's own names, and the folders above them.

An NFS client's creations, links and removals have reached the server's disk when they return; to sync a folder does
nothing there (`nfs_fsync_dir`; RFC 1813, "Synchronous modifying operations").
"""

from __future__ import annotations

import os
from contextlib import suppress
from enum import Enum
from pathlib import Path


class Names(Enum):
    """What a file's name waits for until it is durable."""

    FOLDER = "the sync of its folder"
    FILE = "the sync of the file"
    NOTHING = "nothing"


DURABLE_BY = {"ext4": Names.FILE, "xfs": Names.FILE, "nfs": Names.NOTHING, "nfs4": Names.NOTHING}


# File systems of one machine, whose kernel gives a file another inode or another time of change (`ctime`), which
# no program sets, with every change of its bytes, also of those that are mapped. Of others that is not known.
STAMPING = ("ext4", "xfs", "btrfs")


def file_system(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str | None:
    """The kind of the file system of a folder, as Linux names it; None where that is not known."""
    with suppress(OSError, ValueError, IndexError):
        device = os.stat(folder).st_dev
        number = f"{os.major(device)}:{os.minor(device)}"
        for mount in (line.split() for line in mounts.read_text(errors="replace").splitlines()):
            if mount[2] == number:  # the fields of proc_pid_mountinfo(5): the type follows a lone hyphen
                return mount[mount.index("-") + 1]
    return None


def is_stamping(folder: Path) -> bool:
    """Whether files in a folder are certain to get another number or time of change with any change of their bytes."""
    return file_system(folder) in STAMPING


def names_in(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> Names:
    """What names in a folder wait for; the folder's sync wherever that is not known."""
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
        self._lasting: set[Path] = set()  # folders whose own names are durable, or will be with a file in them

    def make(self, folder: Path) -> None:
        """Create a folder if it does not exist, one level only: a store that has gone is not created again.

        Another process may have created it, and its parent, and died before it synced them.
        """
        if folder in self._lasting:
            return
        if not folder.exists():
            folder.mkdir(exist_ok=True)
        if self.names is Names.FOLDER:
            above = folder.parent
            if above != self._root and above not in self._lasting:
                sync(above.parent)
                self._lasting.add(above)
            sync(above)
        self._lasting.add(folder)
