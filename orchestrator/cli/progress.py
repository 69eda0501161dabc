"""A run as it goes: a live display on a terminal, otherwise a plain line on stderr now and then.

It only listens. Whatever goes wrong with a display is the display's own affair and never the run's.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.cli.terminal import say, span

Event = Mapping[str, Any]
SECONDS = 10.0  # between plain lines


@dataclass
class Tally:
    """What the events of a run add up to."""

    clock: Callable[[], float] = time.monotonic
    planned: int = 0
    stored: int = 0  # there when the run was started
    done: int = 0
    failed: int = 0
    lost: int = 0
    tasks: Counter[str] = field(default_factory=Counter)  # planned
    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    since: float = 0.0
    over: bool = False

    def take(self, event: Event) -> str | None:
        """Count an event; returns what a person should be told of it, if anything."""
        match event["event"]:
            case "planned":
                self.since = self.clock()
                self.planned, self.stored = event["planned"], event["stored"]
                self.tasks = Counter(event["tasks"])
                self.done = self.failed = 0
                self.over = False
                return f"{event['run']}: {self.planned} jobs, {self.stored} of them stored already"
            case "done":
                self.done += 1
                self.seconds[event["task"]].append(event["seconds"])
            case "failed" if "key" in event:
                self.failed += 1
                return f"failed: {_job(event)}: {event['error']}"
            case "lost":
                self.lost += 1
                return f"lost, to be sent again: {_job(event)}: {event['cause']}"
            case "missing":
                return f"an input of {_job(event)} is gone or damaged; it is computed again"
            case "damaged":
                return f"damaged, to be computed again: {_job(event)}: {event['problem']}"
            case "refused":
                return f"the store refuses to be written: {event['cause']}"
            case "finished" | "failed" | "interrupted" | "paused":
                self.over = True
        return None

    @property
    def models_per_minute(self) -> float | None:
        """Networks trained in a minute; None before the first. By convention a task called `train...` trains one."""
        trained = sum(len(each) for name, each in self.seconds.items() if name.rpartition(".")[2].startswith("train"))
        elapsed = self.clock() - self.since
        return 60 * trained / elapsed if trained and elapsed > 0 else None

    @property
    def left(self) -> float | None:
        """Seconds to go, from what jobs of each task have taken so far and how many ran at a time."""
        spent = sum(map(sum, self.seconds.values()))
        to_do = self.planned - self.stored - self.done - self.failed
        elapsed = self.clock() - self.since
        if to_do <= 0 or spent <= 0 or elapsed <= 0:
            return 0.0 if to_do <= 0 else None
        # What is stored is of any task; jobs that are left are taken to be like the planned ones not yet done.
        waiting = {name: max(0, count - len(self.seconds[name])) for name, count in self.tasks.items()}
        mean = spent / self.done
        work = sum(n * (sum(s) / len(s) if (s := self.seconds[name]) else mean) for name, n in waiting.items())
        share = to_do / max(1, sum(waiting.values()))
        return work * share * elapsed / spent

    def line(self) -> str:
        """Where the run stands, in one line."""
        parts = [f"{self.stored + self.done}/{self.planned} jobs", f"{self.done} done", f"{self.stored} stored before"]
        if self.failed:
            parts.append(f"{self.failed} failed")
        if self.lost:
            parts.append(f"{self.lost} lost and sent again")
        if (rate := self.models_per_minute) is not None:
            parts.append(f"{rate:.1f} models/min")
        parts.append(f"{span(self.clock() - self.since)} passed")
        if not self.over and (left := self.left):
            parts.append(f"{span(left)} left")
        return ", ".join(parts)


@contextlib.contextmanager
def watching(live: bool | None = None, tell: Callable[[str], None] = say) -> Iterator[Callable[[Event], None]]:
    """An observer for a run, and its display for as long as the context lasts.

    `live` draws on the terminal; by default where stderr is one. Lines for other places go to `tell`.
    """
    tally = Tally()
    shown = sys.stderr.isatty() if live is None else live
    with _live(tally) if shown else _plain(tally, tell) as note:

        def observe(event: Event) -> None:
            with contextlib.suppress(Exception):  # a closed pipe, an event of another version
                if text := tally.take(event):
                    note(text)

        yield observe


@contextlib.contextmanager
def _plain(tally: Tally, tell: Callable[[str], None]) -> Iterator[Callable[[str], None]]:
    over = threading.Event()

    def report() -> None:
        with contextlib.suppress(Exception):
            while not over.wait(SECONDS):
                if tally.planned:
                    tell(tally.line())

    thread = threading.Thread(target=report, name="progress", daemon=True)
    thread.start()
    try:
        yield tell
    finally:
        over.set()
        thread.join()
        with contextlib.suppress(Exception):
            if tally.planned:
                tell(tally.line())


@contextlib.contextmanager
def _live(tally: Tally) -> Iterator[Callable[[str], None]]:
    from rich.live import Live

    from orchestrator.cli.terminal import stderr

    console = stderr()
    # Rich asks for the display again at each refresh, so that time goes on between events.
    with Live(get_renderable=lambda: _display(tally), console=console, refresh_per_second=4) as live:
        yield live.console.print
        live.refresh()


def _display(tally: Tally) -> Any:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    if not tally.planned:
        return Text("planning")
    there = tally.stored + tally.done
    bar = ProgressBar(total=max(1, tally.planned), completed=there, width=60)
    return Group(Text(tally.line()), bar)  # the bar ends no line of its own


def _job(event: Event) -> str:
    return f"{event['task']} {event['key'][:12]}"
