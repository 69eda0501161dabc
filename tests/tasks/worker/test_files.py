"""A user's file is found by its path and known by its bytes."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from tasks.worker.files import File, FileError, pin, read

DIGEST = hashlib.sha256(b"here").hexdigest()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "me@home.bin").write_bytes(b"here")
    return tmp_path / "me@home.bin"


def test_a_pinned_file_is_absolute_and_has_the_digest_of_its_bytes(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    found = pin(File("me@home.bin"))
    assert File(str(path), DIGEST) == found
    assert (found.identity(), read(found)) == (DIGEST, b"here")
    assert found == pin(found)


def test_text_and_file_are_one(path: Path) -> None:
    for file in (File(str(path)), pin(File(str(path)))):
        assert file == File.parse(str(file))


def test_the_path_is_no_part_of_the_identity(path: Path) -> None:
    copy = path.with_name("copy")
    copy.write_bytes(b"here")
    assert pin(File(str(path))).identity() == pin(File(str(copy))).identity()


def test_a_digest_is_remembered_until_the_file_changes(path: Path) -> None:
    known: dict[str, str] = {}
    pin(File(str(path)), known)
    known = dict.fromkeys(known, "0" * 64)
    assert pin(File(str(path)), known).digest == "0" * 64
    path.write_bytes(b"there")
    os.utime(path, ns=(1, 1))
    assert hashlib.sha256(b"there").hexdigest() == pin(File(str(path)), known).digest


def test_a_file_that_changed_after_pinning_is_refused(path: Path) -> None:
    found = pin(File(str(path)))
    path.write_bytes(b"elsewhere")
    for act in (pin, read):
        with pytest.raises(FileError, match="is not the one that was pinned: its content has digest"):
            act(found)


def test_what_is_no_file_is_refused_in_words(path: Path) -> None:
    for act in (pin, read):
        with pytest.raises(FileError) as caught:
            act(File(str(path) + "x"))
        assert f"there is no file {path}x" == str(caught.value)
        with pytest.raises(FileError, match=r"cannot be read: Is a directory"):
            act(File(str(path.parent)))
    with pytest.raises(ValueError, match="must be 64 hexadecimal digits"):
        File("a", "b")
    with pytest.raises(ValueError, match="has no digest yet; pin it before planning"):
        File("a").identity()


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", "pipe"])
def test_what_has_no_end_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    for act in (pin, read):
        with pytest.raises(FileError, match="it is a device, a pipe or a socket, not a file"):
            act(File(path))


@pytest.mark.parametrize(
    ("path", "said"),
    [("~nobody-here/x", "no user of that name"), ("x" * 300, "File name too long"), ("x\0", "embedded null byte")],
)
def test_a_path_that_can_be_none_is_refused_in_words(path: str, said: str) -> None:
    for act in (pin, read):
        with pytest.raises(FileError, match=said):
            act(File(path))
