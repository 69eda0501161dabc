"""On a terminal the answer comes first, in colour, and nothing is wider than the terminal; in a pipe it is plain.

Rows fit the width that there is: names wrap between words, numbers stay whole.
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
def ran(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A shell in whose folder the audit has run."""
    shell = Shell(tmp_path_factory.mktemp("terminal"))
    shell(*ASKED, "enough=1")
    return shell


@pytest.mark.parametrize("width", [80, 60])
def test_at_the_end_the_answer_comes_first_in_colour_and_fits_the_terminal(ran: Shell, width: int) -> None:
    said = Terminal(ran, width, *ASKED, "enough=1").read()
    assert COLOURED.search(said)
    ended = plain(said)[plain(said).index("Wordy: ") :].splitlines()
    *shown, last = ended
    assert max(map(len, shown)) <= width
    run = last.split()[0]
    assert "next: engram report --open" in shown
    assert any(line.startswith(f"      engram results {run} summary") for line in shown)
    assert last.startswith(f"{run} finished: 3 of 3 jobs stored, 0 computed now, 0 failed; ")
    assert any("6.8" in line and "[3.7, 9.8]" in line for line in shown)  # numbers are whole
    assert "4 answers" in " ".join(shown)


def test_columns_of_the_environment_count_in_a_pipe_where_no_control_code_is_written(ran: Shell) -> None:
    ran.env["COLUMNS"] = "60"
    try:
        done = ran(*ASKED, "enough=1")
    finally:
        del ran.env["COLUMNS"]
    assert max(map(len, done.stdout.splitlines()[:-1])) <= 60
    assert "\x1b" not in done.stdout + done.stderr
    whole = ran(*ASKED, "enough=1").stdout
    assert done.stdout.split() == whole.split()
    assert max(map(len, ran("list").stdout.splitlines())) > 80  # nothing is broken for a file


def test_without_colour_a_terminal_gets_no_control_code(ran: Shell) -> None:
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        changed = Shell(ran.folder)
        changed.env[name] = value
        said = Terminal(changed, 80, *ASKED, "enough=1").read()
        assert "Wordy: an answer has" in said
        assert "\x1b" not in said


def test_the_list_of_runs_fits_eighty_columns_with_whole_names_and_dates(ran: Shell) -> None:
    lines = plain(Terminal(ran, 80, "runs").read()).splitlines()
    assert lines[0].split() == ["run", "answer", "state", "preset", "created"]
    assert re.fullmatch(r"questions-[0-9a-f]{8} +wordy +finished +smoke +\d{4}-\d\d-\d\d \d\d:\d\d", lines[1])
    assert max(map(len, lines)) <= 80


def test_a_sweep_ends_with_a_row_for_each_cell_and_what_each_answers(ran: Shell) -> None:
    shown = ran(*ASKED, "--sweep", "enough=1,100").stdout.splitlines()
    assert shown[0].split() == ["enough", "answer", "measured", "estimate", "95", "%", "interval"]
    assert [" ".join(line.split()) for line in shown[1:3]] == [
        "1.0 wordy words of an answer 6.8 [3.7, 9.8]",
        "100.0 short words of an answer 6.8 [3.7, 9.8]",
    ]
    assert "enough=100.0: Short: an answer has 6.75 words, where 100 are enough." in shown


def test_an_interrupt_is_answered_on_the_terminal_and_the_run_ends_in_order(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    waiting = ("parts=8", "trouble=wait", "at=2", f"folder={tmp_path}")
    terminal = Terminal(shell, 60, "run", "toys", "--address", "none", *waiting)
    shell.await_begun(1, terminal.process)
    terminal.process.send_signal(signal.SIGINT)
    seen = terminal.until("stopping: no new job is started")
    shell.go()
    seen = plain(seen + terminal.read())
    assert terminal.process.returncode == 130
    assert "Traceback" not in seen
    lines = re.split("[\r\n]", seen[: seen.index("stopping: ")])
    assert [line for line in lines if len(line) > 60] == []
    assert "continue with: engram resume toys-" in seen


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


def test_what_cannot_stand_in_columns_stands_one_below_another() -> None:
    assert align_columns(ROWS, {"estimate"}, 40) is None
    assert stack_rows(ROWS, 38) == [
        "share of canaries found by chance",
        "  estimate 0.561",
        "  interval [0.284, 0.797]  p < 1e-6",
        "M",
        "  estimate -0.013",
        "  interval [-0.026, -0.001]",
    ]


def test_a_text_wraps_between_words_and_a_number_keeps_its_percent_sign() -> None:
    assert wrap_text("at 95 to 97 % here", 6) == ["at 95", "to", "97 %", "here"]
    assert wrap_text("abcdef", 4, " ") == ["abcd", " ef"]
    assert " ".join(wrap_text("一二 三四", 5)) == "一二 三四"
    assert (width_of("一二三四"), width_of("abcd")) == (8, 4)


def test_no_rows_are_no_lines_but_none() -> None:
    assert [line for line in align_columns([], set(), 80) or [] if re.search(r"\S", line)] == []
    assert stack_rows([], 80) == []


def test_a_width_below_the_indent_still_gives_lines() -> None:
    assert "".join(wrap_text("two words", 1, "    ")).replace(" ", "") == "twowords"
