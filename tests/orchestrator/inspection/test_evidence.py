"""What a run rests on, as its page and its seal list it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from orchestrator.inspection import page_seal
from orchestrator.run_folder.journal import Journal
from orchestrator.runs.lifecycle import start
from orchestrator.spec.resolve import pin_cells, resolve_cells
from orchestrator.spec.specification import Execution, Spec
from orchestrator.store import Store, open_store
from orchestrator.store.entry import content

HERE = Execution(address="none", mlflow="off", report=False, stop_after=0.0)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "store")


def made(store: Store, spec: Spec, execution: Execution = HERE) -> Journal:
    """The run of what is asked for; with `HERE` it ends before its first job."""
    report = start(pin_cells(resolve_cells(spec), store.digests()), store, execution)
    return Journal(store.folder("runs", report.run))


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "secret folder" / "stamp.png"
    path.parent.mkdir()
    Image.fromarray(np.full((4, 4), 200, np.uint8)).save(path)
    os.utime(path, (1_700_000_000, 1_700_000_000))
    return path


def test_a_file_is_listed_by_name_digest_size_and_date_without_its_folders(store: Store, picture: Path) -> None:
    journal = made(store, Spec("unique_feature", "smoke", {"feature": f"picture:{picture}"}))
    [digits, photos, stamp] = page_seal.audited_items(journal, store)
    digest = hashlib.sha256(picture.read_bytes()).hexdigest()
    assert ("file", "stamp.png", digest, True, False) == (
        stamp.what,
        stamp.name,
        stamp.digest,
        stamp.of_bytes,
        stamp.embedded,
    )
    assert (picture.stat().st_size, "2023-11-14T22:13:20+00:00") == (stamp.size, stamp.modified)
    assert ("feature.image",) == stamp.fields
    assert [("data set", "digits", True), ("data set", "photos", True)] == [
        (entry.what, entry.name, entry.embedded) for entry in (digits, photos)
    ]
    assert (None, True) == (digits.modified, (digits.size or 0) > 10_000)


def test_a_file_that_is_not_there_any_more_as_it_was_has_no_size_and_no_date(store: Store, picture: Path) -> None:
    journal = made(store, Spec("unique_feature", "smoke", {"feature": f"picture:{picture}"}))
    before = page_seal.audited_items(journal, store)[2]
    picture.write_bytes(picture.read_bytes() + b"!")
    after = page_seal.audited_items(journal, store)[2]
    assert (before.digest, None, None) == (after.digest, after.size, after.modified)


def test_a_tables_digest_is_that_of_its_results_contents(store: Store) -> None:
    journal = made(store, Spec("toys", "few", {"parts": 2}), Execution(address="none", mlflow="off", report=False))
    summary, parts = page_seal.tables(journal, store)
    assert (("summary", 1, 1), ("parts", 2, 2)) == tuple(
        (table.name, table.stored, table.planned) for table in (summary, parts)
    )
    lines = "".join(f"{key} {content(store.read(key))}\n" for key in journal.roots()["parts"])
    assert hashlib.sha256(lines.encode()).hexdigest() == parts.digest
    assert summary.finished >= parts.finished


def test_a_sweep_lists_each_thing_once_and_the_tables_of_all_its_cells(store: Store) -> None:
    journal = made(store, Spec("unique_feature", "smoke", sweep={"feature.text": ["A", "X"]}))
    assert ["digits", "photos"] == [entry.name for entry in page_seal.audited_items(journal, store)]
    cells = journal.about()["cells"]
    tables = page_seal.tables(journal, store)
    assert cells == list(dict.fromkeys(table.run for table in tables))
    assert {0} == {table.stored for table in tables}
