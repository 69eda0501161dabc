"""What neighbours draw, in the report: both drawings beside the image and its crop, and whose are shown."""

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
from tests.dashboards.test_deja_vu import own, run
from tests.dashboards.test_gallery import array
from tests.support.golden import Golden
from tests.support.settings import with_settings


def shown(store: Store, table: pa.Table, show_images: bool = False) -> Gallery:
    found = gallery(run(store, drawn=table), show_images)
    assert found is not None
    return found


def test_a_picture_stands_with_its_crop_and_both_drawings(store: Store) -> None:
    found = shown(store, inferred.drawn())
    assert (found.shown, found.note, found.title) == (True, "", "Reconstructions")
    held = catalog.load_with_boxes(inferred.SCENES)
    first = found.items[0]
    name = held.names[held.labels[0]]
    assert f"{held.ids[0]}, set A, class {name}" == first.title
    assert [picture.title for picture in first.pictures] == ["image", "crop"]
    target, reference = first.strips
    other = held.names[(held.labels[0] + 1) % len(held.names)]
    assert f"Trained on it: classified as {name}, correctly" == target.label
    assert f"Not trained on it: classified as {other}, wrongly" == reference.label
    # Of an image of A the target is model A, whose drawings are black; of one of B it is B.
    assert tuple(int(array(strip.pictures[0].png).max()) for strip in first.strips) == (0, 255)
    of_b = next(item for item in found.items if ", set B, " in item.title)
    assert tuple(int(array(strip.pictures[0].png).max()) for strip in of_b.strips) == (255, 0)
    assert array(target.pictures[0].png).shape == (4, 4, 3)


def test_kinds_stand_under_their_headings_and_are_bounded(store: Store) -> None:
    found = shown(store, inferred.drawn(each=5))
    groups = [item.group for item in found.items]
    assert list(KINDS.values()) == list(dict.fromkeys(groups))
    assert {EACH} == {groups.count(group) for group in KINDS.values()}  # of ten of each kind


def test_pictures_that_one_model_alone_drew_are_left_out(store: Store) -> None:
    table = inferred.drawn()
    of_one = table.filter(pa.array([model == "A" for model in table["model"].to_pylist()]))
    assert gallery(run(store, drawn=of_one), True) is None
    assert gallery(run(store, "deja_vu-2", drawn=DRAWN.empty_table()), True) is None
    assert gallery(run(store, "deja_vu-3", drawn=pa.table({"column": [1]})), True) is None


def test_drawings_follow_the_neighbours_where_there_are_both(golden: Golden, store: Store) -> None:
    whole = run(store, **inferred.tables(retrieval=inferred.retrieved(each=1), drawn=inferred.drawn(each=1)))
    found = gallery(whole, False)
    assert found is not None
    assert found.title == "Neighbours"
    assert len(found.items) == 3 + 8
    golden(found.caption)
    text = pages.draw(whole).read_text()
    assert text.count("data:image/png;base64,") == 3 * (2 + 2 * 4) + 8 * 4
    assert text.count("<ul") == text.count("</ul>")


def test_drawings_of_the_users_own_pictures_are_hidden_unless_asked_for(
    golden: Golden, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGRAM_CACHE", str(tmp_path / "cache"))
    data = own(tmp_path / "own")
    config = with_settings(inferred.embedded(), data=data, resolution=224)
    private = run(store, config=config, drawn=inferred.drawn(data, each=1))
    hidden = gallery(private, False)
    assert hidden is not None
    assert (hidden.shown, hidden.items) == (False, ())
    golden(hidden.note)
    page = pages.draw(private, show_images=True)
    assert page.read_text().count("data:image/png") == 0
    assert (page.parent / PRIVATE_PAGE).read_text().count("data:image/png") == 8 * 4


def test_data_that_have_changed_and_drawings_that_are_cut_are_said(golden: Golden, store: Store) -> None:
    config = with_settings(inferred.embedded(), data=Dataset("digits-on-photos", "0" * 64))
    changed = gallery(run(store, config=config, drawn=inferred.drawn()), False)
    assert changed is not None
    assert (changed.shown, changed.items) == (False, ())
    golden(changed.note, "changed.note")
    cut = [row | {"drawing": row["drawing"][:-1]} for row in inferred.drawn().to_pylist()]
    damaged = gallery(run(store, "deja_vu-2", drawn=pa.Table.from_pylist(cut, DRAWN)), False)
    assert damaged is not None
    golden(damaged.note)


def test_every_drawing_has_words(store: Store) -> None:
    alts = [strip.pictures[0].alt for item in shown(store, inferred.drawn()).items for strip in item.strips]
    assert all("classified as " in alt for alt in alts)
    assert len(np.unique(alts)) == len(alts)
