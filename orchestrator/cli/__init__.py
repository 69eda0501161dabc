"""The command line: `engram`, also `python -m orchestrator`.

Results go to stdout, all else to stderr. Errors are one line and an exit code: 1 an error (including the
environment's), 2 bad usage or configuration, 3 finished with failed jobs, 130 interrupted. These modules import only
typer; a command imports the rest when it is called, so that `engram --help` answers at once.

This one imports nothing of it: whoever presses Ctrl-C while Python loads the others gets a word, too.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import Any, NoReturn

# SIGTERM acts as one Ctrl-C. A shell starts background processes with SIGINT ignored, and Python keeps that; but a
# SIGINT sent to one is meant to stop it.
SIGNALS = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = 130  # the exit code


def main() -> NoReturn:
    """The console script: runs the command and exits with its code."""
    for number in SIGNALS:
        signal.signal(number, _stop)
    from orchestrator.cli import commands

    for number in SIGNALS:
        signal.signal(number, signal.default_int_handler)
    try:
        code = commands.run_command()
    except KeyboardInterrupt:
        _stop()
    sys.exit(code)


def _stop(*_: Any) -> NoReturn:
    """End the process with a word: nothing was begun."""
    with suppress(OSError):
        os.write(2, b"engram: stopped\n")
    os._exit(INTERRUPTED)
