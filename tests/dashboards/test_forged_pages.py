"""An edited page fails verification with any seal; an unchanged page passes from any location."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.shell import Here

SEAL = re.compile(r'<template id="engram-seal">(.*?)</template>', re.DOTALL)
ZEROS = "0" * 64
RUN = ("run", "toys", "parts=2", "--address", "none")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a run with a page."""
    here = Here(tmp_path_factory.mktemp("sealed"))
    here.env = {"ENGRAM_REPORT": "yes", "MLFLOW_TRACKING_URI": "off"}
    here(*RUN)
    return here.folder / "engram-store"


def seal_again(page: str, **changes: Any) -> str:
    """Change entries of the page's seal and compute its digest again, as the writer of a page can."""
    (text,) = SEAL.findall(page)
    seal = json.loads(text)
    page = page.replace(seal["page"], ZEROS)
    text = json.dumps({**seal, **changes, "page": ZEROS})
    for character in "&<>":
        text = text.replace(character, f"\\u{ord(character):04x}")
    page = SEAL.sub(lambda _: f'<template id="engram-seal">{text}</template>', page)
    digest = hashlib.sha256(page.encode()).hexdigest()
    for template in ('<code class="digest" id="digest-of-page">{}</code>', '"page": "{}"'):
        page = page.replace(template.format(ZEROS), template.format(digest))
    return page


def number(page: str) -> str:
    """The page with another number in its summary."""
    return re.sub(r'(<data value=")([^"]*)(">)[^<]*', r"\g<1>\g<2>\g<3>0.000", page, count=1)


def sentence(page: str) -> str:
    return page.replace("</h1>", " is not memorised</h1>", 1)


def style(page: str) -> str:
    """The page with a style that hides its numbers."""
    return page.replace("</style>", "data{display:none}</style>", 1)


def point(page: str) -> str:
    """The page with a moved mark in a drawing."""
    return re.sub(r' (cx|x)="(\d+)', lambda match: f' {match[1]}="9{match[2]}', page, count=1)


EDITS = {"a number": number, "a sentence": sentence, "a style": style, "a drawing": point}
SEALS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "with all tables": lambda seal: {},
    "with no table": lambda seal: {"tables": [], "audited": []},
    "with no run": lambda seal: {"tables": [], "audited": [], "runs": []},
    "with one table": lambda seal: {"tables": seal["tables"][:1]},
}


@pytest.mark.parametrize("sealed", SEALS)
@pytest.mark.parametrize("edit", EDITS)
def test_edited_and_resealed_page_does_not_pass(edit: str, sealed: str, store: Path, tmp_path: Path) -> None:
    (original,) = store.glob("runs/*/report.html")
    page = original.read_text()
    (seal,) = SEAL.findall(page)
    forged = seal_again(EDITS[edit](page), **SEALS[sealed](json.loads(seal)))
    assert SEAL.sub("", forged) != SEAL.sub("", page)
    (tmp_path / "page.html").write_text(forged)
    checks = Here(tmp_path).json("verify", "page.html", "--strict", "--store", str(store), code=1)["checks"]
    states = {check["what"]: check["state"] for check in checks}
    assert states["page"] == "agrees"  # its seal is intact
    assert states["contents"] == ("unchecked" if sealed == "with no run" else "changed")


@pytest.mark.parametrize("sealed", ["with no table", "with no run", "with one table"])
def test_seal_without_tables_does_not_pass(sealed: str, store: Path, tmp_path: Path) -> None:
    (original,) = store.glob("runs/*/report.html")
    page = original.read_text()
    (seal,) = SEAL.findall(page)
    (tmp_path / "page.html").write_text(seal_again(page, **SEALS[sealed](json.loads(seal))))
    here = Here(tmp_path)
    assert here("verify", "page.html", "--strict", "--store", str(store), code=1)
    output = here("verify", "page.html", "--store", str(store), code=int(sealed != "with no run")).stdout
    assert ("does not name it" in output) == (sealed != "with no run")


@pytest.mark.parametrize("run", ["../../../../etc", "..", "a/b", "", ".hidden", 3])
@pytest.mark.parametrize("field", ["runs", "tables"])
def test_seal_that_names_a_path_is_refused(field: str, run: object, store: Path, tmp_path: Path) -> None:
    (original,) = store.glob("runs/*/report.html")
    page = original.read_text()
    (seal,) = SEAL.findall(page)
    tables = [{**table, "run": run} for table in json.loads(seal)["tables"]]
    forged = seal_again(page, **{field: [run] if field == "runs" else tables})
    (tmp_path / "page.html").write_text(forged)
    (line,) = Here(tmp_path)("verify", "page.html", "--store", str(store), code=1).stderr.splitlines()
    assert "cannot be read" in line


def test_unchanged_page_passes_under_another_name(store: Path, tmp_path: Path) -> None:
    (original,) = store.glob("runs/*/report.html")
    shutil.copy(original, tmp_path / "audit of our model.html")
    shutil.copytree(store, tmp_path / "copy")
    here = Here(tmp_path)
    output = here("verify", "audit of our model.html", "--strict", "--store", "copy").stdout
    assert "agrees    contents audit of our model.html: as drawn from the store" in output
    here.env = {"ENGRAM_REPORT": "yes", "MLFLOW_TRACKING_URI": "off"}
    here(*RUN, "--store", "copy")  # a start without jobs
    here("verify", "audit of our model.html", "--strict", "--store", "copy")
