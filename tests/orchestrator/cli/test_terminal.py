"""On a terminal, the answer comes first, in colour, within the width. In a pipe, it is plain.

Rows fit the width: names wrap between words, and numbers stay whole.
"""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from orchestrator.cli.terminal import align_columns, stack_rows, width_of, wrap_text
from tests.support.pseudo_terminal import Terminal, plain
from tests.support.shell import Shell

ASKED = ("run", "questions", "--preset", "smoke", "--address", "none")
COLOURED = re.compile(r"\x1b\[[0-9;]+mWordy\x1b\[0m: an answer has")
ROWS = [
    {
        "metric": "share of canaries found by chance",
        "estimate": "0.561",
        "interval": "[0.284, 0.797]",
        "p": "< 1e-6",
    },
    {"metric": "M", "estimate": "-0.013", "interval": "[-0.026, -0.001]", "p": ""},
]


@pytest.fixture(scope="module")
def audited_shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A shell in whose folder the audit has run."""
    shell = Shell(tmp_path_factory.mktemp("terminal"))
    shell(*ASKED, "enough=1")
    return shell


@pytest.mark.parametrize("width", [80, 60])
def test_answer_comes_first_and_fits_the_terminal(audited_shell: Shell, width: int) -> None:
    output = Terminal(audited_shell, width, *ASKED, "enough=1").read()
    assert COLOURED.search(output)
    ended = plain(output)[plain(output).index("Wordy: ") :].splitlines()
    *answer_lines, last = ended
    assert max(map(len, answer_lines)) <= width
    run = last.split()[0]
    assert "next: engram report --open" in answer_lines
    assert any(line.startswith(f"      engram results {run} summary") for line in answer_lines)
    assert last.startswith(f"{run} finished: 3 of 3 jobs stored, 0 computed now, 0 failed; ")
    assert any("6.8" in line and "[3.7, 9.8]" in line for line in answer_lines)  # numbers are whole
    assert "4 answers" in " ".join(answer_lines)


def test_columns_variable_sets_the_width_in_pipes(audited_shell: Shell) -> None:
    audited_shell.env["COLUMNS"] = "60"
    try:
        done = audited_shell(*ASKED, "enough=1")
    finally:
        del audited_shell.env["COLUMNS"]
    assert max(map(len, done.stdout.splitlines()[:-1])) <= 60
    assert "\x1b" not in done.stdout + done.stderr
    unwrapped = audited_shell(*ASKED, "enough=1").stdout
    assert done.stdout.split() == unwrapped.split()
    assert max(map(len, audited_shell("list").stdout.splitlines())) > 80  # lines are not wrapped for a file


def test_without_colour_no_control_code_is_printed(audited_shell: Shell) -> None:
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        changed = Shell(audited_shell.folder)
        changed.env[name] = value
        output = Terminal(changed, 80, *ASKED, "enough=1").read()
        assert "Wordy: an answer has" in output
        assert "\x1b" not in output


def test_run_list_fits_80_columns_unabridged(audited_shell: Shell) -> None:
    lines = plain(Terminal(audited_shell, 80, "runs").read()).splitlines()
    printed = " ".join(" ".join(lines).split())
    assert printed.startswith("run effect answer state preset created")
    assert "words of an wordy finished smoke" in printed  # the effect wraps between words
    assert printed.endswith("answer 6.8 [3.7, 9.8]")
    assert max(map(len, lines)) <= 80


def test_sweep_ends_with_a_row_per_cell(audited_shell: Shell) -> None:
    lines = audited_shell(*ASKED, "--sweep", "enough=1,100").stdout.splitlines()
    assert lines[0].split() == ["enough", "effect", "answer"]
    assert [" ".join(line.split()) for line in lines[1:3]] == [
        "1.0 words of an answer 6.8 [3.7, 9.8] wordy",
        "100.0 words of an answer 6.8 [3.7, 9.8] short",
    ]
    assert "enough=100.0: Short: an answer has 6.75 words, where 100 are enough." in lines


def test_interrupt_is_acknowledged_and_run_ends_cleanly(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    waiting = ("parts=8", "trouble=wait", "at=2", f"folder={tmp_path}")
    terminal = Terminal(shell, 60, "run", "toys", "--address", "none", *waiting)
    shell.await_begun(1, terminal.process)
    terminal.process.send_signal(signal.SIGINT)
    output = terminal.until("stopping: no new job is started")
    shell.go()
    output = plain(output + terminal.read())
    assert terminal.process.returncode == 130
    assert "Traceback" not in output
    lines = re.split("[\r\n]", output[: output.index("stopping: ")])
    assert [line for line in lines if len(line) > 60] == []
    assert "continue with: engram resume toys-" in output


def test_names_wrap_between_words_and_numbers_never() -> None:
    assert align_columns(ROWS, {"estimate", "p"}, 56) == [
        "metric                estimate  interval               p",
        "share of canaries        0.561  [0.284, 0.797]    < 1e-6",
        "found by chance",
        "M                       -0.013  [-0.026, -0.001]",
    ]


@pytest.mark.parametrize("width", range(45, 90))
def test_every_line_fits_and_holds_whole_numbers(width: int) -> None:
    lines = align_columns(ROWS, {"estimate", "p"}, width)
    assert lines is not None
    assert max(map(len, lines)) <= width
    for row in ROWS:
        assert any(all(row[name] in line for name in ("estimate", "interval", "p")) for line in lines)


def test_wide_rows_are_stacked() -> None:
    assert align_columns(ROWS, {"estimate"}, 40) is None
    assert stack_rows(ROWS, 38) == [
        "share of canaries found by chance",
        "  estimate 0.561",
        "  interval [0.284, 0.797]  p < 1e-6",
        "M",
        "  estimate -0.013",
        "  interval [-0.026, -0.001]",
    ]


def test_numbers_keep_their_percent_sign_when_wrapped() -> None:
    assert wrap_text("at 95 to 97 % here", 6) == ["at 95", "to", "97 %", "here"]
    assert wrap_text("abcdef", 4, " ") == ["abcd", " ef"]
    assert " ".join(wrap_text("一二 三四", 5)) == "一二 三四"
    assert width_of("一二三四") == 8
    assert width_of("abcd") == 4


def test_no_rows_give_no_lines() -> None:
    assert [line for line in align_columns([], set(), 80) or [] if re.search(r"\S", line)] == []
    assert stack_rows([], 80) == []


def test_width_below_the_indent_still_gives_lines() -> None:
    assert "".join(wrap_text("two words", 1, "    ")).replace(" ", "") == "twowords"
