"""A store in an object store: the same layout as in a folder, each file an object.

A result is put on the condition that there is none, so that of two writers the first one wins. A run writes its files
into a folder of this machine, which a mirror synchronises with `runs/`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from orchestrator.errors import Absent, Damaged, StoreError, Unwritable
from orchestrator.store import atomic_write, entry, marker
from orchestrator.store.bucket import PATIENCE, Away, Bucket, Object
from orchestrator.store.digests import Digests
from orchestrator.store.entry import CONFLICTS, FAILURES, QUARANTINE, RESULTS, STATES, SUFFIX, content
from orchestrator.store.interface import WriteEffect
from orchestrator.store.lease import KEPT
from orchestrator.store.mirror import JOURNEYS, Mirror

FOLDERS = {RESULTS, FAILURES, STATES, QUARANTINE, CONFLICTS, "claims", "runs", "tmp"}
ATTEMPTS = 8  # a damaged object or another writer may be in the way for a while
FOOTER = 64 * 1024  # bytes in which the record of most results ends
RUNS = "./engram-runs"  # the folder of run folders on this machine, unless ENGRAM_RUNS names another


class ObjectStore:
    """A store below a prefix of a bucket."""

    def __init__(self, location: str, create: bool = True) -> None:
        self._bucket = Bucket(location)
        self.location = self._bucket.location
        if not is_there(self._bucket):
            if not create:
                raise StoreError(f"there is no store at {self.location}; a run makes one there, or name another")
            _create(self._bucket)

    def __reduce__(self) -> tuple[type[ObjectStore], tuple[str, bool]]:
        return ObjectStore, (self.location, False)

    def __contains__(self, key: object) -> bool:
        return self._bucket.holds(entry.result_name(str(key)))

    @cached_property
    def mirror(self) -> Mirror:
        home = os.environ.get("ENGRAM_RUNS") or RUNS
        scheme, _, place = self.location.partition("://")
        # No bucket's name is as short as the folder of Azure's containers.
        folder = Path(home).expanduser().absolute() / ("" if scheme == "s3" else scheme)
        return Mirror(self._bucket, folder / place)

    def keys(self) -> set[str]:
        keys = entry.keys_of(_last_parts(self._bucket.objects(RESULTS)), SUFFIX)
        if not keys and not is_there(self._bucket):  # a deleted bucket is listed as an empty one
            raise StoreError(f"the store {self.location} has gone")
        return keys

    def read(self, key: str) -> pa.Table:
        with self._checked_bytes(key) as data:
            return entry.unseal(data, key)

    def record(self, key: str, check: bool = True) -> Mapping[str, Any]:
        if not check:
            return self._unchecked_record(key)
        with self._checked_bytes(key) as data:
            return entry.record_of(data, key)

    def write(self, key: str, table: pa.Table, record: Mapping[str, Any]) -> WriteEffect:
        name = entry.result_name(key)
        says = content(table)
        parts = entry.seal(table, {**record, "key": key, "content": says})
        for _ in range(ATTEMPTS):
            if self._bucket.create(name, *parts) is not None:
                return WriteEffect.NEW
            there = self._looked_for(key)
            if there == says:
                return WriteEffect.SAME
            if there is not None:
                self._bucket.put(entry.conflict_name(key, says), *parts)
                return WriteEffect.CONFLICT
        raise Unwritable(f"cannot write {self.location}/{name}: what lies there comes and goes")

    def stamps(self, keys: Iterable[str]) -> Mapping[str, str]:
        versions = {entry.result_name(key): key for key in keys}
        objects = self._bucket.objects(RESULTS) if versions else ()
        return {versions[stored.name]: stored.tag for stored in objects if stored.name in versions}

    def verify(self, keys: Iterable[str]) -> Iterator[tuple[str, StoreError]]:
        from orchestrator.store.threads import thread_pool

        with thread_pool(JOURNEYS, "verify") as pool:
            yield from (unsound for unsound in pool.map(self._wrong, keys) if unsound is not None)

    def _wrong(self, key: str) -> tuple[str, StoreError] | None:
        try:
            self.record(key)
        except (Absent, Damaged, Unwritable) as error:  # one that cannot be reached may be sound
            return key, error
        return None

    def write_failure(self, key: str, text: str) -> None:
        self._bucket.put(entry.failure_name(key), text.encode(errors="replace"))
        self._failed.add(key)

    def failure(self, key: str) -> str | None:
        try:
            return memoryview(self._bucket.get(entry.failure_name(key))).tobytes().decode(errors="replace")
        except FileNotFoundError:
            return None

    def clear_failure(self, key: str) -> None:
        if key in self._failed:
            self._bucket.delete(entry.failure_name(key))
            self._failed.discard(key)

    @cached_property
    def _failed(self) -> set[str]:
        """Keys with a failure at the first access: hardly any job has one, and each lookup is a request."""
        return entry.keys_of(_last_parts(self._bucket.objects(FAILURES)), entry.FAILURE_SUFFIX)

    def state(self, key: str) -> bytes:
        try:
            return entry.unseal_state(key, memoryview(self._bucket.get(entry.state_name(key))))
        except FileNotFoundError:
            raise Absent(f"no state {key} in {self.location}") from None
        except entry.CorruptState as error:
            raise entry.remove_damaged_state(self, key, error) from None

    def write_state(self, key: str, data: bytes) -> None:
        self._bucket.put(entry.state_name(key), *entry.seal_state(key, data))

    def remove_state(self, key: str) -> None:
        self._bucket.delete(entry.state_name(key))

    def states(self) -> set[str]:
        return entry.keys_of(_last_parts(self._bucket.objects(STATES)), entry.STATE_SUFFIX)

    def read_run_file(self, run: str, name: str) -> bytes | None:
        try:
            return memoryview(self._bucket.get(_run_file(run, name))).tobytes()
        except FileNotFoundError:
            return None

    def keep_run_file(self, run: str, name: str, data: bytes) -> bytes:
        name = _run_file(run, name)
        for _ in range(ATTEMPTS):
            if self._bucket.create(name, data) is not None:
                return data
            with suppress(FileNotFoundError):  # it has just been set aside
                return memoryview(self._bucket.get(name)).tobytes()
        raise StoreError(f"what lies at {self.location}/{name} comes and goes")

    def set_aside_run_file(self, run: str, name: str, data: bytes, why: str) -> None:
        if self.read_run_file(run, name) == data:
            copy = f"{QUARANTINE}/{name.removesuffix('.json')}.{time.time_ns()}"
            self._bucket.put(f"{copy}.json", data)
            self._bucket.put(f"{copy}.txt", f"{_run_file(run, name)}\n{why}\n".encode())
            self._bucket.delete(_run_file(run, name))

    def files(self, folder: str) -> dict[str, int]:
        return {stored.name: stored.size for stored in self._bucket.objects(folder)}

    def irregular_files(self, folder: str) -> dict[str, str]:
        return dict.fromkeys(self._bucket.invalid_names(folder), "its name is no path")

    def read_file(self, name: str) -> bytes:
        try:
            return memoryview(self._bucket.get(name)).tobytes()
        except FileNotFoundError:
            raise Absent(f"no {name} in {self.location}") from None

    def create_file(self, name: str, data: bytes) -> bool:
        return self._bucket.create(name, data) is not None

    def replace_file(self, name: str, data: bytes) -> None:
        self._bucket.put(name, data)

    def remove(self, name: str) -> None:
        self._bucket.delete(name)

    def digests(self) -> MutableMapping[str, str]:
        home = self.mirror.home
        with atomic_write.writing(home):
            home.mkdir(parents=True, exist_ok=True)
        return Digests(home / "digests.json", home)

    def folder(self, *parts: str) -> Path:
        path = atomic_write.make_folder(self.mirror.home, *parts)
        if parts[0] == "runs":
            self.mirror.pull()
        return path

    def _unchecked_record(self, key: str) -> Mapping[str, Any]:
        try:
            name = entry.result_name(key)
            with suppress(pa.ArrowException, ValueError, KeyError):  # its footer is longer
                return entry.record_of(pa.BufferReader(self._bucket.end(name, FOOTER)), key)
            return entry.record_of(pa.BufferReader(self._bucket.get(name)), key)
        except FileNotFoundError:
            raise Absent(f"no result {key} in {self.location}") from None
        except (pa.ArrowException, ValueError, KeyError) as error:
            raise entry.damaged(key, error) from None

    def _looked_for(self, key: str) -> str | None:
        """`_content` before a write. Raises Unwritable if the store cannot be reached within PATIENCE seconds."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return self._content(key)
            except Unwritable:
                raise
            except StoreError as error:
                if time.monotonic() > end or not isinstance(error, Away):
                    raise Unwritable(str(error)) from None
                time.sleep(1.0)

    def _content(self, key: str) -> str | None:
        """The content digest of the sound result under this key; None if there is none. Sets a damaged one aside."""
        try:
            return str(self.record(key)["content"])
        except (Absent, Damaged):
            return None

    @contextmanager
    def _checked_bytes(self, key: str) -> Iterator[pa.Buffer]:
        """All bytes of a result, checked against their digest. One found corrupt here or by the caller is set aside."""
        with entry.reading_result(self, key, lambda why: self._set_aside(key, data, why)):
            data = self._bucket.get(entry.result_name(key))
            entry.check(memoryview(data))
            yield data

    def _set_aside(self, key: str, data: pa.Buffer, why: str) -> None:
        """Copy a damaged result to quarantine and delete it, unless a sound one has been put in its place."""
        name = entry.result_name(key)
        copy = f"{QUARANTINE}/{key}.{time.time_ns()}"
        with suppress(FileNotFoundError):
            if not self._bucket.get(name).equals(data):
                return
            self._bucket.put(copy + SUFFIX, data)
            self._bucket.put(copy + ".txt", f"{name}\n{why}\n".encode())
            self._bucket.delete(name)


def is_there(bucket: Bucket) -> bool:
    """Whether a bucket holds a store. Raises StoreError if that is unknown, or its format is not supported."""
    try:
        data = memoryview(bucket.get(marker.MARKER)).tobytes()
    except FileNotFoundError:
        return False
    marker.check(data, f"{bucket.location}/{marker.MARKER}")
    return True


def _create(bucket: Bucket) -> None:
    """Make a prefix a store. Of two processes that do so at once one writes the marker."""
    foreign = sorted(set(bucket.names()) - FOLDERS - {marker.MARKER})
    if foreign:
        raise StoreError(f"{bucket.location} is not a store and not empty (it holds {foreign[0]}); name another prefix")
    bucket.create(marker.MARKER, marker.text())


def _run_file(run: str, name: str) -> str:
    return f"runs/{run}/{KEPT}/{name}"


def _last_parts(objects: Iterable[Object]) -> Iterator[str]:
    return (stored.name.rpartition("/")[2] for stored in objects)
