"""Whatever becomes of a run's page, the run has ended as it has, and what went wrong is one line."""

from __future__ import annotations

from pathlib import Path

import pytest
import toys

from orchestrator.errors import EngramError
from orchestrator.inspection import pages
from orchestrator.runs.lifecycle import start
from orchestrator.spec.resolve import Cell
from orchestrator.spec.specification import Execution
from orchestrator.store import Store, open_store

DRAWERS = """
def full(store, run, folder, show_images):
    raise OSError(28, "No space left on device")

def broken(store, run, folder, show_images):
    raise KeyError("no such column")
"""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "store"))


@pytest.fixture
def offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another package that draws pages; the file says by which of its functions."""
    info = tmp_path / "site" / "drawers-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: drawers\nVersion: 1.0\n")
    (info.parent / "drawers.py").write_text(DRAWERS)
    monkeypatch.syspath_prepend(str(info.parent))
    return info / "entry_points.txt"


@pytest.mark.parametrize(
    ("drawer", "said"),
    [
        ("full", "the report cannot be written: .*{run}: No space left on device"),
        ("broken", "the report cannot be drawn: KeyError: 'no such column'"),
    ],
)
def test_a_page_that_cannot_be_had_is_told_and_the_run_is_finished(
    store: Store, offered: Path, drawer: str, said: str
) -> None:
    offered.write_text(f"[engram.reports]\nrun = drawers:{drawer}\n")
    events: list[str] = []
    config = toys.Config(parts=2)
    execution = Execution(address="none", mlflow="off")
    report = start([Cell("toys", config)], store, execution, lambda event: events.append(str(event.get("line"))))
    assert ("finished", 0, None) == (report.state, report.exit_code, report.page)
    with pytest.raises(EngramError, match=said.format(run=report.run)) as refused:
        pages.draw(store, report.run)
    assert str(refused.value) in events
