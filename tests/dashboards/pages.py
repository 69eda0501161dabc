"""Pages of runs, drawn like the pages of real runs."""

from __future__ import annotations

import html
import re
from pathlib import Path

from dashboards import page
from dashboards.run import Run, open_run
from orchestrator.runs.lifecycle import start
from orchestrator.spec.resolve import pin_cells, resolve_cells
from orchestrator.spec.specification import Execution, Spec
from orchestrator.store import Store

HERE = Execution(address="none", mlflow="off", report=False)


def ran(store: Store, spec: Spec, execution: Execution = HERE) -> Run:
    """Run the specification to its end in this process."""
    return open_run(store, start(pin_cells(resolve_cells(spec), {}), store, execution).run)


def draw(run: Run, show_images: bool = False) -> Path:
    """Draw the run's page."""
    folder = run.store.folder("runs", run.name)
    page.draw(run.store, run.name, folder, show_images)
    return folder / "report.html"


def image_count(page: Path) -> int:
    """The number of images on the page, without those that it repeats next to the answer."""
    return page.read_text().partition('<div class="rest">')[2].count("data:image/png;base64,")


def words(page: Path) -> str:
    """The visible text of the page, with single spaces."""
    text = re.sub(r"<(style|title)>.*?</\1>", "", page.read_text(), flags=re.S)
    text = re.sub(r"</?(?:data|span|strong|code|time|a|th|td)\b[^>]*>", "", text)
    return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", text).split()))
