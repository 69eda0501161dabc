"""What the shell offers after Tab, asked as bash asks it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.shell import Here, Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def offered(shell: Shell, line: str) -> list[str]:
    """The words that are offered for the last one of a line, which may be empty."""
    asked = {"_ENGRAM_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    command = [sys.executable, "-c", "from orchestrator.cli import main; main()"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=shell.folder, env=shell.env | asked, timeout=240)
    assert "" == done.stderr
    return done.stdout.split()


def test_audits_files_presets_and_fields_are_offered(shell: Shell) -> None:
    (shell.folder / "use.yaml").touch()
    assert ["unique_feature", "use.yaml"] == offered(shell, "engram run u")
    assert ["smoke"] == offered(shell, "engram run questions --preset s")
    assert ["seconds=", "share="] == offered(shell, "engram plan toys s")
    assert ["share=true", "share=false"] == offered(shell, "engram plan toys share=")
    assert "feature.text=" in offered(shell, "engram run unique_feature feature.t")
    assert [] == offered(shell, "engram run toys nothing.x")


def test_runs_are_offered_and_none_where_there_is_no_store(shell: Shell) -> None:
    assert [] == offered(shell, "engram report t")
    run = Here(shell.folder).json("run", "toys", "--address", "none", "parts=1")["run"]
    assert [run] == offered(shell, "engram report t")
