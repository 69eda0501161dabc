from __future__ import annotations

import ctypes
import os
import queue
import signal
import threading
import time

import pytest

from orchestrator.scheduling import stop as stop_module
from orchestrator.scheduling.stop import OutOfTime, Stop
from tests.support.waiting import HANGING


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_first_signal_asks_and_second_ends(number: signal.Signals) -> None:
    before = []
    for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        before.append(signal.getsignal(signal_number))
    messages: queue.Queue[str] = queue.Queue()
    stop = Stop()
    stop.running = 2
    with stop.handle_signals(messages.put):
        os.kill(os.getpid(), number)
        assert messages.get(timeout=HANGING) == (
            "stopping: no new job is started, 2 running calls may take 10 s to end; Ctrl-C again to stop at once"
        )
        assert number.name == stop.reason
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert before == [
        signal.getsignal(signal_number) for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
    ]


def test_signal_is_acknowledged_while_main_thread_blocks() -> None:
    # zeros are an unlocked mutex
    library = ctypes.CDLL(None)
    mutex = ctypes.create_string_buffer(64)
    messages: queue.Queue[str] = queue.Queue()
    locked = threading.Event()
    heard: list[str] = []

    def interrupt() -> None:
        library.pthread_mutex_lock(mutex)
        locked.set()
        os.kill(os.getpid(), signal.SIGINT)
        heard.append(messages.get(timeout=HANGING))
        library.pthread_mutex_unlock(mutex)

    interrupter = threading.Thread(target=interrupt)
    stop = Stop()
    with stop.handle_signals(messages.put):
        interrupter.start()
        locked.wait(60)
        library.pthread_mutex_lock(mutex)  # which no signal interrupts
        library.pthread_mutex_unlock(mutex)
    interrupter.join()
    assert heard[0].startswith("stopping: no new job is started")
    assert stop.reason == "SIGINT"


def test_first_reason_is_kept() -> None:
    stop = Stop()
    stop.ask("time limit")
    stop.ask("SIGINT")
    assert stop.reason == "time limit"


def test_programs_are_asked_before_a_computation_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop_module, "GRACE", 0.02)
    monkeypatch.setattr(stop_module, "PROGRAM_GRACE", 0.01)
    stop = Stop()
    requests: list[str | None] = []
    stop.ask_programs = lambda: requests.append(stop.reason)

    def compute() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(HANGING)

    with stop.handle_signals(), stop.computing_here(), pytest.raises(OutOfTime):
        compute()
    assert requests == ["SIGINT"]


def test_computation_in_this_thread_gets_one_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop_module, "GRACE", 0.01)
    monkeypatch.setattr(stop_module, "INTERRUPT_SECONDS", 0.01)
    stop = Stop()
    swallowed: list[OutOfTime] = []

    def compute() -> None:
        with stop.computing_here():
            try:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(60)
            except OutOfTime as error:  # like a task that catches every exception
                swallowed.append(error)
            time.sleep(60)

    with stop.handle_signals():
        with pytest.raises(OutOfTime):
            compute()
        time.sleep(0.05)  # only the computation is interrupted
    assert len(swallowed) == 1


def test_signal_outside_computation_interrupts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop_module, "GRACE", 0.01)
    stop = Stop()
    with stop.handle_signals():
        os.kill(os.getpid(), signal.SIGINT)
        with stop.computing_here():
            time.sleep(0.05)
    assert stop.reason == "SIGINT"
