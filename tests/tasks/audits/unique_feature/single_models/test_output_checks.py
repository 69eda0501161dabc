"""Detection of altered tables: different outputs for one image, and wrong labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasks.audits.unique_feature import AUDIT, UniqueFeature, plan, split
from tasks.audits.unique_feature.answer import verdict
from tasks.audits.unique_feature.given_models import Given, LabelledImages, ReturnedOutputs
from tasks.audits.unique_feature.single_models import models as single_models
from tasks.audits.unique_feature.single_models.models import single_model_config
from tasks.audits.unique_feature.single_models.output_checks import LABELS, TWICE
from tasks.datasets.catalog import pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import AskedFamily
from tasks.worker import files
from tasks.worker.files import File
from tests.support.golden import Golden
from tests.support.settings import with_settings
from tests.tasks.audits.unique_feature.depth_first import tables

SHAPE = (12, 12, 1)
SECRET = "0123456789abcdef"
CLASSES = 10


def config_for(outputs: tuple[File, ...] = (), accuracy: float | None = None) -> UniqueFeature:
    source = ReturnedOutputs(outputs=outputs, labelled=LabelledImages(pin(Dataset("digits")), accuracy))
    given_config = Given(shape=SHAPE, source=source, family=AskedFamily(count=19), probes=10, secret=SECRET)
    return UniqueFeature(given_config, probe=pin(Dataset("photos")))


def write_table(folder: Path, right: int, noise: float = 0.0, digits: int = 6) -> File:
    """The table of a model that sees the brightness of an image and names the labels of `right` labelled images."""
    config = single_model_config(config_for(), SHAPE)
    name, pictures = single_models.pictures(config)
    rng = np.random.default_rng(0)
    logits = np.zeros((len(pictures), CLASSES))
    logits[:, 0] = pictures.mean(axis=(1, 2, 3)) / 64
    label_by_id = dict(zip(labelled_ids(config), single_models.labels(config), strict=True))
    correctly_named = set(list(label_by_id)[:right])
    repeated_id = dict(single_models.repeated_ids(config))
    label_by_id |= {repeated_id[image_id]: label for image_id, label in label_by_id.items() if image_id in repeated_id}
    correctly_named |= {repeated_id[image_id] for image_id in correctly_named if image_id in repeated_id}
    ids = [f"{name}/{image_id:06d}.png" for image_id in range(len(pictures))]
    for row, image in enumerate(ids):
        if image in label_by_id:
            logits[row, label_by_id[image] if image in correctly_named else (label_by_id[image] + 1) % CLASSES] += 9
    logits += noise * rng.normal(size=logits.shape)
    p = np.exp(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))
    lines = [",".join(["image", *(f"p{label}" for label in range(CLASSES))])]
    lines += [",".join([image, *(f"{value:.{digits}f}" for value in row)]) for image, row in zip(ids, p, strict=True)]
    (folder / "outputs.csv").write_text("\n".join(lines) + "\n")
    return files.pin(File(str(folder / "outputs.csv")))


def labelled_ids(config: Any) -> list[str]:
    return single_models.picture_ids(config)[single_models.LABELLED_SET]


@pytest.mark.parametrize(
    ("noise", "right", "answer", "reason"),
    [
        (
            0.0,
            93,
            "not assessable",
            "100 of 100 compared pairs of scores are equal",
        ),  # the model never sees the feature
        (
            0.0,
            70,
            "not assessable",
            "table 1 names the correct label of 70 of 100 images, although the stated accuracy is 95 % (p = ",
        ),
        (0.3, 93, "not assessable", " of 32 images that were handed out twice have two different outputs"),
    ],
)
def test_table_is_judged_only_if_it_is_plausible(
    tmp_path: Path, noise: float, right: int, answer: str, reason: str
) -> None:
    config = config_for((write_table(tmp_path, right, noise),), accuracy=0.95)
    summary = tables(plan(config))["summary"]
    assert AUDIT.verdict is not None
    outcome = AUDIT.answer(config, summary)
    assert outcome is not None
    assert (outcome.answer, reason in outcome.sentence) == (answer, True), outcome.sentence
    rows = {row["metric"]: row for row in summary.to_pylist()}
    commitment = split(config).commitment
    assert json.loads(rows[TWICE]["setting"]) == {"table": 1, "key": commitment[:16]}
    assert commitment[:16] in outcome.limits
    assert tuple(rows[LABELS][name] for name in ("estimate", "null", "n")) == (right / 100, 0.95, 100)
    assert (noise > 0) == (rows[TWICE]["estimate"] > 0)


def test_rounded_repeats_and_missing_accuracy_are_accepted(tmp_path: Path) -> None:
    config = config_for((write_table(tmp_path, 20, digits=3),))
    table = tables(plan(config))["touched"]
    (row,) = table.to_pylist()
    assert row["differing"] == 0
    assert row["labelled"] == 100
    assert row["right"] == 20
    assert row["stated"] is None
    outcome = AUDIT.answer(config, tables(plan(config))["summary"])
    assert outcome is not None
    assert "different outputs" not in outcome.sentence
    assert "stated accuracy" not in outcome.sentence


def test_unchecked_table_is_not_assessable(golden: Golden, tmp_path: Path) -> None:
    config = config_for((write_table(tmp_path, 93),))
    summary = tables(plan(config))["summary"]
    without_repeats = summary.filter([row["metric"] != TWICE for row in summary.to_pylist()])
    unchecked = verdict(config, without_repeats)
    assert unchecked.answer == "not assessable"
    golden(unchecked.sentence)
    answers = []
    for either_config in (config, with_settings(config, {"given.secret": ""})):
        answers.append(AUDIT.answer(either_config, summary))
    assert [
        "an owner who tries seeds" in either_config.limits for either_config in answers if either_config is not None
    ] == [False, True]
