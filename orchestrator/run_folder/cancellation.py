"""Requests to end a run, left in the store: whoever sees it can make one, and the run's driver finds it there."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable
from contextlib import suppress

from orchestrator.errors import StoreError
from orchestrator.store import Store
from orchestrator.store.lease import KEPT

REQUEST = "cancel.txt"  # who asked
CANCELLED = "cancelled by"  # begins the reason that a request gives
LOOK_SECONDS = 1.0  # between looks of a driver into a folder
LOOK_SECONDS_REMOTE = 15.0  # into a bucket, where a look is a request


def request_cancellation(store: Store, *runs: str) -> float:
    """Ask the driver of a run to end it, under each name that it may be driven by: its own, and those of its sweeps.

    Returns the seconds within which a living driver looks.
    """
    for run in runs:
        store.keep_run_file(run, REQUEST, _requester().encode(errors="replace"))
    return _seconds_between_looks(store)


class Cancellation:
    """Looks for requests to end what is driven by this name: a run, sweep or search. Earlier ones do not count."""

    def __init__(self, store: Store, run: str, monotonic: Callable[[], float]) -> None:
        self._store, self._run = store, run
        self._monotonic = monotonic
        self._seconds = _seconds_between_looks(store)
        self._take()
        self._looked = monotonic()

    def look(self) -> str | None:
        """The reason to end that a request gives, once; None if there is none, or if it is not yet time to look."""
        now = self._monotonic()
        if now - self._looked < self._seconds:
            return None
        self._looked = now
        requester = self._take()
        return None if requester is None else f"{CANCELLED} {requester}"

    def _take(self) -> str | None:
        """Who asked to end it; the request is taken out of the store."""
        with suppress(StoreError):  # looked for again, as long as the store cannot be read
            data = self._store.read_run_file(self._run, REQUEST)
            if data is not None:
                self._store.remove(f"runs/{self._run}/{KEPT}/{REQUEST}")
                return data.decode(errors="replace")
        return None


def _seconds_between_looks(store: Store) -> float:
    return LOOK_SECONDS if store.mirror is None else LOOK_SECONDS_REMOTE


def _requester() -> str:
    """This user and machine, as `user@host`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = "somebody"
    return f"{user}@{socket.gethostname()}"
