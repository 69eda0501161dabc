"""Completions of the shell, requested as bash requests them."""

from __future__ import annotations

from tests.support.shell import Here, Shell


def offered(shell: Shell, line: str) -> list[str]:
    """The words offered for the last word of a line, which may be empty."""
    completion_variables = {
        "_ENGRAM_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
    }
    completing_shell = Shell(shell.folder)
    completing_shell.env |= completion_variables
    done = completing_shell.script("from orchestrator.cli import main; main()")
    assert done.stderr == ""
    return done.stdout.split()


def test_audits_files_presets_and_fields_are_offered(shell: Shell) -> None:
    (shell.folder / "use.yaml").touch()
    assert offered(shell, "engram run u") == ["unique_feature", "use.yaml"]
    assert offered(shell, "engram run questions --preset s") == ["smoke"]
    assert offered(shell, "engram run toys s") == ["seconds=", "share="]
    assert offered(shell, "engram plan toys share=") == ["share=true", "share=false"]
    assert "feature.text=" in offered(shell, "engram run unique_feature feature.t")
    assert offered(shell, "engram run toys nothing.x") == []


def test_runs_are_offered_if_a_store_exists(shell: Shell) -> None:
    assert offered(shell, "engram report t") == []
    run = Here(shell.folder).json("run", "toys", "--address", "none", "parts=1")["run"]
    assert [run] == offered(shell, "engram report t")
    assert [run] == offered(shell, "engram runs cancel t")


def test_only_new_names_and_second_words_are_offered(shell: Shell) -> None:
    assert offered(shell, "engram s") == ["show", "search", "store"]
    assert offered(shell, "engram runs ") == ["status", "logs", "cancel"]
    assert offered(shell, "engram report ver") == ["verify"]
    assert offered(shell, "engram report verify --str") == ["--strict"]
    assert offered(shell, "engram debug e") == ["explain"]
    assert "--dry-run" in offered(shell, "engram run toys --d")
