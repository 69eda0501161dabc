import errno
from pathlib import Path

import pytest

from orchestrator.cli.store import command_store, report_interrupt
from orchestrator.errors import EngramError, SpecError, StoreError
from orchestrator.store import open_store


def said(location: Path) -> str:
    """What is said of an error that nobody foresaw."""
    with pytest.raises(EngramError) as ended, command_store(str(location)):
        raise ZeroDivisionError("of nothing\nby nothing")
    return str(ended.value)


def test_an_unforeseen_error_is_one_line_and_its_traceback_lies_in_the_store(tmp_path: Path) -> None:
    open_store(tmp_path)
    line = said(tmp_path)
    [note] = (tmp_path / "crashes").iterdir()
    assert line.startswith("unexpected ZeroDivisionError: of nothing by nothing (a bug in engram; ")
    assert line.endswith(f"its traceback is in {note})")
    assert "Traceback" in note.read_text()


def test_a_disk_that_fails_is_no_fault_of_ours_and_named_in_one_line(tmp_path: Path) -> None:
    open_store(tmp_path)
    with pytest.raises(StoreError) as ended, command_store(str(tmp_path)):
        raise OSError(errno.ESTALE, "Stale file handle", str(tmp_path / "runs"))
    assert f"cannot use {tmp_path}/runs: Stale file handle; fix this, then repeat the command to continue" == str(
        ended.value
    )
    assert not (tmp_path / "crashes").exists()


def test_where_no_note_can_be_left_the_cause_is_said_all_the_same(tmp_path: Path) -> None:
    open_store(tmp_path)
    (tmp_path / "crashes").touch()
    line = said(tmp_path)
    assert line.startswith("unexpected ZeroDivisionError: of nothing by nothing (a bug in engram; --debug")
    assert f"the traceback, which could not be saved: cannot write {tmp_path}/crashes: File exists" in line


def test_a_store_that_is_not_there_is_bad_usage(tmp_path: Path) -> None:
    with (
        pytest.raises(SpecError, match=r"there is no store at .*; run an audit first"),
        command_store(str(tmp_path / "no")),
    ):
        raise AssertionError("it was opened")


def test_an_interrupt_before_there_is_a_store_is_answered(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), report_interrupt():
        raise KeyboardInterrupt
    assert capsys.readouterr().err == "engram: stopped; nothing was started\n"
