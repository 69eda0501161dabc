"""What the kind of a file system promises, and what names wait for until a power cut cannot take them."""

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
def test_the_file_system_that_a_folder_is_on_says_what_its_names_wait_for(
    tmp_path: Path, kind: str, names: Names
) -> None:
    device = os.stat(tmp_path).st_dev
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "22 27 0:0 / /proc rw,relatime - proc proc rw\n"
        f"27 1 {os.major(device)}:{os.minor(device)} / /with\\040blank rw shared:1 - {kind} server:/export rw\n"
    )
    assert (kind, names) == (file_system(tmp_path, mounts), names_in(tmp_path, mounts))
    assert (kind in ("ext4", "xfs", "btrfs")) == (kind in STAMPING)


def test_files_of_a_kernel_s_own_file_system_may_change_unseen() -> None:
    assert file_system(Path("/proc")) == "proc"
    assert not is_stamping(Path("/proc"))


def test_names_wait_for_their_folder_where_the_file_system_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "mountinfo").write_text("22 27 0:0 / /proc rw,relatime - proc proc rw\nodd\n")
    assert [
        names_in(tmp_path, tmp_path / "mountinfo"),
        names_in(tmp_path, tmp_path / "nowhere"),
        names_in(tmp_path / "nowhere"),
    ] == [Names.FOLDER] * 3


@pytest.mark.parametrize("names", Names)
def test_a_folder_s_name_is_synced_once_where_its_file_system_needs_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: Names
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(durability, "sync", synced.append)

    def made(folders: Folders, *parts: str) -> list[Path]:
        synced.clear()
        folders.make(tmp_path.joinpath(*parts))
        assert tmp_path.joinpath(*parts).is_dir()
        return [*synced]

    folders = Folders(tmp_path)
    folders.names = names
    (tmp_path / "others" / "deep").mkdir(parents=True)  # by another process, which may have died before it synced them
    expected = [[tmp_path], [], [tmp_path / "a"], [tmp_path, tmp_path / "others"], [tmp_path / "others"]]
    paths = [("a",), ("a",), ("a", "b"), ("others", "deep"), ("others", "new")]
    assert [made(folders, *parts) for parts in paths] == (expected if names is Names.FOLDER else [[]] * 5)
    with pytest.raises(FileNotFoundError):
        folders.make(tmp_path / "gone" / "c")


def test_a_file_and_a_folder_can_be_synced(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    for path in (tmp_path, tmp_path / "file"):
        open_files = len(os.listdir("/proc/self/fd"))
        sync(path)
        assert open_files == len(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError):
        sync(tmp_path / "nowhere")
