import errno
import os
from pathlib import Path

import pytest

from orchestrator.errors import Unwritable
from orchestrator.store import atomic_write


def test_of_two_linked_files_the_first_stays(tmp_path: Path) -> None:
    path = tmp_path / "a"
    assert [True, False] == [
        atomic_write.link(tmp_path, path, b"fir", b"st"),
        atomic_write.link(tmp_path, path, b"second"),
    ]
    assert (["a"], b"first") == (os.listdir(tmp_path), path.read_bytes())


def test_of_two_files_in_one_place_the_last_stays_where_that_is_wanted(tmp_path: Path) -> None:
    for text in (b"first", b"second"):
        atomic_write.replace(tmp_path, tmp_path / "a", text)
    assert (["a"], b"second") == (os.listdir(tmp_path), (tmp_path / "a").read_bytes())


def test_nothing_is_left_where_a_file_cannot_be_placed(tmp_path: Path) -> None:
    for put in (atomic_write.link, atomic_write.replace):
        with pytest.raises(FileNotFoundError):
            put(tmp_path, tmp_path / "nowhere" / "a", b"text")
    assert [] == os.listdir(tmp_path)


def test_only_old_unfinished_files_are_swept(tmp_path: Path) -> None:
    for name in ("old.unfinished", "new.unfinished", "old.arrow"):
        (tmp_path / name).touch()
        if name.startswith("old"):
            os.utime(tmp_path / name, (0, 0))
    atomic_write.sweep(tmp_path, 3600)
    assert ["new.unfinished", "old.arrow"] == sorted(os.listdir(tmp_path))


def test_a_refusal_says_what_where_and_how_much(tmp_path: Path) -> None:
    path = tmp_path / "not yet" / "a"
    line = rf"cannot write {path}: No space left on device \(ENOSPC\); 12,345 bytes needed, [\d,]+ free"
    with pytest.raises(Unwritable, match=line), atomic_write.writing(path, 12345):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
