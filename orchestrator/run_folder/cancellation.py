"""Requests to end a run, left in the store: whoever sees it can make one, and the run's driver finds it there."""

from __future__ import annotations

import getpass
import json
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress

from orchestrator.errors import StoreError
from orchestrator.store import Store
from orchestrator.store.lease import KEPT

REQUEST = "cancel.json"
CANCELLED = "cancelled by"  # begins the reason that a request gives
LOOK_SECONDS = 1.0  # between looks of a driver into a folder
LOOK_SECONDS_REMOTE = 15.0  # into a bucket, where a look is a request


def request_cancellation(store: Store, run: str, time: str) -> float:
    """Ask the driver of a run, sweep or search to end it; return the seconds within which a living one looks."""
    store.keep_run_file(run, REQUEST, json.dumps({"by": _requester(), "time": time}).encode())
    return _seconds_between_looks(store)


class Cancellation:
    """Looks for requests to end these runs. Those from before a start do not count for it."""

    def __init__(self, store: Store, runs: Iterable[str], monotonic: Callable[[], float]) -> None:
        self._store = store
        self._runs = tuple(runs)
        self._monotonic = monotonic
        self._seconds = _seconds_between_looks(store)
        self._looked = monotonic()
        for run in self._runs:
            self._take(run)

    def look(self) -> str | None:
        """The reason to end that a request gives, once; None if there is none, or if it is not yet time to look."""
        now = self._monotonic()
        if now - self._looked < self._seconds:
            return None
        self._looked = now
        requesters = [by for run in self._runs if (by := self._take(run)) is not None]
        return f"{CANCELLED} {requesters[0]}" if requesters else None

    def _take(self, run: str) -> str | None:
        """Who asked to end the run; the request is taken out of the store."""
        with suppress(StoreError):  # looked for again, as long as the store cannot be read
            data = self._store.read_run_file(run, REQUEST)
            if data is not None:
                self._store.remove(f"runs/{run}/{KEPT}/{REQUEST}")
                return _requester_named(data)
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


def _requester_named(data: bytes) -> str:
    try:
        return str(json.loads(data)["by"])
    except (ValueError, TypeError, KeyError):
        return "a request that cannot be read"
