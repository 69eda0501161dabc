"""A store in a folder. Its files are its only state.

results/<first two of the key>/<key>.arrow   one Arrow IPC file per result, read by any Arrow reader
failures/<key>.txt                           the traceback of a failed job
states/<key>.state                           the checkpoint at the end of a training's link, while a later link needs it
outputs/<key>/, job_states/<key>/            the output and the state of a job (see `job_files.py`)
quarantine/                                  damaged files, never deleted, each with a note about the reason
conflicts/                                   results of a key that already had a different one
tmp/                                         files being written, later linked to their path
engram-store.json                            marks this folder as a store, with its format
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISREG
from typing import Any

import pyarrow as pa

from orchestrator.errors import Absent, StoreError, Unreadable, Unwritable
from orchestrator.store import atomic_write, entry, files, marker
from orchestrator.store.atomic_write import file_lock
from orchestrator.store.digests import Digests
from orchestrator.store.durability import Folders, Names, sync
from orchestrator.store.entry import CONFLICTS, FAILURES, QUARANTINE, RESULTS, STATES, SUFFIX
from orchestrator.store.file_store import FileStore, run_file_name
from orchestrator.store.regular_file import (
    READ_ONLY,
    IrregularFile,
    bytes_inside,
    check_regular,
    irregular_kind,
    regular_bytes,
)

TMP = "tmp"
FOLDERS = (RESULTS, FAILURES, STATES, QUARANTINE, CONFLICTS, TMP)
STALE = 3600.0  # seconds after which a file in tmp/ counts as abandoned
BATCH = 64  # results verified by one thread at a time


class LocalStore(FileStore):
    """A store in a folder. The file system must support hard links and, preferably, locks."""

    mirror = None
    obstacle = "the file there is not a result and cannot be set aside"

    def __init__(self, location: Path, create: bool = True) -> None:
        self._root = Path(os.path.abspath(location.expanduser()))
        self.location = str(self._root)
        marker.open_folder(self._root, create)
        for folder in (self._root / name for name in FOLDERS):
            if not folder.is_dir():
                with atomic_write.writing(folder):
                    folder.mkdir(exist_ok=True)
        self._results = self._root / RESULTS
        self._tmp = self._root / TMP
        self._folders = Folders(self._root)
        for folder in (self._root, self._tmp):
            atomic_write.sweep(folder, STALE)

    def __reduce__(self) -> tuple[type[LocalStore], tuple[Path, bool]]:
        return LocalStore, (self._root, False)

    def __contains__(self, key: object) -> bool:
        return os.path.lexists(self._path(str(key)))

    def keys(self) -> set[str]:
        keys: set[str] = set()
        for shard in files.names(self._results):
            names = files.names(self._results / shard)
            keys |= {name.removesuffix(SUFFIX) for name in names if name.startswith(shard) and name.endswith(SUFFIX)}
        return keys

    def stamps(self, keys: Iterable[str]) -> Mapping[str, str]:
        if not self._folders.stamping:
            return {}
        key_list = list(keys)
        stamps = files.stamps(f"{self.location}/{RESULTS}/{key[:2]}/{key}{SUFFIX}" for key in key_list)
        return {key: stamp for key, stamp in zip(key_list, stamps, strict=True) if stamp}

    def verify(self, keys: Iterable[str]) -> Iterator[tuple[str, StoreError]]:
        from orchestrator.store.threads import thread_pool

        key_list = list(keys)
        batches = []
        for start in range(0, len(key_list), BATCH):
            batches.append(key_list[start : start + BATCH])
        start_wait = time.perf_counter() - time.thread_time()
        start_time = time.perf_counter()
        for errors in map(self._find_problems, batches[:1]):
            yield from errors
        is_waiting = time.perf_counter() - time.thread_time() - start_wait > (time.perf_counter() - start_time) / 2
        # Threads help if they wait for the disk. Otherwise, they slow each other down.
        with thread_pool(min(4, os.cpu_count() or 1) if is_waiting else 1, "verify") as pool:
            for errors in pool.map(self._find_problems, batches[1:]):
                yield from errors

    def _find_problems(self, keys: list[str]) -> list[tuple[str, StoreError]]:
        errors = []
        for key in [key for key in keys if not self._is_sound(key)]:
            try:
                self.record(key)
            except StoreError as error:
                errors.append((key, error))
            except OSError as error:  # it is damaged, and too many open files prevent setting it aside
                errors.append((key, Unreadable(f"cannot read {self._path(key)}: {error.strerror}")))
        return errors

    def _is_sound(self, key: str) -> bool:
        """Whether a result is intact, determined without parsing. If not, `record` gives the reason."""
        try:
            data = files.quick_read(f"{self.location}/{entry.result_name(key)}")
        except (OSError, StoreError):
            return False
        return entry.is_sound(data, key)

    def set_aside_run_file(self, run: str, name: str, data: bytes, reason: str) -> None:
        path = self._root / run_file_name(run, name)
        quarantine = self._root / QUARANTINE
        with atomic_write.writing(path), file_lock(quarantine / "lock"):
            if self.read_run_file(run, name) == data:
                self._to_quarantine(path, quarantine / f"{path.stem}.{time.time_ns()}.json", reason)

    def files(self, folder: str) -> dict[str, int]:
        sizes = {}
        for folder_path, _, names in os.walk(self._root / folder):
            for path in (Path(folder_path, name) for name in names):
                with suppress(FileNotFoundError):  # it was moved or removed in the meantime
                    status = path.lstat()
                    if S_ISREG(status.st_mode):
                        sizes[path.relative_to(self._root).as_posix()] = status.st_size
        return sizes

    def irregular_files(self, folder: str) -> dict[str, str]:
        kinds = {}
        for folder_path, folders, names in os.walk(self._root / folder):
            for path in (Path(folder_path, name) for name in (*folders, *names)):
                if (kind := irregular_kind(path)) is not None:
                    kinds[path.relative_to(self._root).as_posix()] = kind
        if (kind := irregular_kind(self._root / folder)) is not None:
            kinds[folder] = kind
        return kinds

    def read_file(self, name: str) -> bytes:
        path = self._root / name
        try:
            return bytes_inside(self._root, name)
        except IrregularFile:
            raise
        except (FileNotFoundError, NotADirectoryError):
            raise Absent(f"no {name} in {self.location}") from None
        except OSError as error:
            raise Unreadable(f"cannot read {path}: {error.strerror}") from error

    def create_file(self, name: str, data: bytes) -> bool:
        path = self._root / name
        with atomic_write.writing(path, len(data)):
            self._make_folders(path.parent)
            return atomic_write.link(self._tmp, path, data)

    def replace_file(self, name: str, data: bytes) -> None:
        path = self._root / name
        with atomic_write.writing(path, len(data)):
            self._make_folders(path.parent)
            atomic_write.replace(self._tmp, path, data)

    def _make_folders(self, folder: Path) -> None:
        """Create a store folder and its parents durably. Raises Unwritable if any of these folders is a link."""
        if folder != self._root:
            self._make_folders(folder.parent)
            if folder.is_symlink():
                raise Unwritable(f"cannot write {folder}: it is a link, which may point outside the store")
            self._folders.make(folder)

    def remove(self, name: str) -> None:
        path = self._root / name
        with atomic_write.writing(path):
            path.unlink(missing_ok=True)

    def digests(self) -> MutableMapping[str, str]:
        return Digests(self._root / "digests.json", self._tmp)

    def folder(self, *parts: str) -> Path:
        return atomic_write.make_folder(self._root, *parts)

    def _path(self, key: str) -> Path:
        return self._root / entry.result_name(key)

    def _create(self, name: str, *parts: bytes | memoryview, verifies_itself: bool = False) -> bool:
        path = self._root / name
        with atomic_write.writing(path, sum(map(len, parts))):
            self._folders.make(path.parent)
            # A self-verifying file may get its name before its bytes are durable.
            if verifies_itself:
                names = self._folders.names
            else:
                names = Names.FOLDER
            return atomic_write.link(self._tmp, path, *parts, names=names)

    def _put(self, name: str, *parts: bytes | memoryview) -> None:
        path = self._root / name
        with atomic_write.writing(path, sum(map(len, parts))):
            self._folders.make(path.parent)
            atomic_write.replace(self._tmp, path, *parts)

    def _get(self, name: str) -> memoryview:
        path = self._root / name
        with files.reading(path):
            try:
                return memoryview(regular_bytes(path))
            except NotADirectoryError as error:  # the path leads through a file
                raise FileNotFoundError(*error.args) from None

    def _names(self, folder: str) -> Iterable[str]:
        return files.names(self._root / folder)

    def _make_durable(self, name: str) -> None:
        path = self._root / name
        with atomic_write.writing(path):
            self._folders.make(path.parent)
            sync(path)
            sync(path.parent)

    def _unchecked_record(self, key: str) -> Mapping[str, Any]:
        path = self._path(key)
        try:
            check_regular(path)
            with pa.OSFile(str(path)) as file:
                return entry.record_of(file, key)
        except FileNotFoundError:
            raise Absent(f"no result {key} in {self.location}") from None
        except (entry.CorruptError, pa.ArrowException, ValueError, KeyError, OSError) as error:
            if isinstance(error, OSError) and error.errno not in (None, *atomic_write.UNREADABLE_ERRORS):
                raise Unreadable(f"cannot read {path}: {error.strerror}") from None
            raise entry.damaged(key, error) from None

    def _content_before_write(self, key: str) -> str | None:
        try:
            return self._content(key)
        except Unreadable as error:
            if not isinstance(error.__cause__, OSError):
                raise
            with atomic_write.writing(self._path(key)):
                raise error.__cause__ from None

    @contextmanager
    def _checked_bytes(self, key: str) -> Iterator[pa.Buffer]:
        """Yield all bytes of a result, checked against their digest.

        A file found corrupt here or by the caller is set aside. The file is read rather than memory-mapped, so that the
        checked bytes are the parsed ones and a failing disk raises an error instead of killing the process.
        """
        path = self._path(key)
        inode = 0
        with entry.reading_result(self, key, lambda reason: self._set_aside(path, inode, reason)):
            with files.reading(path):
                try:
                    handle = os.open(path, READ_ONLY)  # a pipe reads as an empty, hence damaged, file
                except OSError as error:
                    inode = os.lstat(path).st_ino
                    if isinstance(error, FileNotFoundError) and path.is_symlink():
                        raise entry.CorruptError(f"it is a link to {os.readlink(path)}, which does not exist") from None
                    raise
            try:
                with files.reading(path):
                    data = files.read_all(handle)
                entry.check(memoryview(data))
                yield data
            except entry.CorruptError:
                with files.reading(path):
                    inode = os.fstat(handle).st_ino
                raise
            finally:
                with files.reading(path):
                    os.close(handle)

    def _set_aside(self, path: Path, inode: int, reason: str) -> None:
        """Move a damaged file to quarantine, unless another process has already done so."""
        quarantine = self._root / QUARANTINE
        target = quarantine / f"{path.stem}.{time.time_ns()}{SUFFIX}"
        with atomic_write.writing(path), file_lock(quarantine / "lock"):
            if not os.path.lexists(path) or inode not in (os.lstat(path).st_ino, files.target_inode(path)):
                return
            self._to_quarantine(path, target, reason)

    def _to_quarantine(self, path: Path, target: Path, reason: str) -> None:
        path.rename(target)
        # The rest may fail: a full disk must not prevent removing the damaged file.
        with suppress(OSError):
            sync(target.parent)
            target.with_suffix(".txt").write_text(f"{path}\n{reason}\n", encoding="utf-8")
