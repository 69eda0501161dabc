"""One thread for each worker: as many workers run as there are cores, and results stay the same on any machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tasks.threads import threads

LIBRARIES = ("OMP", "MKL", "OPENBLAS", "NUMEXPR", "VECLIB")
# Read by each library when it is loaded.
ONE = {f"{library}_{'MAXIMUM' if library == 'VECLIB' else 'NUM'}_THREADS": "1" for library in LIBRARIES}


@contextmanager
def one() -> Iterator[None]:
    """Inside, torch computes with one thread in this process, be it loaded already or loaded inside."""
    before = {name: os.environ.get(name) for name in ONE}
    with ExitStack() as stack:
        if "torch" in sys.modules:
            stack.enter_context(threads(1))
        os.environ.update(ONE)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
