"""Files that a job writes while it runs, by key: its output, its metrics and its state.

outputs/KEY/stdout, stderr                 what the job printed; once it has ended, at most STREAM_BYTES each
outputs/KEY/earlier_stdout, earlier_stderr what earlier attempts printed
outputs/KEY/metrics.jsonl                  the metrics of a training by step, of all attempts
job_states/KEY/files/, job_states/KEY/lock the state from which the next attempt continues, in a folder
job_states/KEY.tar                         the same in a bucket

In a folder, the files grow while the job runs. In a bucket, outputs appear when the job ends and states at intervals.
Results never depend on these files.
"""

from __future__ import annotations

import fcntl
import io
import os
import shutil
import tarfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

from orchestrator.errors import StoreError
from orchestrator.store import Store, local_path
from orchestrator.store.atomic_write import NO_LOCK_ERRORS, put_in_place, writing
from orchestrator.store.entry import JOB_STATES, OUTPUTS, valid_key
from orchestrator.store.regular_file import regular_opener

STREAMS = ("stdout", "stderr")
METRICS = "metrics.jsonl"
EARLIER = {stream: f"earlier_{stream}" for stream in STREAMS}
OUTPUT_FILES = (*STREAMS, *EARLIER.values(), METRICS)
ARCHIVE_SUFFIX = ".tar"
FILES = "files"
LOCK = "lock"
STREAM_BYTES = 2**20  # kept of each stream: half from its beginning and half from its end
RETRIES = 3  # reads of a state file that changes at the same time
LOCK_LOOK = 0.1  # seconds between two attempts to lock a state


def output_name(key: str, file: str) -> str:
    """Return the name in the store of a job's output file."""
    return f"{OUTPUTS}/{valid_key(key)}/{file}"


def read_output(store: Store, key: str, file: str) -> bytes:
    """Return a job's output file, which is empty if there is none."""
    with suppress(StoreError, OSError):
        return store.read_file(output_name(key, file))
    return b""


def read_streams(store: Store, key: str) -> dict[str, str]:
    """Return what all attempts at a job printed, by stream. Streams without output are left out."""
    texts = {}
    for stream in STREAMS:
        data = read_output(store, key, EARLIER[stream]) + read_output(store, key, stream)
        if data:
            texts[stream] = data.decode(errors="replace")
    return texts


def begin_attempt(folder: Path, separator: str) -> None:
    """Move the output in this folder to that of earlier attempts, followed by a separating line."""
    for stream in STREAMS:
        path = folder / stream
        if path.exists() and path.stat().st_size:
            with open(folder / EARLIER[stream], "ab") as earlier:
                earlier.write(path.read_bytes().rstrip(b"\n") + f"\n{separator}\n".encode())
            path.unlink()


def keys_with_metrics(store: Store) -> set[str]:
    """Return the keys of jobs that have logged metrics."""
    root = local_path(store.location)
    if root is None:
        names = store.files(OUTPUTS)
        return {name.split("/")[1] for name in names if name.endswith(f"/{METRICS}")}
    return {path.parent.name for path in root.glob(f"{OUTPUTS}/*/{METRICS}")}


def shorten(path: Path, limit: int = STREAM_BYTES) -> None:
    """Leave only the beginning and the end of a file that is longer than `limit` bytes, and note this between them."""
    with suppress(FileNotFoundError):
        size = path.stat().st_size
        if size <= limit:
            return
        with open(path, "rb") as file, put_in_place(path) as draft:
            head = file.read(limit // 2)
            file.seek(size - limit // 2)
            note = f"\n--- {size - limit:,} bytes are left out here\n".encode()
            draft.write_bytes(head + note + file.read())


def job_states(store: Store) -> dict[str, dict[str, int]]:
    """Return the size of each file of the stored job states, by key."""
    sizes: dict[str, dict[str, int]] = defaultdict(dict)
    for name, size in store.files(JOB_STATES).items():
        key = name.split("/")[1].removesuffix(ARCHIVE_SUFFIX)
        sizes[key][name] = size
    return dict(sizes)


def remove_job_state(store: Store, key: str) -> None:
    """Remove the state of a job if there is one. Raises Unwritable."""
    root = local_path(store.location)
    if root is None:
        store.remove(archive_name(key))
        return
    folder = root / JOB_STATES / valid_key(key)
    with writing(folder):
        if folder.is_symlink():
            folder.unlink()
        elif folder.exists():
            shutil.rmtree(folder)


def remove_settled_states(store: Store, stored_keys: set[str]) -> None:
    """Remove the states of jobs whose results are stored. A worker that was killed may have left them."""
    root = local_path(store.location)
    if root is None:
        keys = set(job_states(store))
    else:
        keys = set()
        with suppress(OSError):
            keys = set(os.listdir(root / JOB_STATES))
    for key in keys & stored_keys:
        with suppress(StoreError):
            remove_job_state(store, key)


def remove_empty_folders(store: Store, names: Iterable[str]) -> None:
    """Remove the folders of jobs from which these files were removed, if nothing is left in them.

    Other empty folders may belong to running jobs. In a bucket, there are no folders.
    """
    root = local_path(store.location)
    if root is None:
        return
    folders: set[PurePosixPath] = set()
    for name in names:
        if name.split("/")[0] in (OUTPUTS, JOB_STATES):
            folders.update(PurePosixPath(name).parents[:-2])
    for folder in sorted(folders, reverse=True):  # those inside others come first
        with suppress(OSError):  # it is not empty
            os.rmdir(root / folder)


def is_empty(folder: Path) -> bool:
    """Whether nothing is in a folder, or the folder does not exist."""
    try:
        return not os.listdir(folder)
    except FileNotFoundError:
        return True


def archive_name(key: str) -> str:
    """Return the name in a bucket of a job's state."""
    return f"{JOB_STATES}/{valid_key(key)}{ARCHIVE_SUFFIX}"


def archive_folder(folder: Path) -> bytes:
    """Return the files of a folder as an archive. A file that changes meanwhile is read again, up to RETRIES times."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path in sorted(folder.rglob("*")):
            with suppress(FileNotFoundError):  # it was replaced meanwhile
                name = path.relative_to(folder).as_posix()
                if path.is_symlink() or path.is_dir():
                    tar.add(path, name, recursive=False)
                elif path.is_file():
                    member = tarfile.TarInfo(name)
                    data, status = _read_unchanged(path)
                    member.size, member.mtime, member.mode = len(data), status.st_mtime, status.st_mode & 0o777
                    tar.addfile(member, io.BytesIO(data))
    return archive.getvalue()


def extract_archive(data: bytes, folder: Path) -> None:
    """Write the files of an archive into a folder."""
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        tar.extractall(folder, filter="data")


def _read_unchanged(path: Path) -> tuple[bytes, os.stat_result]:
    for _ in range(RETRIES):
        before = path.stat()
        data = path.read_bytes()
        status = path.stat()
        if (before.st_mtime_ns, before.st_ino, len(data)) == (status.st_mtime_ns, status.st_ino, status.st_size):
            break
    return data, status


def lock_state(folder: Path, seconds: float) -> int | None:
    """Lock the state in this folder. Returns the descriptor that holds the lock.

    Returns None if another attempt still holds it after `seconds`. The lock ends when the descriptor is closed in this
    process and in all processes that have inherited it.
    """
    path = folder / LOCK
    deadline = time.monotonic() + seconds
    while True:
        with suppress(FileNotFoundError), writing(path):  # another attempt removes the folder at this moment
            folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            if _is_locked(handle, path):
                return handle
            os.close(handle)
        if time.monotonic() >= deadline:
            return None
        time.sleep(LOCK_LOOK)


def _is_locked(handle: int, path: Path) -> bool:
    """Lock an open file. Returns False if another process has the lock, or has removed the file."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCK_ERRORS:
            os.close(handle)
            raise
    with suppress(FileNotFoundError):
        return path.stat().st_ino == os.fstat(handle).st_ino
    return False


def follow_streams(store: Store, key: str, has_ended: Iterable[bool]) -> Iterator[tuple[str, str]]:
    """Yield what a job prints, as (stream, text), until `has_ended` yields true.

    In a bucket, all of it appears at the end.
    """
    positions = dict.fromkeys(STREAMS, 0)
    for is_last in has_ended:
        for stream in STREAMS:
            data, positions[stream] = _read_from(store, output_name(key, stream), positions[stream])
            if not is_last:
                data = data[: data.rfind(b"\n") + 1]  # complete lines, so that no character is split
            positions[stream] += len(data)
            if data:
                yield stream, data.decode(errors="replace")
        if is_last:
            return


def _read_from(store: Store, name: str, position: int) -> tuple[bytes, int]:
    """Return the bytes of a file from a position on, and that position. It is 0 if another attempt has begun the file.

    The bytes are empty if the file does not exist, or was shortened because its job has ended.
    """
    root = local_path(store.location)
    try:
        if root is None:
            return store.read_file(name)[position:], position
        with open(root / name, "rb", opener=regular_opener) as file:
            size = file.seek(0, os.SEEK_END)
            if size < min(position, STREAM_BYTES):
                position = 0
            file.seek(position)
            return file.read(), position
    except (StoreError, OSError):
        return b"", position
