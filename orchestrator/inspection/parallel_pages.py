"""Draws the pages of many runs in forked processes, one per processor."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from orchestrator.errors import ClusterError, EngramError
from orchestrator.executors.environment import count_processors
from orchestrator.executors.forked_workers import Death, ForkedWorkers
from orchestrator.inspection import pages
from orchestrator.spec.audits import find_once
from orchestrator.store import Store, list_once, open_store

FACTORY = "orchestrator.inspection.parallel_pages:open_drawer"
FEWEST = 4  # runs for which it is worth starting processes
WAIT_SECONDS = 1.0

Drawn = tuple[Path | None, str]  # the page, or the error


def draw_pages(store: Store, runs: Sequence[str], show_images: bool) -> Iterator[tuple[str, Drawn]]:
    """Yield each run with its page or the error, in any order."""
    processes = min(count_processors(), len(runs) // 2)
    remaining = dict.fromkeys(runs)
    if processes > 1 and len(runs) >= FEWEST and sys.platform == "linux":
        with suppress(ClusterError):  # no process can be started
            for run, drawn in _draw_in_processes(store, runs, show_images, processes):
                del remaining[run]
                yield run, drawn
    for run in remaining:
        yield run, _draw(store, run, show_images)


def _draw_in_processes(
    store: Store, runs: Sequence[str], show_images: bool, processes: int
) -> Iterator[tuple[str, Drawn]]:
    workers = ForkedWorkers[str](FACTORY, [store.location, show_images], pages.drawer_modules(), processes)
    try:
        waiting = deque(runs)
        while waiting or workers.busy:
            while waiting and workers.send(waiting[0], waiting[0].encode()):
                waiting.popleft()
            for run, answer in workers.receive(WAIT_SECONDS):
                if isinstance(answer, Death):
                    yield run, (None, f"the report cannot be drawn: the process that drew {run} died")
                else:
                    yield run, answer
    finally:
        workers.close()


def open_drawer(location: str, show_images: bool) -> Callable[[bytes], Drawn]:
    """Return the function of a process: it draws the page of the run that a message names."""
    store = open_store(location, create=False)
    return lambda message: _draw(store, message.decode(), show_images)


def _draw(store: Store, run: str, show_images: bool) -> Drawn:
    try:
        with list_once(), find_once():
            return pages.draw(store, run, show_images), ""
    except EngramError as error:
        return None, str(error)
