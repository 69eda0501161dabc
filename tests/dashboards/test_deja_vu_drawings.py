"""Drawings from neighbours in the report: both drawings next to the image and its crop, and privacy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dashboards.audits.deja_vu.reconstruction import EACH, KINDS
from dashboards.gallery import Gallery
from dashboards.page import gallery
from orchestrator.inspection.pages import PRIVATE_PAGE
from orchestrator.store import Store
from tasks.audits.deja_vu.measures.reconstruction import DRAWN
from tasks.datasets import catalog
from tasks.datasets.dataset import Dataset
from tests.dashboards import inferred, pages
from tests.dashboards.test_deja_vu import run, users_images
from tests.dashboards.test_gallery import array
from tests.support.golden import Golden
from tests.support.settings import with_settings


def open_gallery(store: Store, table: pa.Table, show_images: bool = False) -> Gallery:
    result = gallery(run(store, drawn=table), show_images)
    assert result is not None
    return result


def test_image_has_its_crop_and_both_drawings(store: Store) -> None:
    result = open_gallery(store, inferred.drawings())
    assert (result.shown, result.note, result.title) == (True, "", "Reconstructions")
    images = catalog.load_with_boxes(inferred.SCENES)
    first = result.items[0]
    name = images.names[images.labels[0]]
    assert first.title == f"{images.ids[0]}, set A, class {name}"
    assert [picture.title for picture in first.pictures] == ["image", "crop"]
    target, reference = first.strips
    other_class = images.names[(images.labels[0] + 1) % len(images.names)]
    assert target.label == f"Trained on it: classified as {name}, correctly"
    assert reference.label == f"Not trained on it: classified as {other_class}, wrongly"
    # For an image of A the target is model A, which draws black; for an image of B it is model B.
    assert tuple(int(array(strip.pictures[0].png).max()) for strip in first.strips) == (0, 255)
    of_b = next(item for item in result.items if ", set B, " in item.title)
    assert tuple(int(array(strip.pictures[0].png).max()) for strip in of_b.strips) == (255, 0)
    assert array(target.pictures[0].png).shape == (4, 4, 3)


def test_kinds_have_headings_and_bounded_size(store: Store) -> None:
    result = open_gallery(store, inferred.drawings(per_kind=5))
    groups = [item.group for item in result.items]
    assert list(KINDS.values()) == list(dict.fromkeys(groups))
    # of ten of each kind
    assert {groups.count(group) for group in KINDS.values()} == {EACH}


def test_images_drawn_by_one_model_are_left_out(store: Store) -> None:
    table = inferred.drawings()
    of_one = table.filter(pa.array([model == "A" for model in table["model"].to_pylist()]))
    assert gallery(run(store, drawn=of_one), True) is None
    assert gallery(run(store, "deja_vu-2", drawn=DRAWN.empty_table()), True) is None
    assert gallery(run(store, "deja_vu-3", drawn=pa.table({"column": [1]})), True) is None


def test_drawings_follow_the_neighbours(golden: Golden, store: Store) -> None:
    full_run = run(
        store, **inferred.tables(retrieval=inferred.retrieved(per_kind=1), drawn=inferred.drawings(per_kind=1))
    )
    result = gallery(full_run, False)
    assert result is not None
    assert result.title == "Neighbours"
    assert len(result.items) == 3 + 8
    golden(result.caption)
    page_path = pages.draw(full_run)
    text = page_path.read_text()
    assert pages.image_count(page_path) == 3 * (2 + 2 * 4) + 8 * 4
    assert text.count("<ul") == text.count("</ul>")


def test_drawings_of_users_images_are_hidden_unless_requested(
    golden: Golden, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "cache"))
    data = users_images(tmp_path / "own")
    config = with_settings(inferred.embedded(), data=data, resolution=224)
    private = run(store, config=config, drawn=inferred.drawings(data, per_kind=1))
    hidden = gallery(private, False)
    assert hidden is not None
    assert (hidden.shown, hidden.items) == (False, ())
    golden(hidden.note)
    page = pages.draw(private, show_images=True)
    assert page.read_text().count("data:image/png") == 0
    assert pages.image_count(page.parent / PRIVATE_PAGE) == 8 * 4


def test_changed_data_and_damaged_drawings_are_reported(golden: Golden, store: Store) -> None:
    config = with_settings(inferred.embedded(), data=Dataset("digits-on-photos", "0" * 64))
    changed = gallery(run(store, config=config, drawn=inferred.drawings()), False)
    assert changed is not None
    assert (changed.shown, changed.items) == (False, ())
    golden(changed.note, "changed.note")
    cut = []
    for row in inferred.drawings().to_pylist():
        cut.append(row | {"drawing": row["drawing"][:-1]})
    damaged = gallery(run(store, "deja_vu-2", drawn=pa.Table.from_pylist(cut, DRAWN)), False)
    assert damaged is not None
    golden(damaged.note)


def test_every_drawing_has_a_description(store: Store) -> None:
    alts = []
    for item in open_gallery(store, inferred.drawings()).items:
        for strip in item.strips:
            alts.append(strip.pictures[0].alt)
    assert all("classified as " in alt for alt in alts)
    assert len(np.unique(alts)) == len(alts)
