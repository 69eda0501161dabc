"""The strategy choices of a run: one per device, made once and used throughout the run.

runs/ID/ways/NAME.json   one choice per file, written by the first process to choose, with a digest of its content
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from orchestrator.errors import StoreError
from orchestrator.store import Store
from tasks.worker.compute_context import Choice, Settle

ATTEMPTS = 3  # to store a choice whose file is damaged every time


def choice_settler(store: Store, run: str, *kin: str) -> Settle:
    """Return a function that looks up the choice stored for the run or its kin.

    If there is none, it makes and stores one.

    Kin are the cells of a sweep, or the sweeps that contain a cell: jobs shared by both use the same strategy. If
    several processes choose at the same time, the first stored choice wins and all use it. A damaged choice is set
    aside and made again.

    The returned function raises Unwritable if the choice cannot be stored, and StoreError if the store cannot be read.
    """
    choices: dict[str, Choice] = {}

    def settle(name: str, choose: Callable[[], Choice]) -> Choice:
        if name not in choices:
            choice = _first_stored_choice(store, (run, *kin), name)
            if choice is None:
                choices[name] = _make_choice(store, run, name, choose)
            else:
                choices[name] = choice
        return choices[name]

    return settle


def _first_stored_choice(store: Store, runs: Sequence[str], name: str) -> Choice | None:
    """Return the choice of the first run that has one."""
    for run in runs:
        if (choice := _read_choice(store, run, name)) is not None:
            return choice
    return None


def _read_choice(store: Store, run: str, name: str) -> Choice | None:
    """Return the choice stored for a run. Returns None if there is none, or if a damaged one was set aside."""
    data = store.read_run_file(run, file_of(name))
    if data is None:
        return None
    try:
        return _decode(name, data)
    except ValueError as error:
        store.set_aside_run_file(run, file_of(name), data, str(error))
        return None


def _make_choice(store: Store, run: str, name: str, choose: Callable[[], Choice]) -> Choice:
    encoded = _encode(name, choose())
    for _ in range(ATTEMPTS):
        store.keep_run_file(run, file_of(name), encoded)
        if (choice := _read_choice(store, run, name)) is not None:
            return choice
    raise StoreError(f"the choice of run {run} for {name} is repeatedly damaged after being written; check the disk")


def file_of(name: str) -> str:
    """Return the file name of a choice: its name, reduced to valid characters, and a digest that makes it unique."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60]
    return f"{plain}.{hashlib.sha256(name.encode()).hexdigest()[:12]}.json"


def _encode(name: str, choice: Choice) -> bytes:
    """Encode a choice as bytes. Raises TypeError for values that JSON cannot represent."""
    content = {"name": name, "choice": dict(choice)}
    return json.dumps({**content, "sha256": _digest(content)}, indent=2).encode()


def _decode(name: str, data: bytes) -> Choice:
    """Decode a choice. Raises ValueError with the reason if the bytes are damaged."""
    try:
        content = json.loads(data)
        choice: dict[str, Any] = dict(content["choice"])
        is_intact = content["sha256"] == _digest({"name": name, "choice": choice})
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"it is not a choice ({type(error).__name__})") from None
    if not is_intact:
        raise ValueError("its digest does not match its content")
    return choice


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
