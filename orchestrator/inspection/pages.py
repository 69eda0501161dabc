"""The page of a run or sweep, written by the entry point of the group `engram.reports`.

A drawer is `draw(store, run, folder, show_images)`: it writes `report.html`, and what belongs to it, into the run's
folder. `compare` is `draw(store, runs, path)`.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from orchestrator.errors import EngramError
from orchestrator.store import Store

GROUP = "engram.reports"
PAGE = "report.html"
# With the user's own images, if asked for, in a separate file, so that the other one may be passed on.
PRIVATE_PAGE = "report-with-images.html"


def page(folder: Path) -> Path | None:
    """The page in a run's folder; None if it has not been drawn."""
    path = folder / PAGE
    return path if path.is_file() else None


def draw(store: Store, run: str, show_images: bool = False) -> Path:
    """Write the page of a run or sweep, complete or not; return its path.

    Raises EngramError if no package that draws pages is installed, or if the page cannot be drawn or written.
    """
    folder = store.folder("runs", run)
    _call("run", folder, store, run, folder, show_images)
    return folder / (PRIVATE_PAGE if show_images and (folder / PRIVATE_PAGE).is_file() else PAGE)


def compare(store: Store, runs: tuple[str, str], path: Path) -> None:
    """Draw the comparison of two runs into this file. Raises EngramError as `draw` does."""
    _call("comparison", path, store, runs, path)


def _call(name: str, place: Path, *arguments: Any) -> None:
    offered = [point for point in entry_points(group=GROUP) if point.name == name]
    if not offered:
        raise EngramError("no package that draws reports is installed; pip install -e . in Engram's folder offers ours")
    try:
        offered[0].load()(*arguments)
    except EngramError:
        raise
    except OSError as error:
        where = error.filename or place
        raise EngramError(f"the report cannot be written: {where}: {error.strerror or error}") from error
    except Exception as error:  # the drawer is another package's, and must not make the run fail
        line = " ".join(str(error).split())
        raise EngramError(f"the report cannot be drawn: {type(error).__name__}: {line}") from error
