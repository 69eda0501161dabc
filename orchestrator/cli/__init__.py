"""The command line: `engram`, also available as `python -m orchestrator`.

Results go to stdout, everything else to stderr. An error is reported as a one-line message and through the exit code: 1
for an error (including environment problems), 2 for bad usage or configuration, 3 for a run that finished with failed
jobs, 4 for an answer listed in --fail-on, 130 for an interruption.

These modules import only typer. Each command imports the rest when it is called, so `engram --help` responds
immediately.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import NoReturn

INTERRUPTED = 130
ENDING_SECONDS = 2.0  # how long to wait for the threads of an interrupted command, in seconds


def main() -> NoReturn:
    """Run the command and exit with its code. Once everything is loaded, Ctrl-C and SIGTERM raise KeyboardInterrupt.

    Until then the caller's signal handlers apply: the console script, `engram_command`, exits with a short message.
    """
    from orchestrator.cli import commands

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    code = commands.run_command()
    if code == INTERRUPTED and not _threads_ended(time.monotonic() + ENDING_SECONDS):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _threads_ended(deadline: float) -> bool:
    """Return whether all non-daemon threads end before the deadline. A thread may be blocked in a read forever."""
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                return False
    return True
