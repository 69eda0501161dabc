"""One thread per worker: as many workers run as there are cores, and results are the same on any machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from orchestrator.executors.environment import variables
from tasks.hardware import threads

LIBRARIES = ("OMP", "MKL", "OPENBLAS", "NUMEXPR", "VECLIB")
# Read by each library when it is loaded.
ONE = {f"{library}_{'MAXIMUM' if library == 'VECLIB' else 'NUM'}_THREADS": "1" for library in LIBRARIES}


@contextmanager
def one() -> Iterator[None]:
    """Compute with one torch thread in this process inside the block, whether torch is loaded already or only there."""
    with ExitStack() as stack:
        if "torch" in sys.modules:
            stack.enter_context(threads(1))
        stack.enter_context(variables(ONE))
        yield
