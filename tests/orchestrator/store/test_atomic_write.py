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


def test_of_two_linked_files_the_first_stays(tmp_path: Path) -> None:
    path = tmp_path / "a"
    assert [
        atomic_write.link(tmp_path, path, b"fir", b"st"),
        atomic_write.link(tmp_path, path, b"second"),
    ] == [True, False]
    assert (os.listdir(tmp_path), path.read_bytes()) == (["a"], b"first")


def test_of_two_files_in_one_place_the_last_stays_where_that_is_wanted(tmp_path: Path) -> None:
    for text in (b"first", b"second"):
        atomic_write.replace(tmp_path, tmp_path / "a", text)
    assert (os.listdir(tmp_path), (tmp_path / "a").read_bytes()) == (["a"], b"second")


def test_nothing_is_left_where_a_file_cannot_be_placed(tmp_path: Path) -> None:
    for put in (atomic_write.link, atomic_write.replace):
        with pytest.raises(FileNotFoundError):
            put(tmp_path, tmp_path / "nowhere" / "a", b"text")
    assert os.listdir(tmp_path) == []


def test_only_old_unfinished_files_are_swept(tmp_path: Path) -> None:
    for name in ("old.unfinished", "new.unfinished", "old.arrow"):
        (tmp_path / name).touch()
        if name.startswith("old"):
            os.utime(tmp_path / name, (0, 0))
    atomic_write.sweep(tmp_path, 3600)
    assert sorted(os.listdir(tmp_path)) == ["new.unfinished", "old.arrow"]


def test_a_refusal_says_what_where_and_how_much(tmp_path: Path) -> None:
    path = tmp_path / "not yet" / "a"
    line = rf"cannot write {path}: No space left on device \(ENOSPC\); 12,345 bytes needed, [\d,]+ free"
    with pytest.raises(Unwritable, match=line), atomic_write.writing(path, 12345):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def free(path: Path) -> bool:
    """Whether somebody else could have the lock at once."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        return True
    finally:
        os.close(handle)


def hold(path: Path, told: Connection) -> None:
    with file_lock(path):
        told.send("held")
        signal.pause()


def test_a_lock_excludes_others_as_long_as_it_is_held_and_its_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with file_lock(path):
        assert not free(path)
    assert free(path)
    assert os.listdir(tmp_path) == ["lock"]


def test_threads_of_one_process_exclude_one_another(tmp_path: Path) -> None:
    inside, most = [], []

    def enter() -> None:
        for _ in range(50):
            with file_lock(tmp_path / "lock"):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=enter) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GUARD)
    assert (200, {1}) == (len(most), set(most))


def test_the_lock_of_a_killed_process_is_open(tmp_path: Path) -> None:
    hears, tells = multiprocessing.Pipe(duplex=False)
    holder = multiprocessing.get_context("fork").Process(target=hold, args=(tmp_path / "lock", tells))
    holder.start()
    assert hears.poll(GUARD)
    assert not free(tmp_path / "lock")
    holder.kill()
    holder.join()
    with file_lock(tmp_path / "lock"):
        pass


def test_a_lock_is_given_back_when_what_it_guards_fails(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="odd"), file_lock(tmp_path / "lock"):
        raise ValueError("odd")
    assert free(tmp_path / "lock")


def failing(number: int) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("number", sorted(NO_LOCK_ERRORS))
def test_a_file_system_without_locks_is_worked_on_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(fcntl, "flock", failing(number))
    with file_lock(tmp_path / "lock"):
        assert os.listdir(tmp_path) == ["lock"]


def test_a_lock_that_cannot_be_had_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = len(os.listdir("/dev/fd"))
    monkeypatch.setattr(fcntl, "flock", failing(errno.EIO))
    with pytest.raises(OSError, match="Input/output error"), file_lock(tmp_path / "lock"):
        raise AssertionError("it was not had")
    with pytest.raises(FileNotFoundError), file_lock(tmp_path / "nowhere" / "lock"):
        raise AssertionError("it was not had")
    assert before == len(os.listdir("/dev/fd"))
