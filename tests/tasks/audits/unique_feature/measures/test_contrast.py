"""The change that a feature makes stands beside that of a random patch."""

from __future__ import annotations

import pyarrow as pa
import pytest
from scipy import stats

from tasks.audits.unique_feature.measures.contrast import changes
from tests.tasks.summary_rows import by_name, with_t


def test_the_features_change_has_the_random_patches_as_its_null_and_a_paired_test() -> None:
    unique, random = [1.0, 2.0, 4.0, 7.0], [0.5, 1.75, 3.0, 6.0]
    p_value = stats.ttest_rel(unique, random, alternative="greater").pvalue
    expected = {
        "feature": [*with_t(unique), "probe image", 2.8125, p_value, None],
        "random patch": [*with_t(random), "probe image", None, None, None],
    }
    found = by_name(changes(pa.table({"unique": pa.array(unique, pa.float32()), "random": random})))
    assert [("change of a probe image", f'{{"by": "{by}"}}') for by in expected] == list(found)
    for numbers, row in zip(expected.values(), found.values(), strict=True):
        assert numbers == pytest.approx(row)
