"""Caches digests of files outside the store (data sets, models), so that a large file is hashed only once."""

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
    """A mapping stored in one JSON file, to which several processes may add concurrently.

    It is a cache: a damaged file counts as empty, and write failures are ignored. The file contains its own digest,
    because a changed entry would change the identity of the data.
    """

    def __init__(self, path: Path, tmp: Path) -> None:
        self._path = path
        self._tmp = tmp
        self._digests = self._load()

    def __getitem__(self, name: str) -> str:
        return self._digests[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._digests)

    def __len__(self) -> int:
        return len(self._digests)

    def __setitem__(self, name: str, digest: str) -> None:
        self._change(lambda digests: digests.update({name: digest}))

    def __delitem__(self, name: str) -> None:
        del self._digests[name]
        self._change(lambda digests: digests.pop(name, None))

    def _change(self, change: Callable[[dict[str, str]], object]) -> None:
        change(self._digests)
        with suppress(OSError), file_lock(self._path.with_suffix(".lock")):
            digests = self._load()
            change(digests)
            atomic_write.replace(
                self._tmp, self._path, json.dumps({"sha256": _sum(digests), "digests": digests}).encode()
            )
            self._digests = digests

    def _load(self) -> dict[str, str]:
        with suppress(OSError, ValueError, KeyError, TypeError):
            content = json.loads(regular_bytes(self._path))
            if _sum(content["digests"]) == content["sha256"]:
                return dict(content["digests"])
        return {}


def _sum(digests: dict[str, str]) -> str:
    return hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()
