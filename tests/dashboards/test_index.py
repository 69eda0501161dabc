"""The page of all runs of a store, and the pages that list everything asked about a model or data set."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dashboards.run import Run
from orchestrator.inspection import item_history, pages
from orchestrator.run_folder.journal import Journal
from orchestrator.spec.config_parts import plain
from orchestrator.store import Store, open_store
from tasks.datasets.dataset import Dataset
from tests.dashboards import made
from tests.support.browser import Browser, Page
from tests.support.shell import Here

MARKUP = "<img src=x onerror=alert(1)>"
DIGEST = "5e" * 32
SHOWN = "[...document.querySelectorAll('#list tbody tr')].filter(row => !row.hidden).map(row => row.dataset.run)"
CHOOSE = """{{
  const field = document.querySelector("[name={}]");
  field.value = {!r};
  field.dispatchEvent(new Event("input"));
}}"""
WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store: two finished runs and their sweep, a failed and a cancelled run, and damaged folders."""
    folder = tmp_path_factory.mktemp("index")
    store = open_store(folder / "engram-store")
    tables = made.tables(4)
    config = made.embedded(data=Dataset(f"folder:/home/jane/{MARKUP}", DIGEST))
    weak = made.run(store, "unique_feature-aaaa", made.tables(4, effect=0.1), config, {"seed": 1})
    strong = made.run(store, "unique_feature-bbbb", tables, config, {"seed": 2})
    made.sweep(store, "unique_feature-sweep-cccc", [weak, strong])
    failed = made.run(store, "unique_feature-dddd", {"summary": []}, config)
    cancelled = made.run(store, "unique_feature-eeee", {"summary": []}, config)
    for run in (weak, strong):
        end(run, "finished")
    end(failed, "failed")
    end(cancelled, "interrupted", "cancelled by jane@host")
    for name, file in (("unique_feature-ffff", "run.json"), ("unique_feature-gggg", "plan.json")):
        shutil.copytree(weak.journal.folder, store.folder("runs") / name)
        damage(store.folder("runs", name) / file)
    pages.draw(store, "unique_feature-bbbb")
    pages.draw_index(store)
    return folder


def end(run: Run, state: str, note: str = "") -> None:
    count = len(run.journal.tasks())
    run.journal.append(
        [{"event": "started"}, {"event": state, "note": note, "jobs": {"stored": count, "planned": count}}]
    )


def damage(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


@pytest.fixture
def index(browser: Browser, folder: Path) -> Page:
    return browser.open(folder / "engram-store" / "index.html", 1280, 900)


def shown(page: Page) -> list[str]:
    names: list[str] = page.evaluate(SHOWN)
    return [name.removeprefix("unique_feature-") for name in names]


def item_page(folder: Path) -> Path:
    return folder / "engram-store" / "items" / f"data-set-{DIGEST[:16]}.html"


def test_index_lists_every_run_and_links_to_reports(index: Page, folder: Path) -> None:
    assert sorted(shown(index)) == ["aaaa", "bbbb", "dddd", "eeee", "ffff", "gggg", "sweep-cccc"]
    targets = index.evaluate("[...document.querySelectorAll('main a[href]')].map(link => link.getAttribute('href'))")
    files = [target for target in targets if not target.startswith("#")]
    assert "runs/unique_feature-bbbb/report.html" in files
    assert [target for target in files if not (folder / "engram-store" / target).is_file()] == []
    assert index.complaints() == []
    assert index.evaluate("document.querySelectorAll('img').length") == 0


def test_index_is_sorted_and_filtered(index: Page) -> None:
    index.evaluate("document.querySelectorAll('#list thead button')[4].click()")
    assert [name for name in shown(index) if "sweep" not in name][:2] == ["bbbb", "aaaa"]
    assert index.evaluate("document.querySelector('[aria-sort]').innerText").startswith("effect")
    index.evaluate(CHOOSE.format("state", "failed"))
    assert shown(index) == ["dddd"]
    assert index.evaluate("document.getElementById('shown').textContent") == "1 of 7 rows"
    index.evaluate(CHOOSE.format("state", ""))
    index.evaluate(CHOOSE.format("text", "UNREADABLE"))
    assert sorted(shown(index)) == ["ffff", "gggg"]


@pytest.mark.parametrize("width", [390, 1280])
def test_pages_fit_their_screens(browser: Browser, folder: Path, width: int) -> None:
    for path in (folder / "engram-store" / "index.html", item_page(folder)):
        assert browser.open(path, width, 844).evaluate(WIDE) <= 0, path.name


def test_page_of_data_set_lists_unfavourable_runs(folder: Path) -> None:
    text = item_page(folder).read_text()
    runs = re.findall(r'<th scope="row" data-sort="unique_feature-(\w+)"', text)
    assert sorted(runs) == ["aaaa", "bbbb", "dddd", "eeee", "gggg"]  # whose configuration can be read
    assert "cancelled" in text
    assert "jane" not in text
    assert "The folders of 1 run cannot be read" in text
    assert MARKUP not in text
    assert MARKUP.replace("<", "&lt;").replace(">", "&gt;") in text


@pytest.fixture
def engram(folder: Path, tmp_path: Path) -> Here:
    """A copy of the folder."""
    shutil.copytree(folder, tmp_path / "copy")
    return Here(tmp_path / "copy")


def states(engram: Here, page: Path, *options: str, code: int = 0) -> dict[str, str]:
    result = {}
    for check in engram.json("report", "verify", str(page), *options, code=code)["checks"]:
        result[f"{check['what']} {check['name']}"] = check["state"]
    return result


def test_page_of_data_set_is_signed_and_verified(engram: Here) -> None:
    printed = engram.json("report", "--data", DIGEST[:12])
    page = engram.folder / printed["report"]
    assert sorted(printed["runs"]) == [f"unique_feature-{name}" for name in ("aaaa", "bbbb", "dddd", "eeee", "gggg")]
    key = engram.folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    engram("report", "sign", str(page), "--key", str(key))
    checks = states(engram, page, "--key", f"{key}.pub")
    assert {name for name, state in checks.items() if state != "agrees"} == {
        f"data set {printed['name']}"  # its folder is not on this machine
    }


def test_omitted_and_removed_runs_are_changes(engram: Here) -> None:
    page = item_page(engram.folder)
    store = open_store(engram.folder / "engram-store")
    config = made.embedded(data=Dataset("folder:elsewhere", DIGEST))
    made.run(store, "unique_feature-9999", {"summary": []}, config)
    assert states(engram, page, code=1)["run unique_feature-9999"] == "changed"
    shutil.rmtree(store.folder("runs") / "unique_feature-bbbb")
    checks = states(engram, page, code=1)
    assert checks["run unique_feature-bbbb"] == "changed"
    engram("report", "--data", "folder:elsewhere")
    text = page.read_text()
    assert "unique_feature-bbbb of unique_feature-sweep-cccc" in text
    assert "also named" in text


def test_deleted_row_is_a_change(engram: Here) -> None:
    page = item_page(engram.folder)
    text = page.read_text()
    [row] = re.findall(r'<tr>\s*<th scope="row" data-sort="unique_feature-aaaa".*?</tr>', text, flags=re.S)
    page.write_text(text.replace(row, ""))
    assert states(engram, page, code=1)[f"page {page.name}"] == "changed"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--data", "photoz"), "did you mean 'photos'"),
        (("--model", "none.pt"), "no run of this store examined it"),
        (("--data", "digits", "--model", "none.pt"), "leave out one"),
        (("unique_feature-aaaa", "--data", "digits"), "--data is given with RUN"),
    ],
)
def test_impossible_request_gives_one_line(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    stderr = Here(folder)("report", *arguments, code=2).stderr
    assert len(stderr.splitlines()) == 1
    assert message in stderr


def test_recording_is_found_by_digest_and_file(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "scores.parquet"
    file.write_bytes(b"scores")
    digest = hashlib.sha256(b"scores").hexdigest()
    config = plain(made.embedded()) | {"other": f"{file}@{digest}"}
    about = {"audit": "an audit that is not installed", "preset": None, "setting": {}, "config": config}
    Journal(store.folder("runs") / "other-1111").create(about, None)
    history = item_history.read_history(store)
    for word in (digest, str(file)):
        assert item_history.find_item(history, word, "model").runs == ("other-1111",)


def test_indexes_of_runs_that_end_together_have_both(store: Store) -> None:
    def end_run(number: int) -> Any:
        made.run(store, f"unique_feature-{number:04}", {"summary": []})
        return pages.draw_index(store, [f"unique_feature-{number:04}"])

    with ThreadPoolExecutor(4) as pool:
        [index] = set(pool.map(end_run, range(4)))
    runs = re.findall(r'data-run="unique_feature-(.*?)"', index.read_text())
    assert sorted(runs) == ["0000", "0001", "0002", "0003"]
