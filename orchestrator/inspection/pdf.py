"""A page as PDF, printed by a browser of this machine without a network."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from orchestrator.errors import EngramError

BROWSER = "ENGRAM_BROWSER"
# Chromium and what is built on it, by the names of their programs; no other browser prints without a window.
NAMES = (
    *("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"),
    *("microsoft-edge", "microsoft-edge-stable", "msedge"),
)
FLAGS = (
    "--headless",
    "--disable-gpu",
    "--disable-dev-shm-usage",  # a container's /dev/shm is small
    "--no-first-run",
    "--disable-extensions",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--host-resolver-rules=MAP * ~NOTFOUND",  # no name leads anywhere
    "--no-pdf-header-footer",
)
SECONDS = 120.0


def write(page: Path) -> Path:
    """Print a page into the PDF file beside it; return that file's path.

    Raises EngramError, in one line, where no browser is found, or it does not print.
    """
    program = browser()
    path = page.with_suffix(".pdf")
    with tempfile.TemporaryDirectory(prefix="engram-pdf-", ignore_cleanup_errors=True) as folder:
        printed = Path(folder) / "page.pdf"
        command = [program, *FLAGS, f"--user-data-dir={folder}/profile", f"--print-to-pdf={printed}"]
        # Chromium refuses to run as root inside its sandbox; the page is our own and holds no script.
        command += ["--no-sandbox"] if os.geteuid() == 0 else []
        try:
            done = subprocess.run(
                [*command, page.absolute().as_uri()], capture_output=True, text=True, errors="replace", timeout=SECONDS
            )
        except subprocess.TimeoutExpired:
            raise EngramError(f"{program} has not printed {page} within {SECONDS:.0f} s") from None
        except OSError as error:
            raise EngramError(f"{program} cannot be started: {error.strerror or error}") from None
        if not printed.is_file():
            said = done.stderr.strip().splitlines()
            raise EngramError(
                f"{program} has not printed {page} (exit code {done.returncode}): {said[-1] if said else 'no word why'}"
            )
        _place(printed, path)
    return path


def browser() -> str:
    """The program that prints: the one that ENGRAM_BROWSER names, else the first that is found.

    Raises EngramError where there is none.
    """
    named = os.environ.get(BROWSER)
    if named:
        found = shutil.which(os.path.expanduser(named))
        if found is None:
            raise EngramError(f"{BROWSER} is {named}: there is no such program")
        return found
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        raise EngramError(
            f"no browser that prints is found on PATH (looked for {', '.join(NAMES)}); name one by {BROWSER}, or open "
            "the page and print it from there"
        )
    return found


def _place(printed: Path, path: Path) -> None:
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        shutil.copyfile(printed, aside)  # the temporary folder may lie on another file system
        os.replace(aside, path)
    except OSError as error:
        raise EngramError(f"the report cannot be written: {path}: {error.strerror or error}") from None
    finally:
        aside.unlink(missing_ok=True)
