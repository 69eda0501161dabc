"""The command line: `engram`, also `python -m orchestrator`.

Results go to stdout, all else to stderr. Errors are one line and an exit code: 1 an error (including the
environment's), 2 bad usage or configuration, 3 finished with failed jobs, 130 interrupted. These modules import only
typer; a command imports the rest when it is called, so that `engram --help` answers at once.

`engram_command`, the console script, imports nothing of it: whoever presses Ctrl-C while Python loads the others gets a
word, too.
"""

from __future__ import annotations

import signal
import sys
from typing import NoReturn

from engram_command import INTERRUPTED, SIGNALS, stop


def main() -> NoReturn:
    """Runs the command and exits with its code."""
    for number in SIGNALS:
        signal.signal(number, stop)
    from orchestrator.cli import commands

    code = INTERRUPTED
    try:
        for number in SIGNALS:
            signal.signal(number, signal.default_int_handler)
        code = commands.run_command()
    except KeyboardInterrupt:
        stop()
    sys.exit(code)
