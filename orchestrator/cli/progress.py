"""Progress of a run: a live display on a terminal, otherwise plain lines on stderr at regular intervals.

Progress starts before the run is planned, because reading data, computing digests, planning and starting Ray also take
time. Display errors never affect the run.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from orchestrator.cli.terminal import say, supports_colour
from orchestrator.quantities import format_duration, printable, printable_lines
from orchestrator.run_folder.progress import Event, RunProgress

SECONDS = 60.0  # between plain lines
SLOW = 1.0  # seconds after which a step that runs no jobs is reported in a plain line
LOOK = 0.2  # seconds between checks whether a line is due
REFRESH = 0.25  # seconds between refreshes of the live display
BLANK = "\N{NO-BREAK SPACE}"  # within numbers and names, so that a live line breaks only between its parts


def message(event: Event) -> str | None:
    """Return the message for an event, or None if the event has none."""
    match event["event"]:
        case "planned":
            return f"{event['run']}: {event['planned']} jobs, {event['stored']} of them stored already"
        case "failed" if "key" in event:
            return f"failed: {_job(event)}: {event['error']}"
        case "lost":
            return f"lost, will be sent again: {_job(event)}: {event['cause']}"
        case "missing":
            return f"an input of {_job(event)} is missing or damaged and will be computed again"
        case "damaged":
            return f"damaged, will be computed again: {_job(event)}: {event['problem']}"
        case "differs":
            return f"the new result of {_job(event)} differs from the stored one; both are kept"
        case "refused":
            return f"cannot write to the store: {event['cause']}"
        case "told":
            return str(event["line"])
    return None


def line(tally: RunProgress) -> str:
    """Return the progress of the run as one line."""
    if not tally.planned:
        if tally.phase:
            return f"{tally.phase}, {format_duration(tally.seconds_in_step)}"
        return "starting"
    parts = [f"{tally.stored_now}/{tally.planned} jobs", f"{tally.done} done", f"{tally.stored} stored before"]
    if tally.failed:
        parts.append(f"{tally.failed} failed")
    if tally.lost:
        parts.append(f"{tally.lost} lost and sent again")
    if tally.running:
        parts.append(f"{tally.running} running")
    if tally.phase:
        parts.append(tally.phase)
    if (rate := tally.models_per_minute) is not None:
        parts.append(f"{rate:.1f} models/min")
    parts.append(f"{format_duration(tally.elapsed)} elapsed")
    if time_left := tally.time_left_text:
        parts.append(f"{time_left} left")
    return ", ".join(parts)


def metric_lines(tally: RunProgress) -> list[str]:
    """Return one line per running job that logs metrics, with the latest ones."""
    return [f"  {key[:12]}  {logged.describe()}" for key, logged in tally.logged_metrics()]


@contextlib.contextmanager
def watching(live: bool | None = None, print_line: Callable[[str], None] = say) -> Iterator[Callable[[Event], None]]:
    """Yield an observer for a run and show its progress while the context lasts.

    `live` selects the live terminal display. By default it is used if stderr is a terminal that supports control codes.
    Otherwise lines are passed to `print_line`.
    """
    tally = RunProgress()
    if live is None:
        is_display = supports_colour(sys.stderr)
    else:
        is_display = live
    with _live(tally) if is_display else _plain(tally, print_line) as note:

        def observe(event: Event) -> None:
            with contextlib.suppress(Exception):  # a closed pipe, or an event from another version
                tally.take(event)
                if text := message(event):
                    note(text)

        yield observe


@contextlib.contextmanager
def _plain(tally: RunProgress, print_line: Callable[[str], None]) -> Iterator[Callable[[str], None]]:
    end_event = threading.Event()

    def report() -> None:
        with contextlib.suppress(Exception):
            last_line = ""
            last_time = time.monotonic()
            while not end_event.wait(min(LOOK, SECONDS)):
                step = tally.step
                if step != last_line and (not step or tally.seconds_in_step >= SLOW):
                    last_line = step
                    if step:
                        print_line(step)
                elif tally.planned and not step and not tally.has_ended and time.monotonic() - last_time >= SECONDS:
                    last_time = time.monotonic()
                    print_line("\n".join([line(tally), *metric_lines(tally)]))

    thread = threading.Thread(target=report, name="progress", daemon=True)
    thread.start()
    try:
        yield print_line
    finally:
        end_event.set()
        thread.join()
        tally.take({"event": "step", "step": ""})
        with contextlib.suppress(Exception):
            if tally.planned:
                print_line(line(tally))


@contextlib.contextmanager
def _live(tally: RunProgress) -> Iterator[Callable[[str], None]]:
    from rich.live import Live

    from orchestrator.cli.terminal import stderr

    # Rich moves the cursor to where the last display started. Of two threads that draw at the same time, one would use
    # an outdated position, so messages and refreshes take turns. A signal handler may print during a refresh.
    turn = threading.RLock()
    end_event = threading.Event()
    with Live(get_renderable=lambda: _display(tally), console=stderr(), auto_refresh=False) as live:

        def refresh() -> None:
            with turn:
                live.refresh()

        def keep_current() -> None:  # the elapsed time advances between events
            with contextlib.suppress(Exception):
                while not end_event.wait(REFRESH):
                    refresh()

        def note(text: str) -> None:
            with turn:
                live.console.print(printable_lines(text))

        thread = threading.Thread(target=keep_current, name="progress", daemon=True)
        thread.start()
        try:
            yield note
        finally:
            end_event.set()
            thread.join()
            tally.take({"event": "step", "step": ""})
            live.transient = not tally.planned  # a run that never started leaves no line behind
            refresh()


def _display(tally: RunProgress) -> Any:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    text = Text(", ".join(part.replace(" ", BLANK) for part in printable(line(tally)).split(", ")))
    if not tally.planned:
        return text
    bar = ProgressBar(total=max(1, tally.planned), completed=tally.stored_now + tally.networks_in_progress, width=60)
    metrics = [Text(printable(metric_line), no_wrap=True) for metric_line in metric_lines(tally)]
    return Group(text, bar, *metrics)  # the bar does not end its own line


def _job(event: Event) -> str:
    return f"{event['task']} {event['key'][:12]}"
