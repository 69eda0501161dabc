"""Guarantees of file systems, and what must be synced until a name survives a power cut."""

import os
from pathlib import Path

import pytest

from orchestrator.store import durability
from orchestrator.store.durability import STAMPING, Folders, Names, file_system, is_stamping, names_in, sync


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("ext4", Names.FILE),
        ("xfs", Names.FILE),
        ("nfs4", Names.NOTHING),
        ("btrfs", Names.FOLDER),
        ("overlay", Names.FOLDER),
        ("fuse.sshfs", Names.FOLDER),
    ],
)
def test_file_system_kind_decides_what_is_synced(tmp_path: Path, kind: str, names: Names) -> None:
    device = os.stat(tmp_path).st_dev
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "22 27 0:0 / /proc rw,relatime - proc proc rw\n"
        f"27 1 {os.major(device)}:{os.minor(device)} / /with\\040blank rw shared:1 - {kind} server:/export rw\n"
    )
    assert kind == file_system(tmp_path, mounts)
    assert names == names_in(tmp_path, mounts)
    assert (kind in ("ext4", "xfs", "btrfs")) == (kind in STAMPING)


def test_virtual_file_systems_have_unreliable_stamps() -> None:
    assert file_system(Path("/proc")) == "proc"
    assert not is_stamping(Path("/proc"))


def test_unknown_file_system_syncs_the_folder(tmp_path: Path) -> None:
    (tmp_path / "mountinfo").write_text("22 27 0:0 / /proc rw,relatime - proc proc rw\nodd\n")
    assert [
        names_in(tmp_path, tmp_path / "mountinfo"),
        names_in(tmp_path, tmp_path / "nowhere"),
        names_in(tmp_path / "nowhere"),
    ] == [Names.FOLDER] * 3


@pytest.mark.parametrize("names", Names)
def test_folder_name_is_synced_once_if_necessary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: Names) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(durability, "sync", synced.append)

    def make_folder(folders: Folders, *parts: str) -> list[Path]:
        synced.clear()
        folders.make(tmp_path.joinpath(*parts))
        assert tmp_path.joinpath(*parts).is_dir()
        return [*synced]

    folders = Folders(tmp_path)
    folders.names = names
    (tmp_path / "others" / "deep").mkdir(parents=True)  # by another process, which may have died before it synced them
    expected = [[tmp_path], [], [tmp_path / "a"], [tmp_path, tmp_path / "others"], [tmp_path / "others"]]
    paths = [("a",), ("a",), ("a", "b"), ("others", "deep"), ("others", "new")]
    assert [make_folder(folders, *parts) for parts in paths] == (expected if names is Names.FOLDER else [[]] * 5)
    with pytest.raises(FileNotFoundError):
        folders.make(tmp_path / "gone" / "c")


def test_file_and_folder_can_be_synced(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    for path in (tmp_path, tmp_path / "file"):
        open_files = len(os.listdir("/proc/self/fd"))
        sync(path)
        assert open_files == len(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError):
        sync(tmp_path / "nowhere")
