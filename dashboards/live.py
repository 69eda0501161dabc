"""The live page of an active run, which shows the numbers of `engram runs status --watch` to browsers on this machine.

The page refreshes without a script until the user stops it or the run has ended. Like a report, it shows none of the
user's images. If an error message may quote private data, it shows only the error type.
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
AWAY = 15  # between refreshes of a remote store, which must be listed each time
LATEST = 5  # failures shown
STILL = "still"  # query string of a page that does not refresh
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True)
class Watched:
    """A run whose page is open: event counts, and an iterator over new log events that ends when the driver ends."""

    tally: RunProgress
    reads: Iterator[list[Event]]


class LivePages:
    """The live pages of a store's runs.

    `link` takes a run's folder and returns its MLflow address, or None if it has none.
    """

    def __init__(self, store: Store, link: Callable[[Path], str | None]) -> None:
        self._store = store
        self._link = link
        self._watched: dict[str, Watched] = {}
        self._lock = threading.Lock()  # only one thread may read a log at a time

    def newest(self) -> str:
        """Return the name of the run with the latest event, as in `engram runs status`.

        Raises SpecError if there are no runs.
        """
        return status.newest_status(self._store).run

    def exists(self, name: str) -> bool:
        return name in status.journals(self._store)

    def report(self, name: str) -> Path | None:
        """Return the path of the run's report, never of the version with the user's own images."""
        return pages.page(self._store.folder("runs", name))

    def draw(self, name: str, still: bool) -> str:
        """Render a run's page. It refreshes unless `still` is set or the run has ended."""
        with self._lock:
            run = open_run(self._store, name)
            tally = self._tally(run)
            run_status = run.status
            changes = bool(run_status.driver) or not run_status.finished
            answer = ""
            if run_status.finished:
                answer = ", ".join(filter(None, (run.effect, results.short_answer(run.journal, self._store))))
            return document.render(
                "live.html",
                run=run,
                status=run_status,
                tally=tally,
                logged=tally.logged_metrics(),
                searched=run.search,
                answer=answer,
                failures=[*page.failures(run, slice(-LATEST, None))][::-1],
                mlflow=self._link(run.journal.folder),
                changes=changes,
                refresh=(SECONDS if self._store.mirror is None else AWAY) if changes and not still else None,
                still=STILL,
            )

    def _tally(self, run: Run) -> RunProgress:
        """Update the run's counts with new log events and return them."""
        watched = self._watched.get(run.name)
        if watched is None:
            events = None
        else:
            events = next(watched.reads, None)
        if watched is None or events is None:  # the previous driver has ended and another may have started
            reads = status.follow_reads(run.journal, self._store, 0.0)
            watched = self._watched[run.name] = Watched(RunProgress(), reads)
            events = next(reads)
        for event in events:
            with suppress(KeyError, TypeError, ValueError):  # an event written by another version
                watched.tally.take(event)
        return watched.tally


class Handler(BaseHTTPRequestHandler):
    """Serves only the runs and reports of one store."""

    pages: LivePages
    server: ThreadingHTTPServer

    def do_GET(self) -> None:
        if self.headers.get("Host") not in self._hosts():  # another site whose name resolves to this machine
            return self.send_error(403)
        try:
            self._answer()
        except EngramError as error:
            self._send(500, str(error), "text/plain")

    def _answer(self) -> None:
        request = urlsplit(self.path)
        match request.path.split("/")[1:]:
            case [""]:
                location = f"/runs/{self.pages.newest()}/"
                self.send_response(303)
                self.send_header("Location", location)
                self.send_header("Content-Length", "0")
                self.end_headers()
            case ["runs", name, ""] if self.pages.exists(name):
                self._send(200, self.pages.draw(name, request.query == STILL), "text/html")
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
        with suppress(ConnectionError):  # the browser has left the page
            self.wfile.write(body)

    def _hosts(self) -> tuple[str, ...]:
        port = self.server.server_address[1]
        return f"{ui.HOST}:{port}", f"localhost:{port}"

    def log_message(self, format: str, *arguments: object) -> None:
        """Suppress request logging, because the command owns the terminal."""


@contextmanager
def serve(store: Store, first: int, link: Callable[[Path], str | None]) -> Iterator[str]:
    """Serve the live pages to this machine while the context is active. Yields their address.

    Uses the first free port from `first` upwards. Raises EngramError if none is free.
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
        with suppress(OSError):  # another process took the port first
            return ThreadingHTTPServer((ui.HOST, port), handler)
