"""The live page: a run while it goes on, as `engram status --watch` has it, for the browser of this machine.

It refreshes itself without a script, and stops when it is asked to or when nothing will change any more. Like a report
it shows no pictures of yours, and of an error whose message may quote what is private only the type.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from dashboards import document, page
from dashboards.run import Run, open_run
from orchestrator.errors import EngramError
from orchestrator.inspection import pages, results, status
from orchestrator.quantities import encodable
from orchestrator.run_folder.progress import Event, RunProgress
from orchestrator.store import Store
from orchestrator.tracking import ui

SECONDS = 2  # between refreshes
AWAY = 15  # the same of a store elsewhere, which is listed anew for each
LATEST = 5  # failures that are shown
STILL = "still"  # the query of a page that does not refresh itself
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True)
class Watched:
    """A run that somebody looks at: its counts, and the reads of its log that go on as long as it has a driver."""

    tally: RunProgress
    reads: Iterator[list[Event]]


class LivePages:
    """The pages of a store's runs; `link` gives where MLflow shows the run in this folder, None if nowhere."""

    def __init__(self, store: Store, link: Callable[[Path], str | None]) -> None:
        self._store, self._link = store, link
        self._watched: dict[str, Watched] = {}
        self._lock = threading.Lock()  # the reads of a log take turns

    def newest(self) -> str:
        """The name of the run that was written to last, as `engram status` chooses it. SpecError without any."""
        return status.newest_status(self._store).run

    def exists(self, name: str) -> bool:
        return name in status.journals(self._store)

    def report(self, name: str) -> Path | None:
        """The run's report; never the one with the user's own pictures."""
        return pages.page(self._store.folder("runs", name))

    def draw(self, name: str, still: bool) -> str:
        """The page of a run, which refreshes itself unless it is to stand still or the run needs nothing more."""
        with self._lock:
            run = open_run(self._store, name)
            tally = self._tally(run)
            seen = run.status
            changes = bool(seen.driver) or not seen.finished
            answer = results.short_answer(run.journal, self._store) if seen.finished else ""
            return document.render(
                "live.html",
                run=run,
                status=seen,
                tally=tally,
                searched=run.search,
                answer=answer,
                failures=[*page.failures(run, slice(-LATEST, None))][::-1],
                mlflow=self._link(run.journal.folder),
                changes=changes,
                refresh=(SECONDS if self._store.mirror is None else AWAY) if changes and not still else None,
                still=STILL,
            )

    def _tally(self, run: Run) -> RunProgress:
        """The run's counts, with the events that were added to its log since the last look."""
        there = self._watched.get(run.name)
        events = None if there is None else next(there.reads, None)
        if there is None or events is None:  # the driver that was followed has gone, and another may have come since
            reads = status.follow_reads(run.journal, self._store, 0.0)
            there = self._watched[run.name] = Watched(RunProgress(), reads)
            events = next(reads)
        for event in events:
            with suppress(KeyError, TypeError, ValueError):  # an event of another version
                there.tally.take(event)
        return there.tally


class Handler(BaseHTTPRequestHandler):
    """Answers for the runs and reports of a store, and for nothing else."""

    pages: LivePages
    server: ThreadingHTTPServer

    def do_GET(self) -> None:
        if self.headers.get("Host") not in self._hosts():  # a page elsewhere that has its name lead here
            return self.send_error(403)
        try:
            self._answer()
        except EngramError as error:
            self._send(500, str(error), "text/plain")

    def _answer(self) -> None:
        asked = urlsplit(self.path)
        match asked.path.split("/")[1:]:
            case [""]:
                place = f"/runs/{self.pages.newest()}/"
                self.send_response(303)
                self.send_header("Location", place)
                self.send_header("Content-Length", "0")
                self.end_headers()
            case ["runs", name, ""] if self.pages.exists(name):
                self._send(200, self.pages.draw(name, asked.query == STILL), "text/html")
            case ["runs", name, pages.PAGE] if self.pages.exists(name) and (path := self.pages.report(name)):
                self._send(200, path.read_text(encoding="utf-8"), "text/html")
            case _:
                self.send_error(404)

    def _send(self, code: int, text: str, kind: str) -> None:
        body = encodable(text).encode()
        self.send_response(code)
        for name, value in {**HEADERS, "Content-Type": f"{kind}; charset=utf-8"}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with suppress(ConnectionError):  # the browser has gone on
            self.wfile.write(body)

    def _hosts(self) -> tuple[str, ...]:
        port = self.server.server_address[1]
        return f"{ui.HOST}:{port}", f"localhost:{port}"

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: the terminal belongs to the command."""


@contextmanager
def serve(store: Store, first: int, link: Callable[[Path], str | None]) -> Iterator[str]:
    """Serve the live pages to this machine while the context lasts; yields their address.

    The port is the first free one from `first` on. EngramError if none is.
    """
    handler = type("StoreHandler", (Handler,), {"pages": LivePages(store, link)})
    with _bind(first, handler) as server:
        thread = threading.Thread(target=server.serve_forever, name="live page", daemon=True)
        thread.start()
        try:
            yield f"http://{ui.HOST}:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()


def _bind(first: int, handler: type[Handler]) -> ThreadingHTTPServer:
    while True:
        port = ui.free_port(first)
        with suppress(OSError):  # it was taken this instant
            return ThreadingHTTPServer((ui.HOST, port), handler)
