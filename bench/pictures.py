"""Renews the pictures of README and docs from runs of all quickstarts, in headless Chromium: `make pictures`.

The store PICTURES_STORE is used (default: below .cache/pictures). Quickstarts that it lacks are run first, one to four
minutes each, without a Ray cluster. `docs/density.png` and `docs/estimators.png` show longer runs and are not renewed.
"""

from __future__ import annotations

import base64
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from PIL import Image

import orchestrator
from orchestrator.inspection import pages, status
from orchestrator.store import Store, open_store
from orchestrator.tracking import tracking_store, ui
from tests.support.browser import Browser, Page

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
STORE = "PICTURES_STORE"
AUDITS = ("unique_feature", "forgetting", "density", "relational", "deja_vu", "membership", "text")
PRESET = "quickstart"
SWEEP = ("unique_feature", "--preset", "smoke", "--sweep", "learning_rate=1e-4,3e-4,1e-3")  # for the list of runs
LIVE_RUN = ("unique_feature", "--preset", PRESET, "seed=2")  # stopped once its live page has been photographed
LIVE_JOBS = 30  # of 63
SCREEN = (1280, 645)
GALLERY = (1280, 800)
GALLERY_WIDTH = 960  # pixels to which the pictures of the gallery are scaled down
LIVE = (900, 470)
MLFLOW = (1400, 900)
MLFLOW_RUNS = (1400, 520)
COLOURS = 128
LOADED = "document.body.innerText.includes({!r})"
PORT = 5100
SETTLING = 4.0  # seconds
CLOSE = "document.querySelectorAll('button[aria-label*=lose]').forEach(button => button.click())"
HIDE_PATH = """[...document.querySelectorAll("div, p, span")].filter(each => !each.children.length)
  .forEach(each => each.textContent = each.textContent.replace({!r}, {!r}))"""
PUBLIC = "/home/jane/engram-store"  # replaces the location of the store
SELECT = "[...document.querySelectorAll('span, div')].filter(each => each.textContent === 'report.html').at(-1).click()"
ENGRAM = (sys.executable, "-m", "orchestrator")


def run_audits(store: str) -> dict[str, str]:
    """Run the quickstarts and a sweep that the store lacks. Returns the run of each audit."""
    runs = {}
    for audit in AUDITS:
        runs[audit] = orchestrator.run(audit, preset=PRESET, store=store, address="none").run
        print(f"{audit}: {runs[audit]}", flush=True)
    subprocess.run([*ENGRAM, "run", *SWEEP, "--store", store, "--address", "none"], check=True)
    return runs


def take(page: Page, path: Path, width: int | None = None) -> None:
    """Save a screenshot with few colours, scaled down to this width."""
    data = base64.b64decode(page.call("Page.captureScreenshot", {"format": "png"})["data"])
    image = Image.open(io.BytesIO(data)).convert("RGB")
    if width is not None:
        image = image.resize((width, image.height * width // image.width), Image.Resampling.LANCZOS)
    path.parent.mkdir(exist_ok=True)
    few = image.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)  # keeps colours of small areas
    few.save(path, optimize=True)
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes", flush=True)


def photograph_reports(browser: Browser, store: Store, runs: dict[str, str]) -> None:
    for audit, run in runs.items():
        report = pages.draw(store, run)
        take(browser.open(report, *GALLERY), DOCS / "gallery" / f"{audit}.png", GALLERY_WIDTH)
        if audit == AUDITS[0]:
            take(browser.open(report, *SCREEN), DOCS / "report-light.png")
            take(browser.open(report, *SCREEN, dark=True), DOCS / "report-dark.png")
    index = pages.draw_index(store)
    assert index is not None
    take(browser.open(index, *GALLERY), DOCS / "gallery" / "index.png", GALLERY_WIDTH)


def photograph_mlflow(browser: Browser, store: Store, run: str) -> None:
    """Photograph MLflow's list of runs and the artifacts of one run."""
    target = tracking_store.target(store, None, None)
    assert target is not None
    ui.check(store, target)
    with ui.serving(store, target, PORT) as (_, port):
        url = f"http://{ui.HOST}:{port}"
        listed = browser.open(ui.link(url, target.experiment), *MLFLOW_RUNS)
        listed.until(LOADED.format("engram.estimate"))
        _settle(listed)
        take(listed, DOCS / "mlflow-runs.png")
        address = ui.run_link(store.folder("runs", run), url)
        assert address is not None
        artifacts = browser.open(address.replace(tracking_store.VIEW, f"/artifacts{tracking_store.VIEW}"), *MLFLOW)
        artifacts.until(LOADED.format("report.html"))
        artifacts.evaluate(SELECT)
        _settle(artifacts)
        artifacts.evaluate(HIDE_PATH.format(store.location, PUBLIC))
        take(artifacts, DOCS / "mlflow.png")


def _settle(page: Page) -> None:
    """Close MLflow's assistant and notices, and wait until MLflow has drawn what it has loaded."""
    time.sleep(SETTLING)
    page.evaluate(CLOSE)
    time.sleep(SETTLING)


def photograph_live_page(browser: Browser, location: str) -> None:
    """Start a run in its own store and photograph its live page after half of its jobs."""
    command = [*ENGRAM, "run", *LIVE_RUN, "--store", location, "--address", "none", "--mlflow", "off"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        store = open_store(location)
        while not status.journals(store) or status.newest_status(store).jobs["stored"] < LIVE_JOBS:
            if process.poll() is not None:
                raise RuntimeError(f"the run has ended before its page was photographed; remove {location}")
            time.sleep(0.5)
        with pages.serve_live(store, PORT, lambda folder: ui.run_link(folder, None)) as address:
            take(browser.open(address, *LIVE), DOCS / "live.png")
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def main() -> None:
    location = Path(os.environ.get(STORE) or ROOT / ".cache" / "pictures" / "engram-store")
    location.parent.mkdir(parents=True, exist_ok=True)
    runs = run_audits(str(location))
    store = open_store(str(location))
    with Browser("--hide-scrollbars") as browser:
        photograph_reports(browser, store, runs)
        photograph_mlflow(browser, store, runs[AUDITS[0]])
        photograph_live_page(browser, f"{location}-live-{time.time_ns()}")


if __name__ == "__main__":
    main()
