import os
from pathlib import Path

import pytest

from orchestrator.errors import StoreError
from orchestrator.store import atomic_write, marker, open_store


def test_new_store_has_a_marker_with_format(tmp_path: Path) -> None:
    root = tmp_path / "one" / "two"
    marker.open_folder(root, create=True)
    assert os.listdir(root) == ["engram-store.json"]
    assert (root / marker.MARKER).read_bytes() == b'{"format": 1}\n'
    marker.open_folder(root, create=False)


def test_missing_store_is_not_created_unasked(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"there is no store at .*; run an audit to create one"):
        marker.open_folder(tmp_path, create=False)
    assert os.listdir(tmp_path) == []


def test_concurrently_written_marker_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.listdir

    def late(path: Path) -> list[str]:
        monkeypatch.undo()
        marker.open_folder(tmp_path, create=True)
        (tmp_path / "results").mkdir()
        return real(path)

    monkeypatch.setattr(os, "listdir", late)
    marker.open_folder(tmp_path, create=True)
    assert sorted(real(tmp_path)) == ["engram-store.json", "results"]


@pytest.mark.parametrize("format", [b'{"format": 1}', b'{"format": 1, "made": "by somebody"}'])
def test_supported_formats_are_read(format: bytes) -> None:
    marker.check(format, "here")


@pytest.mark.parametrize("format", [b"", b"[]", b"1", b"{}", b'{"format": 0}', b'{"format": true}', b'{"format": 1.0}'])
def test_invalid_format_is_reported_with_a_remedy(format: bytes) -> None:
    with pytest.raises(StoreError, match=r'here cannot be read .*nothing is written here; .*write {"format": 1} to it'):
        marker.check(format, "here")


def test_newer_format_requires_an_update() -> None:
    with pytest.raises(StoreError, match="here has format 2, but this Engram reads up to 1: update Engram"):
        marker.check(b'{"format": 2}', "here")


def test_unreadable_marker_gives_one_line_error(tmp_path: Path) -> None:
    (tmp_path / marker.MARKER).mkdir()
    with pytest.raises(StoreError, match=rf"{marker.MARKER} cannot be read \(IsADirectoryError"):
        marker.open_folder(tmp_path, create=True)


def test_unfinished_marker_does_not_prevent_creation(tmp_path: Path) -> None:
    (tmp_path / f"1.abc{atomic_write.SUFFIX}").write_bytes(b'{"for')
    marker.open_folder(tmp_path, create=True)
    assert marker.text() == (tmp_path / marker.MARKER).read_bytes()


def test_path_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    location = tmp_path / "x\udcff"
    with pytest.raises(StoreError, match=r"cannot open the store .*: its path must be valid UTF-8"):
        open_store(location)
    assert not location.exists()
