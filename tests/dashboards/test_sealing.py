"""Pages are sealed, and `engram report verify` lists what has changed since."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dashboards.document import PLACEHOLDER, add_seal
from dashboards.run import Run
from orchestrator.inspection import pages as drawers
from orchestrator.inspection.page_seal import read
from orchestrator.spec.specification import Execution, Spec
from orchestrator.store import open_store
from tests.dashboards import pages
from tests.support.browser import Browser
from tests.support.shell import Here, Shell

UNSTARTED = Execution(address="none", mlflow="off", report=False, stop_after=0.0)


@pytest.fixture
def engram(tmp_path: Path) -> Here:
    return Here(tmp_path)


@pytest.fixture
def page(engram: Here) -> Path:
    """The page of a finished run of two parts in the folder's store."""
    return pages.draw(pages.ran(open_store(engram.folder / "engram-store"), Spec("toys", "few", {"parts": 2})))


@pytest.fixture
def stamp(tmp_path: Path) -> Path:
    path = tmp_path / "secret folder" / "stamp.png"
    path.parent.mkdir()
    Image.fromarray(np.full((4, 4), 200, np.uint8)).save(path)
    return path


@pytest.fixture
def stamped(engram: Here, stamp: Path) -> Path:
    """The page of a run without results, about the user's own image."""
    store = open_store(engram.folder / "engram-store")
    return pages.draw(pages.ran(store, Spec("unique_feature", "smoke", {"feature": f"picture:{stamp}"}), UNSTARTED))


def states(engram: Here, *arguments: str, code: int = 0) -> dict[str, str]:
    """The state of each item in the output of `engram report verify`."""
    checks: list[dict[str, Any]] = engram.json("verify", *arguments, code=code)["checks"]
    result = {}
    for check in checks:
        result[f"{check['what']} {check['name'].partition(' of ')[0]}"] = check["state"]
    return result


def test_unchanged_page_agrees_with_store(tmp_path: Path, page: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    done = Shell(tmp_path / "elsewhere")("verify", str(page))  # finds the store that the page lies in
    run = page.parent.name
    assert done.stdout.splitlines() == [
        "agrees    page report.html",
        f"agrees    table summary of {run}",
        f"agrees    table parts of {run}",
        "agrees    contents report.html: as drawn from the store",
        f"4 agree, 0 changed, 0 not checked, compared with the store {tmp_path / 'engram-store'}",
    ]
    assert done.stderr == ""


def test_page_is_compared_with_its_own_store(engram: Here, page: Path, tmp_path: Path) -> None:
    (tmp_path / "engram-store").rename(tmp_path / "mine")
    shutil.copytree(tmp_path / "mine", tmp_path / "engram-store")  # the default one
    for result in (tmp_path / "engram-store").glob("results/*/*.arrow"):
        result.unlink()
    own_path = str(tmp_path / "mine" / page.relative_to(tmp_path / "engram-store"))
    assert set(states(engram, own_path).values()) == {"agrees"}
    assert states(engram, own_path, "--store", "engram-store", code=1)["table parts"] == "changed"
    engram.env["ENGRAM_STORE"] = "engram-store"  # only the default store, not the store of this page
    assert set(states(engram, own_path).values()) == {"agrees"}


def test_run_with_damaged_config_has_changed(engram: Here, stamped: Path) -> None:
    config_path = stamped.parent / "run.json"
    config_path.write_bytes(config_path.read_bytes().replace(b"digits", b"digitz", 1))
    lines = engram("verify", str(stamped), code=1).stdout.splitlines()
    (line,) = [line for line in lines if line.startswith("changed")]
    assert line.startswith(f"changed   run {stamped.parent.name}: cannot read {config_path}: ")
    assert ", 1 changed, 3 not checked, " in lines[-2]


def test_changed_digit_of_page_is_found(engram: Here, page: Path) -> None:
    text = page.read_text()
    number = re.search(r'<data value="[^"]*">', text)
    assert number is not None
    page.write_text(text.replace(number[0], number[0].replace('"', '"1', 1), 1))
    done = engram("verify", str(page), code=1)
    assert done.stdout.splitlines()[0] == "changed   page report.html: its text has been changed"
    assert "2 agree, 2 changed, 0 not checked" in done.stdout


def test_changed_damaged_and_lost_results_are_detected(engram: Here, page: Path) -> None:
    store = open_store(engram.folder / "engram-store")
    [parts] = [keys for name, keys in pages_roots(page).items() if name == "parts"]
    first, second = (next((engram.folder / "engram-store").glob(f"results/*/{key}.arrow")) for key in parts)
    table = store.read(parts[0])
    record = store.record(parts[0])
    first.unlink()
    assert states(engram, str(page), code=1) == {
        "page report.html": "agrees",
        "table summary": "agrees",
        "table parts": "changed",
        "contents report.html": "changed",
    }
    changed = table.set_column(0, table.schema.field(0), [[41]])
    store.write(parts[0], changed, {name: value for name, value in record.items() if name not in ("key", "content")})
    checks = engram.json("verify", str(page), code=1)["checks"]
    assert checks[2]["state"] == "changed"
    assert checks[2]["note"] == "its results have changed"
    second.write_bytes(second.read_bytes()[:-20])
    line = engram("verify", str(page), code=1).stdout.splitlines()[2]
    assert line.startswith(
        f"changed   table parts of {page.parent.name}: result {parts[1]} was damaged: it is truncated"
    )


def pages_roots(page: Path) -> dict[str, list[str]]:
    roots: dict[str, list[str]] = json.loads((page.parent / "plan.json").read_text())["roots"]
    return roots


def test_missing_items_are_unchecked(engram: Here, stamped: Path, tmp_path: Path) -> None:
    received = tmp_path / "received.html"
    stamped.rename(received)
    (tmp_path / "engram-store").rename(tmp_path / "gone")
    item_states = states(engram, str(received))
    assert {name for name, state in item_states.items() if state == "agrees"} == {
        "page received.html",
        "data set digits",
        "data set photos",
    }
    assert {"unchecked"} == {item_states["table summary"], item_states["file stamp.png"]}
    assert states(engram, str(received), "--store", "gone")["table summary"] == "agrees"
    unchecked_count = sum(state == "unchecked" for state in item_states.values())
    last_line = engram("verify", str(received)).stdout.splitlines()[-1]
    assert last_line.startswith(
        f"{unchecked_count} of {len(item_states)} items were not checked, so they may have changed (--strict"
    )
    assert "they may have changed" in engram("verify", str(received), "--strict", code=1).stdout.splitlines()[-1]
    assert "--strict requires a page" in engram("verify", "--strict", "--store", "gone", code=2).stderr


def test_file_is_checked_at_original_or_given_path(engram: Here, stamped: Path, stamp: Path, tmp_path: Path) -> None:
    assert states(engram, str(stamped))["file stamp.png"] == "agrees"
    copy_path = shutil.copy(stamp, tmp_path / "kept.png")
    stamp.write_bytes(stamp.read_bytes() + b"!")
    assert states(engram, str(stamped), code=1)["file stamp.png"] == "changed"
    assert states(engram, str(stamped), "--file", str(copy_path))["file stamp.png"] == "agrees"
    assert states(engram, str(stamped), "--file", str(stamp), code=1)["file stamp.png"] == "changed"
    stamp.unlink()
    checks = engram.json("verify", str(stamped))["checks"]
    assert checks[-1]["state"] == "unchecked"
    assert checks[-1]["note"] == f"there is no file {stamp}; give it by --file"


def test_unrelated_file_is_refused(engram: Here, page: Path, tmp_path: Path) -> None:
    (tmp_path / "other.pt").write_bytes(b"weights")
    line = engram("verify", str(page), "--file", "other.pt", code=1).stdout.splitlines()[4]
    assert line == "changed   file other.pt: the page depends on no file with this content or name"


def test_data_set_is_checked_at_given_path(engram: Here, tmp_path: Path) -> None:
    for split, count in (("train", 6), ("test", 4)):
        for label in "ab":
            folder = tmp_path / "scans" / split / label
            folder.mkdir(parents=True)
            for number in range(count):
                shade = np.full((28, 28), 10 * number + ord(label), np.uint8)
                Image.fromarray(shade).save(folder / f"{number}.png")
    store = open_store(tmp_path / "engram-store")
    spec = Spec("unique_feature", "smoke", {"data": f"folder:{tmp_path}/scans#28x28#grey", "examples": 8})
    received = tmp_path / "received.html"
    pages.draw(pages.ran(store, spec, UNSTARTED)).rename(received)
    assert str(tmp_path) not in received.read_text()
    (tmp_path / "engram-store").rename(tmp_path / "gone")
    (tmp_path / "there").mkdir()
    (tmp_path / "scans").rename(tmp_path / "there" / "scans")
    name = "data set folder:scans#28x28#grey"
    assert states(engram, str(received))[name] == "unchecked"
    assert states(engram, str(received), "--file", "there/scans")[name] == "agrees"
    next((tmp_path / "there" / "scans").rglob("0.png")).unlink()
    assert states(engram, str(received), "--file", "there/scans", code=1)[name] == "changed"


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (("none.html",), 2, "cannot read the page none.html: No such file or directory"),
        (("old.html",), 1, "old.html has no seal: an earlier version of Engram wrote it, or it is not a report"),
        (("report.html", "--file", "none.pt"), 2, "--file none.pt: No such file or directory"),
        (("report.html", "--file", "/proc/self/mem"), 2, "--file /proc/self/mem: Input/output error"),
        (("report.html", "--store", "none"), 2, "there is no store at none"),
        (("--file", "report.html"), 2, "--file requires a page"),
    ],
)
def test_unverifiable_items_give_one_line(
    engram: Here, page: Path, arguments: tuple[str, ...], code: int, line: str
) -> None:
    shutil.copy(page, engram.folder / "report.html")
    (engram.folder / "old.html").write_text("<!doctype html><p>An older page</p>")
    result = engram("verify", *arguments, code=code)
    assert result.stderr.startswith(f"engram: {line}")
    assert result.stderr.count("\n") == 1


def test_page_shows_seal_and_has_no_script(smoke: Run, browser: Browser) -> None:
    page_path = pages.draw(smoke)
    opened = browser.open(page_path)
    seal = read(page_path.read_bytes(), "report.html")
    assert seal.page in opened.evaluate("document.body.innerText")
    rows = "[...document.querySelectorAll('#audited tbody tr')].map(row => [...row.cells].map(each => each.innerText))"
    assert [[entry.what, entry.digest] for entry in seal.audited] == [[row[0], row[2]] for row in opened.evaluate(rows)]
    embedded_seal = opened.evaluate("document.getElementById('engram-seal').content.textContent")
    assert seal.page == json.loads(embedded_seal)["page"]
    assert opened.evaluate("document.scripts.length") == 0
    assert opened.complaints() == []


def test_audited_items_are_listed_once(smoke: Run) -> None:
    page = f'<table id="audited"><tr><td>digits</table>{PLACEHOLDER}'
    sealed = add_seal(page, [smoke], "report.html")
    assert sealed.count('id="audited"') == 1
    assert {entry.name for entry in read(sealed.encode(), "report.html").audited} == {"digits", "photos"}


def test_sweep_and_comparison_pages_are_sealed(engram: Here) -> None:
    store = open_store(engram.folder / "engram-store")
    swept = pages.ran(store, Spec("toys", "few", sweep={"parts": [2, 3]}))
    checks = engram.json("verify", str(pages.draw(swept)))["checks"]
    assert [check["what"] for check in checks] == ["page", *["table"] * 4, "contents"]
    assert {check["state"] for check in checks} == {"agrees"}
    two = engram.folder / "two.html"
    drawers.compare(store, (swept.cells[0].name, swept.cells[1].name), two)
    assert set(states(engram, str(two)).values()) == {"agrees"}
    os.replace(two, engram.folder / "renamed.html")
    assert states(engram, "renamed.html")["page renamed.html"] == "agrees"
