"""The console script `engram`: from its first line, Ctrl-C ends with a message and an exit code.

It is a separate module, because a package runs its `__init__` before any of its modules. It imports only built-in
modules: importing `signal` takes milliseconds, in which Ctrl-C would print a traceback. A Ctrl-C during Python's own
start is handled by Python.
"""

import _signal as signal  # type: ignore[import-not-found]
import os

# SIGTERM acts as one Ctrl-C. A shell starts background processes with SIGINT ignored, and Python inherits this setting;
# a SIGINT sent to such a process is nevertheless meant to stop it.
SIGNALS = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = 130  # the exit code


def main() -> None:
    """Run the command and exit with its code."""
    for number in SIGNALS:
        signal.signal(number, stop)
    from orchestrator.cli import main as run_command_line

    try:
        try:
            run_command_line()
        except SystemExit as end:
            leave(end)
    except KeyboardInterrupt:
        stop()


def leave(end: SystemExit) -> None:
    """Exit with this code, without the destruction of each object in the process, which takes a second after a run.

    As usual, threads are awaited, exit functions are called and streams are flushed. Raises `end` if that fails.
    """
    import atexit
    import sys
    import threading

    if not isinstance(end.code, int):
        raise end
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except Exception:  # Python reports it
        raise end from None
    os._exit(end.code)


def stop(*_: object) -> None:
    """End the process with a message: nothing was started."""
    try:
        os.write(2, b"engram: stopped\n")
    except OSError:  # standard error is closed
        pass
    finally:
        os._exit(INTERRUPTED)
