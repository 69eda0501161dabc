"""What the shell offers after Tab, asked as bash asks it."""

from __future__ import annotations

from tests.support.shell import Here, Shell


def offered(shell: Shell, line: str) -> list[str]:
    """The words that are offered for the last one of a line, which may be empty."""
    asked = {"_ENGRAM_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    asking = Shell(shell.folder)
    asking.env |= asked
    done = asking.script("from orchestrator.cli import main; main()")
    assert done.stderr == ""
    return done.stdout.split()


def test_audits_files_presets_and_fields_are_offered(shell: Shell) -> None:
    (shell.folder / "use.yaml").touch()
    assert offered(shell, "engram run u") == ["unique_feature", "use.yaml"]
    assert offered(shell, "engram run questions --preset s") == ["smoke"]
    assert offered(shell, "engram plan toys s") == ["seconds=", "share="]
    assert offered(shell, "engram plan toys share=") == ["share=true", "share=false"]
    assert "feature.text=" in offered(shell, "engram run unique_feature feature.t")
    assert offered(shell, "engram run toys nothing.x") == []


def test_runs_are_offered_and_none_where_there_is_no_store(shell: Shell) -> None:
    assert offered(shell, "engram report t") == []
    run = Here(shell.folder).json("run", "toys", "--address", "none", "parts=1")["run"]
    assert [run] == offered(shell, "engram report t")
