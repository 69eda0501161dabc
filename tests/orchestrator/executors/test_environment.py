from __future__ import annotations

import os
import signal

import pytest

from orchestrator.executors import environment
from orchestrator.executors.environment import handler_kept, no_stderr, variables


def test_variables_are_set_for_a_while_and_then_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_ONE", "before")
    monkeypatch.delenv("ENGRAM_TWO", raising=False)
    monkeypatch.setenv("ENGRAM_THREE", "before")
    with variables({"ENGRAM_ONE": "1", "ENGRAM_TWO": "2"}, "ENGRAM_THREE", "ENGRAM_FOUR"):
        assert ("1", "2") == (os.environ["ENGRAM_ONE"], os.environ["ENGRAM_TWO"])
        del os.environ["ENGRAM_THREE"]
        os.environ["ENGRAM_FOUR"] = "unasked"
    assert ("before", "before") == (os.environ["ENGRAM_ONE"], os.environ["ENGRAM_THREE"])
    assert not {"ENGRAM_TWO", "ENGRAM_FOUR"} & set(os.environ)


def test_libraries_that_are_loaded_inside_are_told_of_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MKL_NUM_THREADS", "7")
    with environment.use_one_thread():
        assert {"1"} == {os.environ[name] for name in environment.ONE_THREAD}
    assert "7" == os.environ["MKL_NUM_THREADS"]


def test_a_handler_is_the_one_that_it_was() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with handler_kept(signal.SIGTERM):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    assert before == signal.getsignal(signal.SIGTERM)


def test_what_is_written_to_stderr_goes_nowhere_for_a_while(capfd: pytest.CaptureFixture[str]) -> None:
    with no_stderr():
        os.write(2, b"a library's own words\n")
    os.write(2, b"ours\n")
    assert "ours\n" == capfd.readouterr().err
