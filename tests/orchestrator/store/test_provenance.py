"""The origin that a record states: process, versions, commit and device."""

from __future__ import annotations

import os
import platform
import socket
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator.store import provenance

COMMIT = "a" * 40
OTHER = "b" * 40


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for the folder of the code."""
    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "code" / "orchestrator" / "store" / "provenance.py"))
    (tmp_path / "code").mkdir()
    return tmp_path / "code"


def commit() -> str | None:
    return provenance.commit.__wrapped__()


def write_file(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def test_process_is_named_by_host_and_number() -> None:
    assert provenance.process() == f"{socket.gethostname()}:{os.getpid()}"


def test_only_installed_versions_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name == "scipy":
            raise metadata.PackageNotFoundError(name)
        return f"1.0+{name}"

    monkeypatch.setattr(metadata, "version", version)
    names = ("engram-audit", "numpy", "pyarrow", "torch", "ray")
    expected = {"python": platform.python_version()} | {name: f"1.0+{name}" for name in names}
    assert expected == provenance.versions.__wrapped__()


def test_code_outside_a_checkout_has_no_commit(root: Path) -> None:
    assert commit() is None
    write_file(root / ".git" / "HEAD", "ref: refs/heads/new")  # without any commit yet
    assert commit() is None


def test_commit_is_read_from_branch_or_head(root: Path) -> None:
    write_file(root / ".git" / "HEAD", COMMIT)
    assert commit() == COMMIT
    write_file(root / ".git" / "HEAD", "ref: refs/heads/some/branch")
    write_file(root / ".git" / "packed-refs", f"# pack-refs\n{COMMIT} refs/heads/other\n{OTHER} refs/heads/some/branch")
    assert commit() == OTHER
    write_file(root / ".git" / "refs" / "heads" / "some" / "branch", COMMIT)  # newer than the packed ones
    assert commit() == COMMIT
    write_file(root / ".git" / "HEAD", "ref: refs/heads/gone")
    assert commit() is None


def test_branch_with_a_similar_name_is_not_used(root: Path) -> None:
    write_file(root / ".git" / "HEAD", "ref: refs/heads/main")
    write_file(root / ".git" / "packed-refs", f"{OTHER} refs/remotes/refs/heads/main\n{COMMIT} refs/heads/main")
    assert commit() == COMMIT


def test_worktree_uses_its_head_and_the_repositorys_branches(root: Path, tmp_path: Path) -> None:
    git = tmp_path / "repository" / ".git"
    write_file(root / ".git", f"gitdir: {git / 'worktrees' / 'code'}")
    write_file(git / "worktrees" / "code" / "HEAD", "ref: refs/heads/branch")
    write_file(git / "worktrees" / "code" / "commondir", "../..")
    write_file(git / "HEAD", OTHER)
    write_file(git / "refs" / "heads" / "branch", COMMIT)
    assert commit() == COMMIT


def torch(has_gpu: bool) -> SimpleNamespace:
    cuda = SimpleNamespace(is_available=lambda: has_gpu, get_device_name=lambda: "NVIDIA H200")
    return SimpleNamespace(cuda=cuda, get_num_threads=lambda: 7)


@pytest.mark.parametrize(
    ("noted", "has_gpu", "expected"),
    [
        (None, True, "NVIDIA H200"),
        ("cuda:0", True, "NVIDIA H200"),
        ("cpu", True, "a processor"),
        (None, False, "a processor"),
        ("cpu:0", False, "a processor"),
        ("NVIDIA A100", False, "NVIDIA A100"),
    ],
)
def test_device_has_one_name(noted: str | None, has_gpu: bool, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch(has_gpu))
    monkeypatch.setattr(platform, "processor", lambda: "")
    monkeypatch.setattr(platform, "machine", lambda: "a processor")
    assert provenance.device(noted) == {"device": expected, "threads": 7}


def test_without_torch_the_noted_device_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert provenance.device() == {"device": "cpu"}
    assert provenance.device("TPU") == {"device": "TPU"}
