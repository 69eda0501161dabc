"""Distances of images with the feature and with a random patch."""

from __future__ import annotations

import pytest
from scipy import stats

from tasks.audits.unique_feature.evaluation import Burning
from tasks.audits.unique_feature.measures.contrast import CONTRAST, Contrast, contrast, rows
from tasks.contract.measure import Tables
from tasks.contract.schemas import make_table
from tasks.datasets.catalog import load, pin
from tasks.datasets.dataset import Dataset
from tasks.datasets.features import Glyph, glyph_pixels
from tests.tasks.audits.unique_feature.made_up import summary_rows
from tests.tasks.summary_rows import by_name, with_t


def test_change_by_feature_is_compared_with_random_patches() -> None:
    unique = [1.0, 2.0, 4.0, 7.0]
    random = [0.5, 1.75, 3.0, 6.0]
    p_value = stats.ttest_rel(unique, random, alternative="greater").pvalue
    expected = {
        "feature": [*with_t(unique), "probe image", 2.8125, p_value, None],
        "random patch": [*with_t(random), "probe image", None, None, None],
    }
    table = make_table(CONTRAST, image=range(4), unique=unique, random=random)
    contrast_rows = by_name(rows(Tables([table]), None))
    assert [("change of a probe image", f'{{"by": "{by}"}}') for by in expected] == list(contrast_rows)
    for numbers, row in zip(expected.values(), contrast_rows.values(), strict=True):
        assert numbers == pytest.approx(row)


def test_change_is_the_distance_of_pixels() -> None:
    config = Contrast(pin(Dataset("photos")), "test", (28, 28, 1), Burning(Glyph(), "noise", 1))
    table = contrast(config, ())
    assert table.schema == CONTRAST
    first = load(Dataset("photos")).test_images[0, 1:6, 1:6, 0]
    expected = (((glyph_pixels(Glyph()).astype(float) - first) / 255) ** 2).sum() ** 0.5
    assert expected == pytest.approx(table["unique"][0].as_py(), rel=1e-6)
    row = summary_rows([table])["change of a probe image", '{"by": "feature"}']
    means = []
    for name in ("unique", "random"):
        means.append(sum(table[name].to_pylist()) / table.num_rows)
    assert means == pytest.approx([row["estimate"], row["null"]])
    assert row["unit"] == "probe image"
