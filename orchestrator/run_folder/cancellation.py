"""Requests to stop a run. Anyone with access to the store can write one; the run's driver reads it."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable
from contextlib import suppress

from orchestrator.errors import StoreError
from orchestrator.store import Store
from orchestrator.store.lease import SHARED_FOLDER

REQUEST = "cancel.txt"  # names the requester
CANCELLED = "cancelled by"  # start of a request's reason
LOOK_SECONDS = 1.0  # between checks of a store in a folder
LOOK_SECONDS_REMOTE = 15.0  # between checks of a bucket, each of which costs a request


def request_cancellation(store: Store, *runs: str) -> float:
    """Ask the driver of a run to stop it. `runs` are all names under which it may be driven: the run's and its sweeps'.

    Returns the number of seconds within which a living driver checks.
    """
    for run in runs:
        store.keep_run_file(run, REQUEST, _requester().encode(errors="replace"))
    return _seconds_between_looks(store)


class Cancellation:
    """Checks for requests to stop the run, sweep or search with this name. Earlier requests are ignored."""

    def __init__(self, store: Store, run: str, monotonic: Callable[[], float]) -> None:
        self._store = store
        self._run = run
        self._monotonic = monotonic
        self._seconds = _seconds_between_looks(store)
        self._take()
        self._last_look = monotonic()

    def look(self) -> str | None:
        """Return the reason given in a new request, once.

        Returns None if there is no request or it is too early to check again.
        """
        now = self._monotonic()
        if now - self._last_look < self._seconds:
            return None
        self._last_look = now
        requester = self._take()
        if requester is None:
            return None
        return f"{CANCELLED} {requester}"

    def _take(self) -> str | None:
        """Remove the request from the store and return its requester."""
        with suppress(StoreError):  # retried until the store can be read
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
    """Return this user and machine as `user@host`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container user without a name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"
