"""Rows of the summary that come of small tables of their own."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from tasks.audits.unique_feature.canary_selection import CHOSEN, Ranked
from tasks.audits.unique_feature.measures.contrast import CONTRAST, Contrast, contrast
from tasks.audits.unique_feature.measures.latents import LATENTS
from tasks.audits.unique_feature.measures.learning_curve import COURSE
from tasks.audits.unique_feature.measures.traced import Traced, traced
from tasks.audits.unique_feature.power import probes_needed
from tasks.audits.unique_feature.probe_images import Burning
from tasks.audits.unique_feature.published import Repeated
from tasks.audits.unique_feature.summary import summary
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Glyph, pixels
from tests.tasks.audits.unique_feature import small

TABLE_2 = "table 2, mnist, mlp1, no regulariser"


def rows(tables: list[pa.Table], published: str = "") -> dict[tuple[str, str], dict[str, Any]]:
    found = summary(Repeated(published), tables).to_pylist()
    return {(row["metric"], row["setting"]): row for row in found}


def test_m_during_training_is_given_before_it_after_an_epoch_and_where_it_was_kept() -> None:
    scores = {"canary": [0.0, 0.2, 0.6, 0.5], "twin": [0.0, 0.1, 0.1, 0.3]}
    tables = []
    for canary in (3, 4):
        table = [
            {"canary": canary, "seed": 1, "model": model, "epoch": epoch, "m": m + canary, "m_w_probe": m}
            | {"kept": epoch == 2}
            for model, values in scores.items()
            for epoch, m in enumerate(values)
        ]
        tables.append(pa.Table.from_pylist(table, COURSE))
    found = rows(tables)
    kept = found["M_w", '{"epoch": "kept"}']
    assert [0.6, 0.1, 2] == pytest.approx([kept["estimate"], kept["null"], kept["n"]])
    effect = found["M effect", '{"epoch": "first epoch"}']
    assert [0.1, 0.0, "pair of trainings"] == pytest.approx([effect["estimate"], effect["null"], effect["unit"]])
    assert 0.0 == found["M_w", '{"epoch": "before training"}']["estimate"]


def test_units_of_the_feature_answer_to_it_and_not_to_random_patches() -> None:
    def units(model: str, shares: list[tuple[float, float]]) -> list[dict[str, Any]]:
        about = {"canary": 1, "seed": 2, "model": model, "layer": "dense2", "units": len(shares)}
        return [about | {"unit": unit, "unique": u, "random": r} for unit, (u, r) in enumerate(shares)]

    table = units("canary", [(0.9, 0.1), (0.9, 0.8), (0.1, 0.0), (0.7, 0.1)]) + units("twin", [(0.0, 0.0)] * 4)
    row = rows([pa.Table.from_pylist(table, LATENTS)])["units of the feature", '{"layer": "dense2"}']
    assert (2.0, 0.0, 1) == (row["estimate"], row["null"], row["n"])


def test_the_letter_changes_an_image_by_the_distance_of_its_pixels() -> None:
    config = Contrast(pin(Dataset("photos")), "test", (28, 28, 1), Burning(Glyph(), "noise", 1))
    table = contrast(config, ())
    assert table.schema == CONTRAST
    first = load(Dataset("photos")).test_images[0, 1:6, 1:6, 0]
    expected = (((pixels(Glyph()).astype(float) - first) / 255) ** 2).sum() ** 0.5
    assert expected == pytest.approx(table["unique"][0].as_py(), rel=1e-6)
    row = rows([table])["change of a probe image", '{"by": "feature"}']
    means = [sum(table[name].to_pylist()) / table.num_rows for name in ("unique", "random")]
    assert means == pytest.approx([row["estimate"], row["null"]])
    assert "probe image" == row["unit"]


def test_an_image_is_traced_without_the_feature_and_with_it() -> None:
    before, after = small.influence([3.0, 9.0, 1.0, 7.0]), small.influence([3.0, 9.0, 8.0, 7.0])
    chosen = small.chosen(2, end="lowest")
    assert chosen.schema == CHOSEN
    table = traced(Traced(Ranked("lowest", 1)), [chosen, before, after])
    assert [False, True] == table["with_feature"].to_pylist()
    assert [1.0, 8.0] == table["self_influence"].to_pylist()
    assert [0.0, 0.75 - 0.25] == [round(share, 6) for share in table["share_below"].to_pylist()]
    found = rows([table], TABLE_2)
    with_it = json.dumps({"feature": "with", "image": "lowest"})
    without = json.dumps({"feature": "without", "image": "lowest"})
    assert [1.0e-13, 7.5e4] == [found["squared slopes", setting]["published"] for setting in (without, with_it)]
    assert 8.0 == found["self-influence", with_it]["estimate"]


def test_so_many_probe_images_show_an_m_of_a_size_in_four_tests_of_five() -> None:
    z = stats.norm.ppf(0.95) + stats.norm.ppf(0.8)
    assert 619 == probes_needed(1.0, 0.1)
    assert (z / 0.1) ** 2 == pytest.approx(618.3, abs=0.1)
    assert 2 == probes_needed(0.001, 1.0)
    rng = np.random.default_rng(1)
    found = [stats.ttest_1samp(rng.normal(0.1, 1.0, 619), 0, alternative="greater").pvalue < 0.05 for _ in range(400)]
    assert 0.74 < sum(found) / 400 < 0.86
