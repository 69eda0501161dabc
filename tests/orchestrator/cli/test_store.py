import errno
from pathlib import Path

import pytest

from orchestrator.cli.store import command_store, report_interrupt
from orchestrator.errors import EngramError, SpecError, StoreError
from orchestrator.store import open_store


def unexpected_error_message(location: Path) -> str:
    """The message for an unexpected error."""
    with pytest.raises(EngramError) as ended, command_store(str(location)):
        raise ZeroDivisionError("of nothing\nby nothing")
    return str(ended.value)


def test_unexpected_error_stores_its_traceback(tmp_path: Path) -> None:
    open_store(tmp_path)
    line = unexpected_error_message(tmp_path)
    [note] = (tmp_path / "crashes").iterdir()
    assert line.startswith("unexpected ZeroDivisionError: of nothing by nothing (a bug in engram; ")
    assert line.endswith(f"its traceback is in {note})")
    assert "Traceback" in note.read_text()


def test_failing_disk_is_named_in_one_line(tmp_path: Path) -> None:
    open_store(tmp_path)
    with pytest.raises(StoreError) as ended, command_store(str(tmp_path)):
        raise OSError(errno.ESTALE, "Stale file handle", str(tmp_path / "runs"))
    assert (
        str(ended.value)
        == f"cannot use {tmp_path}/runs: Stale file handle; fix the problem and repeat the command to continue"
    )
    assert not (tmp_path / "crashes").exists()


def test_error_is_reported_without_a_stored_traceback(tmp_path: Path) -> None:
    open_store(tmp_path)
    (tmp_path / "crashes").touch()
    line = unexpected_error_message(tmp_path)
    assert line.startswith("unexpected ZeroDivisionError: of nothing by nothing (a bug in engram; --debug")
    assert f"the traceback, which could not be saved: cannot write {tmp_path}/crashes: File exists" in line


def test_missing_store_is_bad_usage(tmp_path: Path) -> None:
    with (
        pytest.raises(SpecError, match=r"there is no store at .*; run an audit first"),
        command_store(str(tmp_path / "no")),
    ):
        raise AssertionError("it was opened")


def test_interrupt_before_a_store_is_answered(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), report_interrupt():
        raise KeyboardInterrupt
    assert capsys.readouterr().err == "engram: stopped before the run was started\n"
