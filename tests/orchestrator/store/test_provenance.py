"""What a record says of where a result was made: process, versions, commit and device."""

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

COMMIT, OTHER = "a" * 40, "b" * 40


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that the code seems to lie in."""
    monkeypatch.setattr(provenance, "__file__", str(tmp_path / "code" / "orchestrator" / "store" / "provenance.py"))
    (tmp_path / "code").mkdir()
    return tmp_path / "code"


def commit() -> str | None:
    return provenance.commit.__wrapped__()


def written(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def test_a_process_is_named_by_its_host_and_number() -> None:
    assert f"{socket.gethostname()}:{os.getpid()}" == provenance.process()


def test_versions_are_those_installed_and_nothing_is_said_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name == "scipy":
            raise metadata.PackageNotFoundError(name)
        return f"1.0+{name}"

    monkeypatch.setattr(metadata, "version", version)
    names = ("engram-audit", "numpy", "pyarrow", "torch", "ray")
    expected = {"python": platform.python_version()} | {name: f"1.0+{name}" for name in names}
    assert expected == provenance.versions.__wrapped__()


def test_code_that_is_no_checkout_has_no_commit(root: Path) -> None:
    assert commit() is None
    written(root / ".git" / "HEAD", "ref: refs/heads/new")  # without any commit yet
    assert commit() is None


def test_the_commit_is_that_of_the_branch_or_of_a_detached_head(root: Path) -> None:
    written(root / ".git" / "HEAD", COMMIT)
    assert commit() == COMMIT
    written(root / ".git" / "HEAD", "ref: refs/heads/some/branch")
    written(root / ".git" / "packed-refs", f"# pack-refs\n{COMMIT} refs/heads/other\n{OTHER} refs/heads/some/branch")
    assert commit() == OTHER
    written(root / ".git" / "refs" / "heads" / "some" / "branch", COMMIT)  # newer than what was packed
    assert commit() == COMMIT
    written(root / ".git" / "HEAD", "ref: refs/heads/gone")
    assert commit() is None


def test_a_branch_whose_name_ends_like_another_is_not_taken_for_it(root: Path) -> None:
    written(root / ".git" / "HEAD", "ref: refs/heads/main")
    written(root / ".git" / "packed-refs", f"{OTHER} refs/remotes/refs/heads/main\n{COMMIT} refs/heads/main")
    assert commit() == COMMIT


def test_a_worktree_has_a_head_of_its_own_and_its_repositorys_branches(root: Path, tmp_path: Path) -> None:
    git = tmp_path / "repository" / ".git"
    written(root / ".git", f"gitdir: {git / 'worktrees' / 'code'}")
    written(git / "worktrees" / "code" / "HEAD", "ref: refs/heads/branch")
    written(git / "worktrees" / "code" / "commondir", "../..")
    written(git / "HEAD", OTHER)
    written(git / "refs" / "heads" / "branch", COMMIT)
    assert commit() == COMMIT


def torch(there: bool) -> SimpleNamespace:
    cuda = SimpleNamespace(is_available=lambda: there, get_device_name=lambda: "NVIDIA H200")
    return SimpleNamespace(cuda=cuda, get_num_threads=lambda: 7)


@pytest.mark.parametrize(
    ("noted", "there", "expected"),
    [
        (None, True, "NVIDIA H200"),
        ("cuda:0", True, "NVIDIA H200"),
        ("cpu", True, "a processor"),
        (None, False, "a processor"),
        ("cpu:0", False, "a processor"),
        ("NVIDIA A100", False, "NVIDIA A100"),
    ],
)
def test_a_device_has_one_name_however_it_was_noted(
    noted: str | None, there: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch(there))
    monkeypatch.setattr(platform, "processor", lambda: "")
    monkeypatch.setattr(platform, "machine", lambda: "a processor")
    assert {"device": expected, "threads": 7} == provenance.device(noted)


def test_without_torch_the_device_is_what_was_noted_or_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert [provenance.device(), provenance.device("TPU")] == [{"device": "cpu"}, {"device": "TPU"}]
