"""A user's file is located by its path and identified by its bytes."""

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


def test_pinned_file_has_absolute_path_and_digest(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    pinned = pin(File("me@home.bin"))
    assert File(str(path), DIGEST) == pinned
    assert pinned.identity() == DIGEST
    assert read(pinned) == b"here"
    assert pinned == pin(pinned)


def test_text_form_and_file_are_equivalent(path: Path) -> None:
    for file in (File(str(path)), pin(File(str(path)))):
        assert file == File.parse(str(file))


def test_path_is_not_part_of_the_identity(path: Path) -> None:
    copy = path.with_name("copy")
    copy.write_bytes(b"here")
    assert pin(File(str(path))).identity() == pin(File(str(copy))).identity()


def test_digest_is_remembered_until_the_file_changes(path: Path) -> None:
    digests: dict[str, str] = {}
    pin(File(str(path)), digests)
    digests = dict.fromkeys(digests, "0" * 64)
    assert pin(File(str(path)), digests).digest == "0" * 64
    path.write_bytes(b"there")
    os.utime(path, ns=(1, 1))
    assert hashlib.sha256(b"there").hexdigest() == pin(File(str(path)), digests).digest


def test_file_changed_after_pinning_is_refused(path: Path) -> None:
    pinned = pin(File(str(path)))
    path.write_bytes(b"elsewhere")
    for act in (pin, read):
        with pytest.raises(FileError, match="is not the one that was pinned: its content has digest"):
            act(pinned)


def test_missing_files_are_refused(path: Path) -> None:
    for act in (pin, read):
        with pytest.raises(FileError) as caught:
            act(File(str(path) + "x"))
        assert str(caught.value) == f"there is no file {path}x"
        with pytest.raises(FileError, match=r"cannot be read: Is a directory"):
            act(File(str(path.parent)))
    with pytest.raises(ValueError, match="must be 64 hexadecimal digits"):
        File("a", "b")
    with pytest.raises(ValueError, match="has no digest yet; pin it before planning"):
        File("a").identity()


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", "pipe"])
def test_endless_files_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    for act in (pin, read):
        with pytest.raises(FileError, match="it is a device, a pipe or a socket, not a file"):
            act(File(path))


@pytest.mark.parametrize(
    ("path", "message"),
    [("~nobody-here/x", "no user of that name"), ("x" * 300, "File name too long"), ("x\0", "embedded null byte")],
)
def test_invalid_paths_are_refused(path: str, message: str) -> None:
    for act in (pin, read):
        with pytest.raises(FileError, match=message):
            act(File(path))
