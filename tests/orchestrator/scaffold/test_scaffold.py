"""A new audit runs, passes its tests and meets the style rules without a change."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.errors import EngramError, SpecError
from orchestrator.scaffold import new_audit
from tests.support.shell import ROOT, Here, Shell
from tests.support.waiting import HANGING

OFFER = "[engram.audits]\n{name} = {name}:AUDIT\n"


def offered(folder: Path, name: str) -> Shell:
    """A shell with the folder's package installed, as pip would install it."""
    info = folder / f"{name}-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text(OFFER.format(name=name))
    shell = Shell(folder)
    shell.env["PYTHONPATH"] += os.pathsep + str(folder)
    return shell


@pytest.mark.slow
def test_new_audit_runs_and_passes_its_test(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    created = Here(tmp_path).json("new", "audit", "word_gap", "--into", "mine")
    assert [Path(path).name for path in created["files"]] == ["word_gap.py", "test_word_gap.py", "pyproject.toml"]
    assert created["next"][1:] == ["engram run word_gap --preset smoke", "python -m pytest mine/test_word_gap.py"]
    shell = offered(folder, "word_gap")
    output = shell("run", "word_gap", "--preset", "smoke", "--address", "none").stdout
    assert "Memorised: " in output
    assert "finished" in output
    output, _ = shell.python("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_word_gap.py").communicate(
        timeout=HANGING
    )
    assert "6 passed" in output


@pytest.mark.parametrize("name", ["ab", "word_gap", "a_name_of_thirty_letters_and_no"[:30]])
def test_new_audit_is_clean_for_ruff(tmp_path: Path, name: str) -> None:
    new_audit(name, tmp_path)
    for command in (
        ("ruff", "check", "--config", str(ROOT / "pyproject.toml"), str(tmp_path)),
        ("ruff", "format", "--check", "--config", str(ROOT / "pyproject.toml"), str(tmp_path)),
    ):
        done = subprocess.run(
            [sys.executable, "-m", *command], capture_output=True, text=True, cwd=tmp_path, timeout=HANGING
        )
        assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_a_new_audit_is_typed(tmp_path: Path) -> None:
    new_audit("word_gap", tmp_path)
    command = ("mypy", "--strict", "--config-file", str(ROOT / "pyproject.toml"), str(tmp_path / "word_gap.py"))
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, cwd=ROOT, timeout=600)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", ["", "A", "9lives", "two words", "class", "../up", "x" * 31])
def test_invalid_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SpecError, match="it must be 2 to 30 small letters, digits and underscores"):
        new_audit(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "whose"), [("random", "a module of Python"), ("numpy", r"an installed module \(.*numpy/__init__\.py\)")]
)
def test_name_of_an_existing_module_is_refused(tmp_path: Path, name: str, whose: str) -> None:
    with pytest.raises(SpecError, match=f"NAME is '{name}', {whose}.*; give another name"):
        new_audit(name, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_folder_of_the_same_name_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "word_gap").mkdir()
    monkeypatch.syspath_prepend(tmp_path)  # as `python -m orchestrator` has the current folder
    assert len(new_audit("word_gap", tmp_path / "word_gap").files) == 3


def test_installing_pytest_comes_first_if_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pytest", None)
    monkeypatch.chdir(tmp_path)
    following = new_audit("word_gap", tmp_path).following
    assert following[-2:] == ("python -m pip install pytest", "python -m pytest test_word_gap.py")


def test_existing_audits_and_files_are_kept(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="an audit 'density' exists"):
        new_audit("density", tmp_path)
    (tmp_path / "word_gap.py").write_text("mine")
    with pytest.raises(SpecError, match=r"word_gap\.py exists"):
        new_audit("word_gap", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["word_gap.py"]
    (tmp_path / "file").write_text("")
    with pytest.raises(EngramError, match="cannot be written: Not a directory"):
        new_audit("word_gap", tmp_path / "file" / "deeper")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(EngramError, match="cannot be written"):
        new_audit("word_gap", tmp_path / "loop")
    for name in ("x" * 300, "y" * 300 + "/deeper"):
        with pytest.raises(SpecError, match="cannot be written: File name too long"):
            new_audit("word_gap", tmp_path / name)


def test_outside_the_checkout_files_go_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert [Path("word_gap.py"), Path("test_word_gap.py"), Path("pyproject.toml")] == list(new_audit("word_gap").files)
    assert not (ROOT / "tasks" / "audits" / "word_gap.py").exists()


def test_new_training_program_runs_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    created = Here(tmp_path).json("new", "training", "mine")
    assert created["files"] == ["mine/train.py"]
    assert len((tmp_path / "mine" / "train.py").read_text().splitlines()) <= 25
    enter, command = created["next"]
    assert enter == "cd mine"
    _, *words = shlex.split(command.replace("models=16", "models=4"))
    here = Here(tmp_path / "mine")
    assert "4 trainings" in here(*words, "--address", "none", "--mlflow", "off").stdout
    assert "mine/train.py exists" in Here(tmp_path)("new", "training", "mine", code=2).stderr
