"""The command line: `engram`, also `python -m orchestrator`.

Results go to stdout, all else to stderr. Errors are one line and an exit code: 1 an error (including the
environment's), 2 bad usage or configuration, 3 finished with failed jobs, 4 an answer of --fail-on, 130 interrupted.
These modules import only typer; a command imports the rest when it is called, so that `engram --help` answers at once.
"""

from __future__ import annotations

import signal
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command and exit with its code. Ctrl-C and SIGTERM raise KeyboardInterrupt once all is loaded.

    Before that the caller's handlers hold: those of `engram_command`, the console script, which ends with a word.
    """
    from orchestrator.cli import commands

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    sys.exit(commands.run_command())
