import os
from pathlib import Path

import pytest

from orchestrator.errors import StoreError
from orchestrator.store import atomic_write, marker, open_store


def test_a_new_folder_is_made_a_store_with_a_marker_that_says_its_format(tmp_path: Path) -> None:
    root = tmp_path / "one" / "two"
    marker.open_folder(root, create=True)
    assert (os.listdir(root), (root / marker.MARKER).read_bytes()) == (["engram-store.json"], b'{"format": 1}\n')
    marker.open_folder(root, create=False)


def test_nothing_is_made_where_that_is_not_asked_for(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"there is no store at .*; run an audit to create one"):
        marker.open_folder(tmp_path, create=False)
    assert os.listdir(tmp_path) == []


def test_a_marker_that_another_maker_has_put_there_meanwhile_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
def test_formats_up_to_ours_are_read(format: bytes) -> None:
    marker.check(format, "here")


@pytest.mark.parametrize("format", [b"", b"[]", b"1", b"{}", b'{"format": 0}', b'{"format": true}', b'{"format": 1.0}'])
def test_what_is_no_format_is_said_with_what_to_write(format: bytes) -> None:
    with pytest.raises(StoreError, match=r'here cannot be read .*nothing is written here; .*write {"format": 1} to it'):
        marker.check(format, "here")


def test_a_newer_format_is_said_to_need_an_update() -> None:
    with pytest.raises(StoreError, match="here has format 2, but this Engram reads up to 1: update Engram"):
        marker.check(b'{"format": 2}', "here")


def test_a_marker_that_cannot_be_read_stops_in_one_line(tmp_path: Path) -> None:
    (tmp_path / marker.MARKER).mkdir()
    with pytest.raises(StoreError, match=rf"{marker.MARKER} cannot be read \(IsADirectoryError"):
        marker.open_folder(tmp_path, create=True)


def test_what_a_maker_that_died_left_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / f"1.abc{atomic_write.SUFFIX}").write_bytes(b'{"for')
    marker.open_folder(tmp_path, create=True)
    assert marker.text() == (tmp_path / marker.MARKER).read_bytes()


def test_a_store_whose_path_is_no_utf_8_is_refused_in_a_line(tmp_path: Path) -> None:
    location = tmp_path / "x\udcff"
    with pytest.raises(StoreError, match=r"cannot open the store .*: its path must be valid UTF-8"):
        open_store(location)
    assert not location.exists()
