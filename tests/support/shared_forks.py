"""Runs a command; all tests that it starts have their processes forked by one server.

    python -m tests.support.shared_forks make --jobs 2 test-clusters test-whole

Each server imports for ten seconds of processor time and keeps 860 MB.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from tests.support import forks

if __name__ == "__main__":
    signal.signal(signal.SIGINT, lambda *_: None)  # the command receives Ctrl-C, too, and ends first
    os.environ[forks.SHARED] = f"{forks.ROOT}{os.pathsep}{forks.address()}"
    sys.exit(subprocess.run(sys.argv[1:]).returncode)
