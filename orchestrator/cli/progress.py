"""Progress of a run: a live display on a terminal, otherwise a plain line on stderr at intervals.

It only observes. Errors of a display never affect the run.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from orchestrator.cli.terminal import decorated, say
from orchestrator.counted import span
from orchestrator.run_folder.progress import Event, RunProgress

SECONDS = 10.0  # between plain lines


def message(event: Event) -> str | None:
    """The message for an event; None if it has none."""
    match event["event"]:
        case "planned":
            return f"{event['run']}: {event['planned']} jobs, {event['stored']} of them stored already"
        case "failed" if "key" in event:
            return f"failed: {_job(event)}: {event['error']}"
        case "lost":
            return f"lost, to be sent again: {_job(event)}: {event['cause']}"
        case "missing":
            return f"an input of {_job(event)} is gone or damaged; it is computed again"
        case "damaged":
            return f"damaged, to be computed again: {_job(event)}: {event['problem']}"
        case "differs":
            return f"{_job(event)} came out differently than the result that is stored; both are kept"
        case "refused":
            return f"the store refuses to be written: {event['cause']}"
        case "told":
            return str(event["line"])
    return None


def line(tally: RunProgress) -> str:
    """The progress of the run in one line."""
    parts = [f"{tally.there}/{tally.planned} jobs", f"{tally.done} done", f"{tally.stored} stored before"]
    if tally.failed:
        parts.append(f"{tally.failed} failed")
    if tally.lost:
        parts.append(f"{tally.lost} lost and sent again")
    if (rate := tally.models_per_minute) is not None:
        parts.append(f"{rate:.1f} models/min")
    parts.append(f"{span(tally.elapsed)} passed")
    if not tally.over and (left := tally.left):
        parts.append(f"{span(left)} left")
    return ", ".join(parts)


@contextlib.contextmanager
def watching(live: bool | None = None, tell: Callable[[str], None] = say) -> Iterator[Callable[[Event], None]]:
    """An observer for a run, with its display while the context lasts.

    `live` draws on the terminal; by default if stderr is one that takes control codes. Otherwise lines go to `tell`.
    """
    tally = RunProgress()
    shown = decorated(sys.stderr) if live is None else live
    with _live(tally) if shown else _plain(tally, tell) as note:

        def observe(event: Event) -> None:
            with contextlib.suppress(Exception):  # a closed pipe, an event of another version
                tally.take(event)
                if text := message(event):
                    note(text)

        yield observe


@contextlib.contextmanager
def _plain(tally: RunProgress, tell: Callable[[str], None]) -> Iterator[Callable[[str], None]]:
    over = threading.Event()

    def report() -> None:
        with contextlib.suppress(Exception):
            while not over.wait(SECONDS):
                if tally.planned and not tally.over:
                    tell(line(tally))

    thread = threading.Thread(target=report, name="progress", daemon=True)
    thread.start()
    try:
        yield tell
    finally:
        over.set()
        thread.join()
        with contextlib.suppress(Exception):
            if tally.planned:
                tell(line(tally))


@contextlib.contextmanager
def _live(tally: RunProgress) -> Iterator[Callable[[str], None]]:
    from rich.live import Live

    from orchestrator.cli.terminal import stderr

    console = stderr()
    # Rich requests the display again at each refresh, so that the time advances between events.
    with Live(get_renderable=lambda: _display(tally), console=console, refresh_per_second=4) as live:
        yield live.console.print
        live.refresh()


def _display(tally: RunProgress) -> Any:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    if not tally.planned:
        return Text("planning")
    bar = ProgressBar(total=max(1, tally.planned), completed=tally.there, width=60)
    return Group(Text(line(tally)), bar)  # the bar does not end its line


def _job(event: Event) -> str:
    return f"{event['task']} {event['key'][:12]}"
