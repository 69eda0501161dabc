""" """

import errno
import fcntl
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from orchestrator.errors import Unwritable
from orchestrator.store import atomic_write
from orchestrator.store.atomic_write import NO_LOCK_ERRORS, file_lock

GUARD = 60  # seconds that only a hang lasts


def test_linking_keeps_the_first_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    assert [
        atomic_write.link(tmp_path, path, b"fir", b"st"),
        atomic_write.link(tmp_path, path, b"second"),
    ] == [True, False]
    assert os.listdir(tmp_path) == ["a"]
    assert path.read_bytes() == b"first"


def test_replacing_keeps_the_last_content(tmp_path: Path) -> None:
    for text in (b"first", b"second"):
        atomic_write.replace(tmp_path, tmp_path / "a", text)
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"second"


def test_failed_write_leaves_no_file(tmp_path: Path) -> None:
    for put in (atomic_write.link, atomic_write.replace):
        with pytest.raises(FileNotFoundError):
            put(tmp_path, tmp_path / "nowhere" / "a", b"text")
    assert os.listdir(tmp_path) == []


def test_only_old_unfinished_files_are_removed(tmp_path: Path) -> None:
    for name in ("old.unfinished", "new.unfinished", "old.arrow"):
        (tmp_path / name).touch()
        if name.startswith("old"):
            os.utime(tmp_path / name, (0, 0))
    atomic_write.sweep(tmp_path, 3600)
    assert sorted(os.listdir(tmp_path)) == ["new.unfinished", "old.arrow"]


def test_refusal_names_path_reason_and_size(tmp_path: Path) -> None:
    path = tmp_path / "not yet" / "a"
    line = rf"cannot write {path}: No space left on device \(ENOSPC\); 12,345 bytes needed, [\d,]+ free"
    with pytest.raises(Unwritable, match=line), atomic_write.writing(path, 12345):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def is_free(path: Path) -> bool:
    """Whether another process could take the lock at once."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        return True
    finally:
        os.close(handle)


def hold(path: Path, connection: Connection) -> None:
    with file_lock(path):
        connection.send("held")
        signal.pause()


def test_lock_excludes_others_and_keeps_its_file(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with file_lock(path):
        assert not is_free(path)
    assert is_free(path)
    assert os.listdir(tmp_path) == ["lock"]


def test_threads_of_one_process_exclude_one_another(tmp_path: Path) -> None:
    inside = []
    concurrent_counts = []

    def enter() -> None:
        for _ in range(50):
            with file_lock(tmp_path / "lock"):
                inside.append(1)
                concurrent_counts.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=enter) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GUARD)
    assert len(concurrent_counts) == 200
    assert set(concurrent_counts) == {1}


def test_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    hears, tells = multiprocessing.Pipe(duplex=False)
    holder = multiprocessing.get_context("fork").Process(target=hold, args=(tmp_path / "lock", tells))
    holder.start()
    assert hears.poll(GUARD)
    assert not is_free(tmp_path / "lock")
    holder.kill()
    holder.join()
    with file_lock(tmp_path / "lock"):
        pass


def test_lock_is_released_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="odd"), file_lock(tmp_path / "lock"):
        raise ValueError("odd")
    assert is_free(tmp_path / "lock")


def failing_flock(number: int) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("number", sorted(NO_LOCK_ERRORS))
def test_file_system_without_locks_is_usable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(fcntl, "flock", failing_flock(number))
    with file_lock(tmp_path / "lock"):
        assert os.listdir(tmp_path) == ["lock"]


def test_failing_lock_raises_and_leaks_no_handle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = len(os.listdir("/dev/fd"))
    monkeypatch.setattr(fcntl, "flock", failing_flock(errno.EIO))
    with pytest.raises(OSError, match="Input/output error"), file_lock(tmp_path / "lock"):
        raise AssertionError("it was not had")
    with pytest.raises(FileNotFoundError), file_lock(tmp_path / "nowhere" / "lock"):
        raise AssertionError("it was not had")
    assert before == len(os.listdir("/dev/fd"))
