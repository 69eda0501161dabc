"""A failure to draw a run's page gives one line and leaves the run's state unchanged.

`engram report --pdf` runs with the real Chromium and without one.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import zlib
from importlib.metadata import version
from pathlib import Path

import pytest
import toys

from orchestrator.errors import EngramError
from orchestrator.inspection import pages, parallel_pages
from orchestrator.inspection.page_contents import version_of
from orchestrator.runs.lifecycle import start
from orchestrator.spec.resolve import Cell
from orchestrator.spec.specification import Execution
from orchestrator.store import Store
from tests.support.browser import PROGRAM
from tests.support.shell import Here

DRAWERS = """
import os

def full(store, run, folder, show_images):
    raise OSError(28, "No space left on device")

def broken(store, run, folder, show_images):
    raise KeyError("no such column")

def number(store, run, folder, show_images):
    if run == "dies":
        os.kill(os.getpid(), 9)
    if run == "fails":
        raise KeyError("no such column")
    (folder / "report.html").write_text(str(os.getpid()))
"""


@pytest.fixture
def offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another package that draws pages. A file selects the function that it uses."""
    info = tmp_path / "site" / "drawers-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: drawers\nVersion: 1.0\n")
    (info.parent / "drawers.py").write_text(DRAWERS)
    monkeypatch.syspath_prepend(str(info.parent))
    return info / "entry_points.txt"


@pytest.mark.skipif(sys.platform != "linux", reason="pages are drawn one after another elsewhere")
def test_many_pages_are_drawn_in_other_processes(store: Store, offered: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_pages, "count_processors", lambda: 2)
    offered.write_text("[engram.reports]\nrun = drawers:number\n")
    runs = ["one", "dies", "two", "fails", "three"]
    drawn = dict(parallel_pages.draw_pages(store, runs, False))
    drawing_processes = set()
    for run in ("one", "two", "three"):
        page, error = drawn.pop(run)
        assert page == store.folder("runs", run) / pages.PAGE
        assert error == ""
        drawing_processes.add(page.read_text())
    assert str(os.getpid()) not in drawing_processes
    assert drawn == {
        "dies": (None, "the report cannot be drawn: the process that drew dies died"),
        "fails": (None, "the report cannot be drawn: KeyError: 'no such column'"),
    }


@pytest.mark.parametrize(
    ("drawer", "message"),
    [
        ("full", "the report cannot be written: .*{run}: No space left on device"),
        ("broken", "the report cannot be drawn: KeyError: 'no such column'"),
    ],
)
def test_failed_page_is_reported_after_a_finished_run(store: Store, offered: Path, drawer: str, message: str) -> None:
    offered.write_text(f"[engram.reports]\nrun = drawers:{drawer}\n")
    events: list[str] = []
    config = toys.Config(parts=2)
    execution = Execution(address="none", mlflow="off")
    report = start([Cell("toys", config)], store, execution, lambda event: events.append(str(event.get("line"))))
    assert report.state == "finished"
    assert report.exit_code == 1
    assert report.page is None
    with pytest.raises(EngramError, match=message.format(run=report.run)) as refused:
        pages.draw(store, report.run)
    assert str(refused.value) in events


@pytest.fixture
def engram(tmp_path: Path) -> Here:
    engram = Here(tmp_path)
    engram("run", "toys", "parts=2", "--address", "none")
    return engram


def streams(data: bytes) -> bytes:
    """The uncompressed contents of the PDF's streams."""
    contents = b""
    for part in re.findall(rb"\bstream\r?\n(.*?)endstream", data, re.DOTALL):
        try:
            contents += zlib.decompressobj().decompress(part)
        except zlib.error:
            continue
    return contents


@pytest.mark.skipif(not PROGRAM, reason="Chromium is not installed here")
def test_report_is_printed_to_pdf_next_to_it(engram: Here, tmp_path: Path) -> None:
    written_files = engram.json("report", "--pdf")
    page = Path(written_files["report"])
    printed = Path(written_files["pdf"])
    assert page.with_suffix(".pdf") == printed
    assert version_of(page.read_bytes()) == version("engram-audit")
    data = printed.read_bytes()
    assert data[:5] == b"%PDF-"
    assert data.rstrip()[-5:] == b"%%EOF"
    assert b"/Font" in data
    assert b"Tj" in streams(data) or b"TJ" in streams(data)  # text is drawn as text, not as an image
    assert [page.name, printed.name] == sorted(path.name for path in page.parent.glob("*report*"))
    assert engram("report", "--pdf").stdout == f"{printed}\n"


def test_missing_browser_is_reported_in_one_line(engram: Here, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    engram.env["PATH"] = str(tmp_path / "bin")
    completed = engram("report", "--pdf", code=1)
    assert completed.stderr.startswith("engram: no browser that can print was found on PATH (chromium, ")
    assert completed.stderr.count("\n") == 1
    assert len(list(tmp_path.glob("engram-store/runs/*/report.html"))) == 1  # the page exists all the same


@pytest.mark.parametrize(
    ("script", "line"),
    [
        (None, "ENGRAM_BROWSER is {}; it must be a program on this machine"),
        ("echo first >&2; echo 'it is broken' >&2; exit 3", "(exit code 3): it is broken"),
        ("exit 0", "(exit code 0): no message"),
    ],
)
def test_failing_browser_is_reported_in_one_line(engram: Here, tmp_path: Path, script: str | None, line: str) -> None:
    program = tmp_path / "browser"
    if script is not None:
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    engram.env[pages.BROWSER] = str(program)
    message = engram("report", "--pdf", code=1).stderr
    assert line.format(program) in message
    assert message.count("\n") == 1


def test_environment_variable_selects_the_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = shutil.which("sh")
    monkeypatch.setenv(pages.BROWSER, "sh")
    assert shell == pages.browser()
    monkeypatch.setenv(pages.BROWSER, os.fspath(Path(str(shell))))
    assert shell == pages.browser()
