"""The command line: `engram`, also `python -m orchestrator`.

Results go to stdout, all else to stderr. Errors are one line and an exit code: 1 an error (including the
environment's), 2 bad usage or configuration, 3 finished with failed jobs, 4 an answer of --fail-on, 130 interrupted.
These modules import only typer; a command imports the rest when it is called, so that `engram --help` answers at once.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import NoReturn

INTERRUPTED = 130
ENDING_SECONDS = 2.0  # seconds that the threads of an interrupted command may take to end


def main() -> NoReturn:
    """Run the command and exit with its code. Ctrl-C and SIGTERM raise KeyboardInterrupt once everything is loaded.

    Until then the caller's handlers apply: `engram_command`, the console script, ends with a short message.
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
    """Whether all threads that the interpreter waits for end by then: one may be in a read that never returns."""
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                return False
    return True
