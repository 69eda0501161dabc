"""The items and tables that a run depends on, as its page and its seal list them.

The seal is tested separately from the drawing of pages.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from orchestrator.inspection import page_seal
from orchestrator.inspection.page_seal import AuditedItem, ResultTable
from orchestrator.run_folder.journal import Journal
from orchestrator.runs.lifecycle import start
from orchestrator.spec.resolve import pin_cells, resolve_cells
from orchestrator.spec.specification import Execution, Spec
from orchestrator.store import Store
from orchestrator.store.entry import content

HERE = Execution(address="none", mlflow="off", report=False, stop_after=0.0)
MODEL = AuditedItem("model", "a</template>&.pt", "ab" * 32, 5, None, True, False, ("given.models",))
SUMMARY = ResultTable("toys-1", "summary", "cd" * 32, 1, 1, "2026-01-01T00:00:00+00:00")
SHOWN = page_seal.SHOWN_DIGEST.format(page_seal.ZEROS)


def start_run(store: Store, spec: Spec, execution: Execution = HERE) -> Journal:
    """The run of a specification. With `HERE`, it stops before its first job."""
    report = start(pin_cells(resolve_cells(spec), store.digests()), store, execution)
    return Journal(store.folder("runs", report.run))


@pytest.fixture
def stamp_file(tmp_path: Path) -> Path:
    path = tmp_path / "secret folder" / "stamp.png"
    path.parent.mkdir()
    Image.fromarray(np.full((4, 4), 200, np.uint8)).save(path)
    os.utime(path, (1_700_000_000, 1_700_000_000))
    return path


def test_file_is_listed_without_its_folders(store: Store, stamp_file: Path) -> None:
    journal = start_run(store, Spec("unique_feature", "smoke", {"feature": f"picture:{stamp_file}"}))
    [digits, photos, stamp] = page_seal.audited_items(journal, store)
    digest = hashlib.sha256(stamp_file.read_bytes()).hexdigest()
    assert ("file", "stamp.png", digest, True, False) == (
        stamp.what,
        stamp.name,
        stamp.digest,
        stamp.of_bytes,
        stamp.embedded,
    )
    assert stamp.size == stamp_file.stat().st_size
    assert stamp.modified == "2023-11-14T22:13:20+00:00"
    assert stamp.fields == ("feature.image",)
    assert (digits.what, digits.name, digits.embedded) == ("data set", "digits", True)
    assert (photos.what, photos.name, photos.embedded) == ("data set", "photos", True)
    assert (digits.modified, (digits.size or 0) > 10_000) == (None, True)


def test_changed_file_has_neither_size_nor_date(store: Store, stamp_file: Path) -> None:
    journal = start_run(store, Spec("unique_feature", "smoke", {"feature": f"picture:{stamp_file}"}))
    before = page_seal.audited_items(journal, store)[2]
    stamp_file.write_bytes(stamp_file.read_bytes() + b"!")
    after = page_seal.audited_items(journal, store)[2]
    assert after.digest == before.digest
    assert after.size is None
    assert after.modified is None


def test_table_digest_covers_its_results(store: Store) -> None:
    journal = start_run(store, Spec("toys", "few", {"parts": 2}), Execution(address="none", mlflow="off", report=False))
    summary, parts = page_seal.tables(journal, store)
    assert tuple((table.name, table.stored, table.planned) for table in (summary, parts)) == (
        ("summary", 1, 1),
        ("parts", 2, 2),
    )
    lines = "".join(f"{key} {content(store.read(key))}\n" for key in journal.roots()["parts"])
    assert hashlib.sha256(lines.encode()).hexdigest() == parts.digest
    assert summary.finished >= parts.finished


def test_sweep_lists_items_once_and_all_tables(store: Store) -> None:
    journal = start_run(store, Spec("unique_feature", "smoke", sweep={"feature.text": ["A", "X"]}))
    assert [entry.name for entry in page_seal.audited_items(journal, store)] == ["digits", "photos"]
    cells = journal.about()["cells"]
    tables = page_seal.tables(journal, store)
    assert cells == list(dict.fromkeys(table.run for table in tables))
    assert {table.stored for table in tables} == {0}


def sealed_page(text: str = "An estimate of 0.37.") -> bytes:
    element = page_seal.element(["toys-1"], [MODEL], [SUMMARY])
    return page_seal.seal_page(f"<p>{text}</p>{SHOWN}{element}").encode()


def test_seal_is_read_back_with_special_characters() -> None:
    page = sealed_page()
    seal = page_seal.read(page, "report.html")
    assert seal.runs == ("toys-1",)
    assert seal.audited == (MODEL,)
    assert seal.tables == (SUMMARY,)
    assert page.count(seal.page.encode()) == 2


def test_page_digest_is_sha256_with_zeros_inserted() -> None:
    page = sealed_page()
    seal = page_seal.read(page, "report.html")
    assert hashlib.sha256(page.replace(seal.page.encode(), b"0" * 64)).hexdigest() == seal.page
    assert seal.page == page_seal.digest_of_page(page, seal.page)


def test_every_changed_character_is_detected() -> None:
    page = sealed_page()
    for position in range(len(page)):
        changed = page[:position] + (b"1" if page[position : position + 1] != b"1" else b"2") + page[position + 1 :]
        try:
            seal = page_seal.read(changed, "report.html")
        except page_seal.Unsealed:
            continue
        assert seal.page != page_seal.digest_of_page(changed, seal.page), position


def test_zeros_shown_by_the_page_are_kept() -> None:
    page = sealed_page("0" * 64)
    seal = page_seal.read(page, "report.html")
    assert b"<p>" + b"0" * 64 in page
    assert seal.page == page_seal.digest_of_page(page, seal.page)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"engram seal": 1', b'"engram seal": 2'),
        (b"ab" * 32, b"ab" * 31),
        (b'"tables": [', b'"tables": [3, '),
        (b'"stored"', b'"shored"'),
        (b'{"engram', b'[{"engram'),
        (b"<p>", b'<template id="engram-seal">{}</template><p>'),
    ],
)
def test_unreadable_seal_gives_one_line_error(old: bytes, new: bytes) -> None:
    page = sealed_page()
    assert old in page
    with pytest.raises(page_seal.Unsealed, match=r"^the seal of report\.html cannot be read, so the page has been"):
        page_seal.read(page.replace(old, new), "report.html")


def test_seal_is_valid_json() -> None:
    text = sealed_page().partition(b'<template id="engram-seal">')[2].removesuffix(b"</template>")
    assert MODEL.name == json.loads(text)["audited"][0]["name"]
