"""Figure 2 of `forgetting`: the examples shown, and the privacy of the user's images."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dashboards.audits.forgetting.examples import pictures
from dashboards.gallery import Gallery
from orchestrator.store import Store
from tasks.audits.forgetting.config import Examples as AskedExamples
from tasks.audits.forgetting.config import Forgetting
from tasks.audits.forgetting.measures.examples import EXAMPLES, Examples, examples
from tasks.audits.forgetting.query_set import QuerySet
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import Part
from tests.dashboards import made
from tests.dashboards.test_gallery import users_images
from tests.support.golden import Golden


def open_gallery(store: Store, config: Forgetting, show_images: bool = False) -> Gallery:
    table = examples(Examples(config.query_part, config.calibration, config.outside), [])
    run = made.run(store, "forgetting-1", {"summary": [], "examples": [table]}, config, audit="forgetting")
    result = pictures(run, show_images)
    assert result is not None
    return result


def examples_config(calibration: Dataset | None = None) -> Forgetting:
    digits = pin(Dataset("digits"))
    return Forgetting(
        QuerySet(digits, 0, 40, control=None),
        Part(calibration or digits, 20),
        question=AskedExamples(),
    )


def test_examples_are_shown_by_part_and_class(golden: Golden, store: Store) -> None:
    config = examples_config()
    result = open_gallery(store, config)
    assert (result.shown, result.note) == (True, "")
    assert [item.group for item in result.pictures] == ["Query set: digits"] * 10 + ["Calibration set: digits"] * 10
    rows = examples(Examples(config.query_part, config.calibration), []).to_pylist()
    images = load(config.query.data).train_images
    for row, picture in zip(rows, result.pictures, strict=True):
        golden(picture.title)
        assert (images[row["row"], :, :, 0] == np.asarray(Image.open(io.BytesIO(picture.png)))).all()


def test_users_images_are_hidden_among_embedded_ones(
    golden: Golden, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path / "data"))
    config = examples_config(users_images(tmp_path / "data" / "mnist"))
    result = open_gallery(store, config)
    assert {item.group for item in result.pictures} == {"Query set: digits"}
    golden(result.note)
    assert len(open_gallery(store, config, show_images=True).pictures) == 20


def test_missing_data_are_reported_without_gallery(store: Store) -> None:
    config = examples_config()
    table = examples(Examples(config.query_part, config.calibration), [])
    gone = examples_config(Dataset("mnist", "1" * 64))
    run = made.run(store, "forgetting-2", {"summary": [], "examples": [table]}, gone, audit="forgetting")
    result = pictures(run, True)
    assert result is not None
    assert (result.shown, result.pictures) == (False, ())
    assert "'mnist' not found" in result.note
    empty = {"summary": [], "examples": [EXAMPLES.empty_table()]}
    assert pictures(made.run(store, "forgetting-3", empty, config, audit="forgetting"), True) is None
