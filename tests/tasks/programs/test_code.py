"""The files of a program: which belong to it, their digest, and the archive from which jobs read them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tasks.programs.code import CodeError, ProgramCode, copy_code, list_files, pack_code


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "program"
    (program / "pkg").mkdir(parents=True)
    (program / "store").mkdir()
    (program / "store" / "engram-store.json").write_text("{}")
    for name, text in (("train.py", "1"), ("pkg/model.py", "2"), ("notes.txt", "3"), ("store/run.json", "4")):
        (program / name).write_text(text)
    monkeypatch.chdir(program)
    return program


def test_scripts_without_git_and_tracked_files_with_it(folder: Path) -> None:
    assert list_files(ProgramCode()) == ["pkg/model.py", "train.py"]
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "notes.txt", "pkg"], check=True)
    assert list_files(ProgramCode()) == ["notes.txt", "pkg/model.py"]
    assert list_files(ProgramCode().with_files(["train.py", "results.json", "/etc/passwd"])) == [
        "notes.txt",
        "pkg/model.py",
        "train.py",
    ]
    assert list_files(ProgramCode("pkg,*.txt")) == ["notes.txt", "pkg/model.py"]


@pytest.mark.usefixtures("folder")
def test_missing_program_is_refused() -> None:
    with pytest.raises(CodeError, match=r"no file absent.py in .*, which training.command or training.code names"):
        ProgramCode().with_files(["python", "absent.py"]).pin({})


def test_digest_follows_names_contents_and_permissions(folder: Path) -> None:
    digests = [ProgramCode().pin({}).digest]
    (folder / "train.py").write_text("5")
    digests.append(ProgramCode().pin({}).digest)
    (folder / "train.py").chmod(0o755)
    digests.append(ProgramCode().pin({}).digest)
    (folder / "train.py").rename(folder / "other.py")
    digests.append(ProgramCode().pin({}).digest)
    assert len(set(digests)) == 4


def test_archive_is_independent_of_later_changes(folder: Path, tmp_path: Path) -> None:
    pinned = ProgramCode().pin({})
    kept = pack_code(pinned, tmp_path / "code.tar")
    (folder / "train.py").write_text("changed")
    assert ProgramCode.parse(str(kept)).pin({}) == kept
    copy_code(kept, tmp_path / "job")
    assert (tmp_path / "job" / "train.py").read_text() == "1"
    with pytest.raises(CodeError, match="changed since this run was planned"):
        copy_code(pinned, tmp_path / "other")


@pytest.mark.parametrize(
    ("patterns", "message"),
    [("../x.py", "must be inside"), ("/etc/passwd", "must be inside"), ("absent*.py", "there is no file absent")],
)
@pytest.mark.usefixtures("folder")
def test_patterns_outside_the_folder_are_refused(patterns: str, message: str) -> None:
    with pytest.raises(CodeError, match=message):
        list_files(ProgramCode(patterns))
