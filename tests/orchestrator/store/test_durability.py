"""What the kind of a file system promises."""

import os
from pathlib import Path

import pytest

from orchestrator.store.durability import STAMPING, Names, file_system, names_in


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


def test_names_wait_for_their_folder_where_the_file_system_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "mountinfo").write_text("22 27 0:0 / /proc rw,relatime - proc proc rw\nodd\n")
    assert [Names.FOLDER] * 3 == [
        names_in(tmp_path, tmp_path / "mountinfo"),
        names_in(tmp_path, tmp_path / "nowhere"),
        names_in(tmp_path / "nowhere"),
    ]
