"""Temporary changes to this process: its environment variables, a signal's handler, its stderr."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def variables(values: Mapping[str, str], *others: str) -> Iterator[None]:
    """Set environment variables inside the block; afterwards restore these and the `others`."""
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
    """Restore a signal's handler afterwards. Does nothing outside the main thread."""
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
    """Discard the process's stderr inside: Ray's C++ part writes to it at any logging level."""
    saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)
