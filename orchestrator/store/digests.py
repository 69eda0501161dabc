"""Digests of files outside the store (data sets, models), cached so that a large file is hashed once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import suppress
from pathlib import Path

from orchestrator.store import atomic_write
from orchestrator.store.atomic_write import file_lock
from orchestrator.store.regular_file import regular_bytes


class Digests(MutableMapping[str, str]):
    """A mapping stored in one JSON file; several processes may add to it at once.

    It is a cache: a damaged file counts as empty, and failures to write are ignored. The file contains a digest of
    itself, since a changed entry would change the data's identity.
    """

    def __init__(self, path: Path, tmp: Path) -> None:
        self._path, self._tmp = path, tmp
        self._known = self._load()

    def __getitem__(self, name: str) -> str:
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def __setitem__(self, name: str, digest: str) -> None:
        self._change(lambda known: known.update({name: digest}))

    def __delitem__(self, name: str) -> None:
        del self._known[name]
        self._change(lambda known: known.pop(name, None))

    def _change(self, change: Callable[[dict[str, str]], object]) -> None:
        change(self._known)
        with suppress(OSError), file_lock(self._path.with_suffix(".lock")):
            known = self._load()
            change(known)
            atomic_write.replace(self._tmp, self._path, json.dumps({"sha256": _sum(known), "digests": known}).encode())
            self._known = known

    def _load(self) -> dict[str, str]:
        with suppress(OSError, ValueError, KeyError, TypeError):
            stored = json.loads(regular_bytes(self._path))
            if _sum(stored["digests"]) == stored["sha256"]:
                return dict(stored["digests"])
        return {}


def _sum(known: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()
