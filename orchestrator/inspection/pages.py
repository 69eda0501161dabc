"""The page of a run or sweep, written by an entry point in the group `engram.reports`.

The entry point `run` is called as `draw(store, run, folder, show_images)` and writes `report.html` and its figures to
the run's folder. `comparison` is called as `draw(store, runs, path)`, and `live` serves the pages of unfinished runs.
`index` is called as `draw(store, folder, runs)` and writes the page of all runs, and `item` as `draw(store, digest,
folder)` for the page of a model or data set.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from orchestrator.errors import EngramError, SpecError, missing_package
from orchestrator.spec.fields import nearest
from orchestrator.store import Store, atomic_write, list_once

GROUP = "engram.reports"
PAGE = "report.html"
# The page that shows the user's own images is a separate file, so that the other page can be shared.
PRIVATE_PAGE = "report-with-images.html"
FIGURES = "figures"  # folder next to the page
INDEX = "index.html"  # page of all runs, in the store or, for a bucket, in the folder with its local files
ITEMS = "items"  # folder next to it, with one page for each model and data set
LOCK = "lock"
BROWSER = "ENGRAM_BROWSER"
# Program names of Chromium and Chromium-based browsers. No other browser can print without a window.
NAMES = (
    *("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"),
    *("microsoft-edge", "microsoft-edge-stable", "msedge"),
)
FLAGS = (
    "--headless",
    "--disable-gpu",
    "--disable-dev-shm-usage",  # /dev/shm is small in containers
    "--no-first-run",
    "--disable-extensions",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--host-resolver-rules=MAP * ~NOTFOUND",  # no host name resolves
    "--no-pdf-header-footer",
)
SECONDS = 120.0


@dataclass(frozen=True)
class DrawnFigure:
    """A figure of a page as a separate file. Notebooks display it."""

    name: str
    path: Path

    @property
    def svg(self) -> str:
        """The figure as an `<svg>` element. Raises OSError if its file no longer exists."""
        return self.path.read_text(encoding="utf-8")

    def _repr_svg_(self) -> str:
        return self.svg


def page(folder: Path) -> Path | None:
    """Return the page in a run's folder, or None if it has not been drawn."""
    path = folder / PAGE
    return path if path.is_file() else None


def draw(store: Store, run: str, show_images: bool = False) -> Path:
    """Write the page of a run or sweep, which may be incomplete, and return its path.

    Raises EngramError if no package that draws pages is installed, or if the page cannot be drawn or written.
    """
    folder = store.folder("runs", run)
    _call("run", folder, store, run, folder, show_images)
    return folder / (PRIVATE_PAGE if show_images and (folder / PRIVATE_PAGE).is_file() else PAGE)


def figures(folder: Path) -> dict[str, DrawnFigure]:
    """Return the figures drawn with the page in a run's folder, by name."""
    result = {}
    for path in sorted((folder / FIGURES).glob("*.svg")):
        result[path.stem] = DrawnFigure(path.stem, path)
    return result


def figure(folder: Path, name: str) -> DrawnFigure:
    """Return the figure with this name. Raises SpecError if there is none."""
    drawn_figures = figures(folder)
    if name not in drawn_figures:
        available = "it has none yet"
        if drawn_figures:
            available = f"it has {', '.join(drawn_figures)}{nearest(name, drawn_figures)}"
        raise SpecError(f"run {folder.name} has no figure {name!r}; {available}")
    return drawn_figures[name]


def draw_index(store: Store, runs: Sequence[str] | None = None) -> Path | None:
    """Write the page of all runs, and the pages of the models and data sets that `runs` (by default, all) examined.

    Returns its path, or None if the package that draws reports has no such page. Of two processes, the second waits for
    the first, so that its page has the runs of both. Raises EngramError as `draw` does.
    """
    if "index" not in _drawers_on(tuple(sys.path)):
        return None
    folder = store.folder("runs").parent
    with atomic_write.file_lock(store.folder(ITEMS) / LOCK):
        _call("index", folder, store, folder, runs)
    return folder / INDEX


def draw_item(store: Store, digest: str, name: str) -> Path:
    """Write the page with this name of the model or data set with this digest, and return its path.

    Raises EngramError as `draw` does.
    """
    folder = store.folder("runs").parent
    path = folder / ITEMS / name
    _call("item", path, store, digest, folder)
    return path


def compare(store: Store, runs: tuple[str, str], path: Path) -> None:
    """Draw the comparison of two runs to this file. Raises EngramError as `draw` does."""
    _call("comparison", path, store, runs, path)


def redraw(store: Store, runs: Sequence[str], show_images: bool) -> bytes:
    """Draw the page of a run, or of two runs side by side, and return its bytes without writing to the store.

    Raises EngramError as `draw` does.
    """
    with tempfile.TemporaryDirectory(prefix="engram-page-") as folder_name:
        folder = Path(folder_name)
        page = folder / PAGE
        if len(runs) == 2:
            _call("comparison", page, store, (runs[0], runs[1]), page)
        else:
            _call("run", folder, store, runs[0], folder, show_images)
            if show_images and (folder / PRIVATE_PAGE).is_file():
                page = folder / PRIVATE_PAGE
        return page.read_bytes()


def redraw_item(store: Store, digest: str, name: str) -> bytes:
    """Draw the page of a model or data set and return its bytes without writing to the store."""
    with tempfile.TemporaryDirectory(prefix="engram-page-") as folder_name:
        _call("item", Path(folder_name), store, digest, Path(folder_name))
        return (Path(folder_name) / ITEMS / name).read_bytes()


def serve_live(store: Store, first: int, link: Callable[[Path], str | None]) -> AbstractContextManager[str]:
    """Serve the pages of running runs at the first free port, starting with `first`. Yields their address.

    `link` returns the MLflow page of the run in a folder. Raises EngramError as `draw` does.
    """
    server: AbstractContextManager[str] = _drawer("live")(store, first, link)
    return server


def _drawer(name: str) -> Callable[..., Any]:
    drawers = _drawers_on(tuple(sys.path))
    if name not in drawers:
        raise EngramError("no package that draws reports is installed; run pip install -e . in Engram's folder")
    draw_page: Callable[..., Any] = drawers[name].load()
    return draw_page


def drawer_modules() -> list[str]:
    """Return the modules that draw pages, for processes that import them in advance."""
    return [point.module for name, point in _drawers_on(tuple(sys.path)).items() if name == "run"]


@functools.cache
def _drawers_on(_path: tuple[str, ...]) -> Mapping[str, EntryPoint]:
    """Return the first entry point of each name. Cached per search path, because a lookup reads every package."""
    drawers: dict[str, EntryPoint] = {}
    for point in entry_points(group=GROUP):
        drawers.setdefault(point.name, point)
    return drawers


def _call(name: str, path: Path, *arguments: Any) -> None:
    try:
        with list_once():
            _drawer(name)(*arguments)
    except EngramError:
        raise
    except ModuleNotFoundError as error:
        raise missing_package(error) or error from error
    except OSError as error:
        path_in_error = error.filename or path
        raise EngramError(f"the report cannot be written: {path_in_error}: {error.strerror or error}") from error
    except Exception as error:  # drawers belong to another package and must not make the run fail
        line = " ".join(str(error).split())
        raise EngramError(f"the report cannot be drawn: {type(error).__name__}: {line}") from error


def check_pdf(store: Store, run: str) -> None:
    """Raise EngramError if the PDF file of this run's page cannot be written."""
    for name in (PAGE, PRIVATE_PAGE):
        path = (store.folder("runs", run) / name).with_suffix(".pdf")
        if path.is_dir():
            raise EngramError(f"the report cannot be written: {path}: it is a folder")


def print_pdf(page: Path) -> Path:
    """Print a page to a PDF file next to it and return the path of this file.

    Raises EngramError if no browser is found or if printing fails.
    """
    program = browser()
    path = page.with_suffix(".pdf")
    with tempfile.TemporaryDirectory(prefix="engram-pdf-", ignore_cleanup_errors=True) as folder:
        printed = Path(folder) / "page.pdf"
        command = [program, *FLAGS, f"--user-data-dir={folder}/profile", f"--print-to-pdf={printed}"]
        # Chromium refuses to run as root inside its sandbox. The page is Engram's own and contains no scripts.
        if os.geteuid() == 0:
            command += ["--no-sandbox"]
        try:
            process = subprocess.run(
                [*command, page.absolute().as_uri()], capture_output=True, text=True, errors="replace", timeout=SECONDS
            )
        except subprocess.TimeoutExpired:
            raise EngramError(f"{program} has not printed {page} within {SECONDS:.0f} s") from None
        except OSError as error:
            raise EngramError(f"{program} cannot be started: {error.strerror or error}") from None
        if not printed.is_file():
            output_lines = process.stderr.strip().splitlines()
            raise EngramError(
                f"{program} has not printed {page} (exit code {process.returncode}): "
                f"{output_lines[-1] if output_lines else 'no message'}"
            )
        try:
            with atomic_write.put_in_place(path) as draft:
                shutil.copyfile(printed, draft)  # the temporary folder may be on another file system
        except OSError as error:
            raise EngramError(f"the report cannot be written: {path}: {error.strerror or error}") from None
    return path


def browser() -> str:
    """Return the browser used for printing: the one named by ENGRAM_BROWSER, else the first one on PATH.

    Raises EngramError if there is none.
    """
    configured_program = os.environ.get(BROWSER)
    if configured_program:
        program = shutil.which(os.path.expanduser(configured_program))
        if program is None:
            raise EngramError(f"{BROWSER} is {configured_program}; it must be a program on this machine")
        return program
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        raise EngramError(
            f"no browser that can print was found on PATH ({', '.join(NAMES)}); set {BROWSER}, or open the page and "
            "print it from there"
        )
    return program
