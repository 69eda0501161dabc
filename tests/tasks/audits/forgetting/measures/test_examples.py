from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tasks.audits.forgetting.measures.examples import EXAMPLES, Examples, examples
from tasks.datasets import catalog
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.mixtures import Part
from tests.tasks.audits.forgetting.summarised import Row, rows
from tests.tasks.datasets import test_acdc


def test_one_image_per_class_and_part_is_drawn() -> None:
    digits = pin(Dataset("digits"))
    config = Examples(Part(digits, 0, 40), Part(digits, 40), Part(pin(Dataset("photos")), 0, 20))
    result = examples(config, []).to_pylist()
    assert [(row["part"], row["data"]) for row in result] == [("query", "digits")] * 10 + [
        ("calibration", "digits")
    ] * 10 + [("outside", "photos")]
    assert [row["label"] for row in result] == [*range(10), *range(10), 0]
    labels = load(digits).train_labels
    counts = [Counter(labels[:40].tolist()), Counter(labels[40:].tolist())]
    for index, row in enumerate(result[:20]):
        assert row["label"] == labels[row["row"]]
        assert (row["row"] < 40) == (index < 10)
        assert counts[index // 10][row["label"]] == row["images"] == row["groups"]
    assert (result[20]["images"], result[20]["row"] < 20) == (20, True)


def test_images_of_a_class_are_drawn_uniformly() -> None:
    digits = pin(Dataset("digits"))
    part = Part(digits, 0, 40)
    rows = Counter(examples(Examples(part, part, seed=seed), []).to_pylist()[3]["row"] for seed in range(400))
    class_rows = np.flatnonzero(load(digits).train_labels[:40] == 3)
    assert set(class_rows.tolist()) == set(rows)
    expected = 400 / len(class_rows)
    assert max(abs(count - expected) for count in rows.values()) < 5 * expected**0.5


def test_patients_are_counted_and_classes_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_loaded", {})
    monkeypatch.setenv("ENGRAM_DATA", str(tmp_path))
    folder = tmp_path / "acdc"
    for number, group in ((1, "DCM"), (2, "RV"), (3, "RV")):
        test_acdc.write_patient(folder / "training", number, group, test_acdc.volume(number))
    (folder / "field_strengths.csv").write_text("patient,tesla\n1,1.5\n2,3\n3,3\n")
    three = Part(pin(Dataset("acdc-3t")))
    one_and_a_half = Part(pin(Dataset("acdc-1.5t")))
    query, calibration = examples(Examples(three, one_and_a_half), []).to_pylist()
    assert tuple(query[name] for name in ("data", "label", "name", "images", "groups")) == ("acdc-3t", 4, "RV", 12, 2)
    assert tuple(calibration[name] for name in ("data", "label", "name", "images", "groups")) == (
        "acdc-1.5t",
        0,
        "DCM",
        6,
        1,
    )


def test_negative_seed_is_refused() -> None:
    part = Part(Dataset("digits"))
    with pytest.raises(ValueError, match="seed is -1; it must be at least 0"):
        Examples(part, part, seed=-1)


def test_images_are_counted_by_part_and_class() -> None:
    def example(part: str, label: int, name: str | None) -> Row:
        return {"part": part, "data": "hearts", "label": label, "name": name, "row": 3, "images": 12, "groups": 2}

    table = pa.Table.from_pylist([example("query", 4, "RV"), example("calibration", 4, None)], EXAMPLES)
    result = rows(table)
    assert [json.loads(index) for _, index in result] == [
        {"part": "query", "class": "RV"},
        {"part": "calibration", "class": 4},
    ]
    assert [(row["estimate"], row["n"]) for row in result.values()] == [(12.0, 2)] * 2
