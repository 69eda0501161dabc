"""What can go wrong outside a task, each with the exit code it ends the command with."""

from __future__ import annotations


class EngramError(Exception):
    """An error shown to the user in one line. Exit code 1 unless a subclass sets another."""

    exit_code = 1


class SpecError(EngramError):
    """Bad usage or configuration: what was found, where, and what is allowed."""

    exit_code = 2


class StoreError(EngramError):
    """The store cannot be opened, or something in it cannot be read."""


class Unwritable(StoreError):
    """The store refuses writes (full, read-only, no permission): a pause, not a failure of any job."""


class Absent(StoreError):
    """No result under this key."""


class Damaged(StoreError):
    """A result's bytes are not what was written. It has been set aside."""


class Unreadable(StoreError):
    """A result exists but cannot be read for now, so whether it is sound is unknown."""


class Held(EngramError):
    """Another living driver has this run."""


class ClusterError(EngramError):
    """The Ray cluster cannot be reached or used."""
