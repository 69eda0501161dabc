"""The console script `engram`: from its first line on, whoever presses Ctrl-C gets a word and an exit code.

A module of its own, for a package runs its `__init__` before any of its modules. What it imports Python has in itself:
`signal` would load for milliseconds, in which Ctrl-C is a traceback. Python's own start comes before it: a Ctrl-C in
that is Python's to answer.
"""

import _signal as signal  # type: ignore[import-not-found]
import os

# SIGTERM acts as one Ctrl-C. A shell starts background processes with SIGINT ignored, and Python keeps that; but a
# SIGINT sent to one is meant to stop it.
SIGNALS = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = 130  # the exit code


def main() -> None:
    """The console script: runs the command and exits with its code."""
    for number in SIGNALS:
        signal.signal(number, stop)
    from orchestrator.cli import main as run_command_line

    try:
        run_command_line()
    except KeyboardInterrupt:
        stop()


def stop(*_: object) -> None:
    """End the process with a word: nothing was begun."""
    try:
        os.write(2, b"engram: stopped\n")
    except OSError:  # nobody reads it
        pass
    finally:
        os._exit(INTERRUPTED)
