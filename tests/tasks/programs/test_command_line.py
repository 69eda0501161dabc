"""Placeholders of a command: which are known, how values are quoted, and which words may be files."""

from __future__ import annotations

import pytest

from tasks.programs.command_line import check_command, fill_command, named_files, used_placeholders


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("  ", "command is empty"),
        ("train {row}", "did you mean {rows}?"),
        ("train {rows:csv}", "write {rows:npy} or {rows:txt} or {rows:parquet}"),
        ("train {seed:txt}", "write {seed}"),
    ],
)
def test_unknown_placeholders_are_refused(command: str, message: str) -> None:
    with pytest.raises(ValueError, match="command") as refusal:
        check_command(command)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_values_are_quoted_and_braces_of_the_shell_stay() -> None:
    command = "awk '{print $1}' {rows:txt}; echo ${HOME} {{rows}} {out}"
    check_command(command)
    filled = fill_command(command, {("rows", "txt"): "/a b/rows.txt", ("out", ""): "/o"})
    assert filled == "awk '{print $1}' '/a b/rows.txt'; echo ${HOME} {rows} /o"
    assert used_placeholders(command) == [("rows", "txt"), ("out", "")]


def test_named_files_are_words_without_options() -> None:
    assert named_files("python src/train.py --rows {rows} -x --config=a.yaml b.yaml") == [
        "python",
        "src/train.py",
        "b.yaml",
    ]
