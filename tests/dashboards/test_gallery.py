"""The images of a run, and who may see them."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from PIL import Image

from dashboards.gallery import LONGEST, Gallery, text_records
from dashboards.page import gallery
from orchestrator.store import Store
from tasks.audits.unique_feature import UniqueFeature
from tasks.audits.unique_feature.evaluation import burning, probe_images, probe_set_triples
from tasks.audits.unique_feature.pairs.canary_scores import CANARY_SCORES
from tasks.datasets import catalog
from tasks.datasets.catalog import load
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Glyph, Words, burn, glyph_pixels
from tasks.datasets.records import Records
from tests.dashboards import made
from tests.support import published_data


def open_gallery(
    store: Store, config: UniqueFeature | None = None, show_images: bool = False, canaries: int = 5
) -> Gallery:
    run = made.run(store, "unique_feature-1", made.tables(canaries), config)
    result = gallery(run, show_images)
    assert result is not None
    return result


def array(png: bytes) -> NDArray[np.uint8]:
    return np.asarray(Image.open(io.BytesIO(png)))


def test_canaries_are_sorted_by_effect(store: Store) -> None:
    config = made.embedded()
    result = open_gallery(store, config)
    assert result.shown
    assert result.note == ""
    rows = sorted(made.pairs(5, 0.4, 0), key=lambda row: -row["m_w_probe_effect"])
    images = burn(load(config.question.data).train_images, config.feature)
    for row, picture in zip(rows, result.pictures, strict=False):
        assert picture.title.startswith(f"canary {row['canary']}, label {row['label']}, effect ")
        assert (images[row["canary"], :, :, 0] == array(picture.png)).all()


def test_gallery_shows_carried_feature(store: Store) -> None:
    burnt = Glyph(text="Q")
    result = open_gallery(store, made.embedded(burnt=burnt))
    canary = array(result.pictures[0].png)
    probe = array(result.pictures[-2].png)
    assert (glyph_pixels(burnt) == canary[1:6, 1:6]).all()
    assert (glyph_pixels(Glyph()) == probe[1:6, 1:6]).all()


def test_probe_images_are_shown_in_three_versions(store: Store) -> None:
    config = made.embedded()
    triples = probe_set_triples(probe_images(config.probe, config.probe_split, config.shape), burning(config))
    last = open_gallery(store, config).pictures[-9:]
    rows = [int(picture.title.split()[2].rstrip(",")) for picture in last]
    assert len(set(rows)) == 3
    for position, (row, picture) in enumerate(zip(rows, last, strict=True)):
        images = (triples.clean, triples.unique, triples.random)[position % 3]
        assert (images[row, :, :, 0] == array(picture.png)).all()


def test_only_extremes_of_many_canaries_are_shown(store: Store) -> None:
    result = open_gallery(store, canaries=100)
    assert len(result.pictures) == 36 + 9
    assert "18 with the largest" in result.caption
    assert all(len(picture.png) < 1500 for picture in result.pictures)


def test_users_images_are_hidden_unless_requested(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path / "data"))
    config = made.embedded(data=users_images(tmp_path / "data" / "mnist"))
    hidden = open_gallery(store, config)
    assert (hidden.shown, hidden.pictures) == (False, ())
    assert "--show-images" in hidden.note
    rows = sorted(made.pairs(5, 0.4, 0), key=lambda row: -row["m_w_probe_effect"])
    assert ", ".join(str(row["canary"]) for row in rows) in hidden.note
    requested = open_gallery(store, config, show_images=True)
    assert requested.shown
    assert len(requested.pictures) == 5 + 9


def test_users_probe_images_are_hidden(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path / "data"))
    config = replace(made.embedded(), probe=users_images(tmp_path / "data" / "mnist"))
    assert len(open_gallery(store, config).pictures) == 5
    assert len(open_gallery(store, config, show_images=True).pictures) == 5 + 9


def test_public_images_with_private_name_are_hidden(store: Store) -> None:
    config = made.embedded(feature=Words("JD", size=6))
    hidden = open_gallery(store, config)
    assert (hidden.shown, hidden.pictures) == (False, ())
    assert "Images of digits show your own feature. --show-images adds them to the page." in hidden.note
    assert len(open_gallery(store, config, show_images=True).pictures) == 5 + 9


def test_missing_data_set_has_a_note(store: Store) -> None:
    config = made.embedded(data=Dataset("digits", "0" * 64))
    changed = open_gallery(store, config)
    assert (changed.shown, changed.pictures) == (False, ())
    assert "is not the one that was pinned" in changed.note
    missing = made.run(store, "unique_feature-2", made.tables(2), made.embedded(data=Dataset("mnist", "1" * 64)))
    missing_gallery = gallery(missing, True)
    assert missing_gallery is not None
    assert "'mnist' not found" in missing_gallery.note


def test_gallery_needs_canaries(store: Store) -> None:
    empty = {"summary": [], "canary_scores": [CANARY_SCORES.empty_table()]}
    assert gallery(made.run(store, "unique_feature-1", empty), True) is None
    table = pa.table({"metric": ["sum"]})
    assert gallery(made.run(store, "toys-1", {"summary": [table]}, audit="toys"), True) is None


def test_long_records_are_cut() -> None:
    table = pa.table({"id": ["q1"], "asked": ["<b>"], "at": [[1, 2]], "told": ["x" * (LONGEST + 1)], "none": [None]})
    (record,) = text_records(Records(table.cast(table.schema.set(4, pa.field("none", pa.string())))), "asked")
    assert record.title == "q1"
    assert record.group == "asked"
    cut = f"{'x' * LONGEST} ... (601 characters)"
    assert record.fields == (("asked", "<b>"), ("at", "[1, 2]"), ("told", cut), ("none", "null"))


def users_images(folder: Path) -> Dataset:
    """A data set of the user's: 40 training and 10 test images in MNIST's files, pinned."""
    draws = np.random.default_rng(0)
    published_data.mnist(folder, *(draws.integers(0, 256, (count, 28, 28), dtype=np.uint8) for count in (40, 10)))
    return catalog.pin(Dataset("mnist"))
