"""The surroundings of this process, changed for a while: its environment, a signal's handler, its stderr."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def variables(values: Mapping[str, str], *others: str) -> Iterator[None]:
    """Environment variables for as long as it takes; afterwards these, and the `others`, are as they were."""
    before = {name: os.environ.get(name) for name in (*values, *others)}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def handler_kept(number: signal.Signals) -> Iterator[None]:
    """A signal's handler is the one that it was, whatever happened inside. Only the main thread can see to it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(number)
    try:
        yield
    finally:
        signal.signal(number, handler)


@contextmanager
def no_stderr() -> Iterator[None]:
    """The process's stderr goes nowhere for a moment: Ray's C++ part writes to it whatever the logging level."""
    saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)
