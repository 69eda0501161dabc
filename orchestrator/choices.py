"""What a run has settled: how its jobs are computed on a device, chosen once and kept for as long as the run is.

runs/ID/ways/NAME.json   one choice a file, by whoever was first, with a digest of what it says
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from typing import Any

from orchestrator.errors import StoreError
from orchestrator.store import Store
from tasks.manner import Choice, Settle

ATTEMPTS = 3  # at a choice whose file turns out damaged each time


def settling(store: Store, run: str) -> Settle:
    """Gives the choice that the run has kept under a name, or makes it and keeps it.

    Of several processes that choose at one time the first to keep its choice wins, and all use that one. A damaged
    choice is set aside and made anew. Raises Unwritable where it cannot be kept, and StoreError where the store
    cannot say what was.
    """
    known: dict[str, Choice] = {}

    def settle(name: str, choose: Callable[[], Choice]) -> Choice:
        if name not in known:
            known[name] = _settled(store, run, name, choose)
        return known[name]

    return settle


def _settled(store: Store, run: str, name: str, choose: Callable[[], Choice]) -> Choice:
    file = file_of(name)
    mine: bytes | None = None
    for _ in range(ATTEMPTS):
        data = store.kept(run, file)
        if data is None:
            mine = mine or encoded(name, choose())
            data = store.keep(run, file, mine)
        try:
            return decoded(name, data)
        except ValueError as error:
            store.unkeep(run, file, data, str(error))
    raise StoreError(f"what run {run} has settled for {name} is damaged again and again; check the disk")


def file_of(name: str) -> str:
    """The file that keeps a choice: its name as far as a file's may be so, and a digest that tells it from others."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60]
    return f"{plain}.{hashlib.sha256(name.encode()).hexdigest()[:12]}.json"


def encoded(name: str, choice: Choice) -> bytes:
    """A choice as it is kept. TypeError for what JSON cannot hold."""
    says = {"name": name, "choice": dict(choice)}
    return json.dumps({**says, "sha256": _digest(says)}, indent=2).encode()


def decoded(name: str, data: bytes) -> Choice:
    """The choice that was kept; ValueError, saying why, for bytes that are not as they were written."""
    try:
        says = json.loads(data)
        choice: dict[str, Any] = dict(says["choice"])
        same = says["sha256"] == _digest({"name": name, "choice": choice})
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"it is not a choice ({type(error).__name__})") from None
    if not same:
        raise ValueError("its digest is not that of its content")
    return choice


def _digest(says: Any) -> str:
    return hashlib.sha256(json.dumps(says, sort_keys=True).encode()).hexdigest()
