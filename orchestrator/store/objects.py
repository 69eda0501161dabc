"""A store in an object store, with the same layout as in a folder and one object per file.

A result is put on the condition that none exists, so the first of two writers wins. A run writes its files to a folder
on this machine, which a mirror synchronises with `runs/`.
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
from orchestrator.store.entry import (
    CONFLICTS,
    FAILURES,
    JOB_STATES,
    OUTPUTS,
    QUARANTINE,
    RESULTS,
    STATES,
    SUFFIX,
)
from orchestrator.store.file_store import FileStore, run_file_name
from orchestrator.store.mirror import JOURNEYS, Mirror

FOLDERS = {RESULTS, FAILURES, STATES, QUARANTINE, CONFLICTS, OUTPUTS, JOB_STATES, "claims", "runs", "tmp"}
FOOTER = 64 * 1024  # last bytes of a file, which contain the record of most results
RUNS = "./engram-runs"  # location of run folders on this machine, unless ENGRAM_RUNS names another


class ObjectStore(FileStore):
    """A store below a prefix in a bucket."""

    obstacle = "the object there repeatedly appears and disappears"

    def __init__(self, location: str, create: bool = True) -> None:
        self._bucket = Bucket(location)
        self.location = self._bucket.location
        if not is_there(self._bucket):
            if not create:
                raise StoreError(f"there is no store at {self.location}; run an audit to create one, or give another")
            _create(self._bucket)

    def __reduce__(self) -> tuple[type[ObjectStore], tuple[str, bool]]:
        return ObjectStore, (self.location, False)

    def __contains__(self, key: object) -> bool:
        return self._bucket.holds(entry.result_name(str(key)))

    @cached_property
    def mirror(self) -> Mirror:
        home = os.environ.get("ENGRAM_RUNS") or RUNS
        scheme, _, path = self.location.partition("://")
        # Bucket names are longer than the name of the Azure folder, so the two cannot collide.
        folder = Path(home).expanduser().absolute() / ("" if scheme == "s3" else scheme)
        return Mirror(self._bucket, folder / path)

    def keys(self) -> set[str]:
        keys = entry.keys_of(self._names(RESULTS), SUFFIX)
        if not keys and not is_there(self._bucket):  # a deleted bucket is listed as an empty one
            raise StoreError(f"the store {self.location} no longer exists")
        return keys

    def stamps(self, keys: Iterable[str]) -> Mapping[str, str]:
        versions = {entry.result_name(key): key for key in keys}
        objects = self._bucket.objects(RESULTS) if versions else ()
        result = {}
        for stored_object in objects:
            if stored_object.name in versions:
                result[versions[stored_object.name]] = stored_object.tag
        return result

    def verify(self, keys: Iterable[str]) -> Iterator[tuple[str, StoreError]]:
        from orchestrator.store.threads import thread_pool

        with thread_pool(JOURNEYS, "verify") as pool:
            yield from (problem for problem in pool.map(self._find_problem, keys) if problem is not None)

    def _find_problem(self, key: str) -> tuple[str, StoreError] | None:
        try:
            self.record(key)
        except (Absent, Damaged, Unwritable) as error:  # an unreachable result may be intact
            return key, error
        return None

    def set_aside_run_file(self, run: str, name: str, data: bytes, reason: str) -> None:
        if self.read_run_file(run, name) == data:
            self._to_quarantine(run_file_name(run, name), name.removesuffix(".json"), ".json", data, reason)

    def files(self, folder: str) -> dict[str, int]:
        result = {}
        for stored_object in self._bucket.objects(folder):
            result[stored_object.name] = stored_object.size
        return result

    def irregular_files(self, folder: str) -> dict[str, str]:
        return dict.fromkeys(self._bucket.invalid_names(folder), "its name is not a path")

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

    def _create(self, name: str, *parts: bytes | memoryview, verifies_itself: bool = False) -> bool:  # noqa: ARG002
        return self._bucket.create(name, *parts) is not None

    def _put(self, name: str, *parts: bytes | memoryview) -> None:
        self._bucket.put(name, *parts)

    def _get(self, name: str) -> memoryview:
        return memoryview(self._bucket.get(name))

    def _make_durable(self, name: str) -> None:
        """Do nothing: an object is durable as soon as it exists."""

    def _names(self, folder: str) -> Iterable[str]:
        return _last_parts(self._bucket.objects(folder))

    def _content_before_write(self, key: str) -> str | None:
        """Like `_content`, but raises Unwritable if the store cannot be reached within PATIENCE seconds."""
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

    @contextmanager
    def _checked_bytes(self, key: str) -> Iterator[pa.Buffer]:
        """Yield all bytes of a result, checked against their digest. A corrupt result is set aside."""
        with entry.reading_result(self, key, lambda reason: self._set_aside(key, data, reason)):
            data = self._bucket.get(entry.result_name(key))
            entry.check(memoryview(data))
            yield data

    def _set_aside(self, key: str, data: pa.Buffer, reason: str) -> None:
        """Copy a damaged result to quarantine and delete it, unless an intact one has replaced it."""
        name = entry.result_name(key)
        with suppress(FileNotFoundError):
            if self._bucket.get(name).equals(data):
                self._to_quarantine(name, key, SUFFIX, data, reason)

    def _to_quarantine(self, name: str, stem: str, suffix: str, data: bytes | pa.Buffer, reason: str) -> None:
        """Copy these bytes of an object to quarantine with a note. Delete the object once both are stored."""
        copy = f"{QUARANTINE}/{stem}.{time.time_ns()}"
        self._bucket.put(copy + suffix, data)
        self._bucket.put(copy + ".txt", f"{name}\n{reason}\n".encode())
        self._bucket.delete(name)


def is_there(bucket: Bucket) -> bool:
    """Whether a bucket contains a store. Raises StoreError if this is unknown or the store's format is unsupported."""
    try:
        data = memoryview(bucket.get(marker.MARKER)).tobytes()
    except FileNotFoundError:
        return False
    marker.check(data, f"{bucket.location}/{marker.MARKER}")
    return True


def _create(bucket: Bucket) -> None:
    """Make a prefix a store. If two processes do this at once, only one writes the marker."""
    foreign = sorted(set(bucket.names()) - FOLDERS - {marker.MARKER})
    if foreign:
        raise StoreError(f"{bucket.location} is not a store and not empty (it has {foreign[0]}); give another prefix")
    bucket.create(marker.MARKER, marker.text())


def _last_parts(objects: Iterable[Object]) -> Iterator[str]:
    return (stored_object.name.rpartition("/")[2] for stored_object in objects)
