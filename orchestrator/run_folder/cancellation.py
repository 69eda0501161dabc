"""Requests to stop a run, written to the store by anyone with access to it and read by the run's driver."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable
from contextlib import suppress

from orchestrator.errors import StoreError
from orchestrator.store import Store
from orchestrator.store.lease import SHARED_FOLDER

REQUEST = "cancel.txt"  # contains the requester
CANCELLED = "cancelled by"  # begins the reason of a request
LOOK_SECONDS = 1.0  # between checks by a driver in a folder
LOOK_SECONDS_REMOTE = 15.0  # in a bucket, where each check costs a request


def request_cancellation(store: Store, *runs: str) -> float:
    """Ask the driver of a run to stop it, under each name that it may be driven by: the run's and its sweeps'.

    Returns the seconds within which a living driver checks.
    """
    for run in runs:
        store.keep_run_file(run, REQUEST, _requester().encode(errors="replace"))
    return _seconds_between_looks(store)


class Cancellation:
    """Checks for requests to stop the run, sweep or search of this name. Earlier requests do not count."""

    def __init__(self, store: Store, run: str, monotonic: Callable[[], float]) -> None:
        self._store = store
        self._run = run
        self._monotonic = monotonic
        self._seconds = _seconds_between_looks(store)
        self._take()
        self._last_look = monotonic()

    def look(self) -> str | None:
        """The reason in a new request, once; None if there is no request, or if it is too early to check."""
        now = self._monotonic()
        if now - self._last_look < self._seconds:
            return None
        self._last_look = now
        requester = self._take()
        if requester is None:
            return None
        return f"{CANCELLED} {requester}"

    def _take(self) -> str | None:
        """Remove the request from the store; return its requester."""
        with suppress(StoreError):  # repeated until the store can be read
            data = self._store.read_run_file(self._run, REQUEST)
            if data is not None:
                self._store.remove(f"runs/{self._run}/{SHARED_FOLDER}/{REQUEST}")
                return data.decode(errors="replace")
        return None


def _seconds_between_looks(store: Store) -> float:
    if store.mirror is None:
        return LOOK_SECONDS
    return LOOK_SECONDS_REMOTE


def _requester() -> str:
    """This user and machine, as `user@host`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"
