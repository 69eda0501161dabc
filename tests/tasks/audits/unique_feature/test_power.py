"""How many probe images are needed follows from the spread of the middle model."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from tasks.audits.unique_feature.power import probe_count_rows, required_probes
from tests.tasks.summary_rows import by_name


def test_the_probe_images_are_those_of_a_one_tailed_test_at_the_median_spread() -> None:
    z = stats.norm.ppf(0.95) + stats.norm.ppf(0.8)
    for spreads in ([0.5, 0.02, 0.1, 0.3, 0.01], [0.1, 0.02, 0.5, 0.01, 0.3]):
        assert {
            ("probe images needed", f'{{"M": {size}, "power": 0.8}}'): [count, None, None, 5, "model", *[None] * 3]
            for size, count in ((0.001, math.ceil((z * 100) ** 2)), (0.01, math.ceil((z * 10) ** 2)), (0.1, 7.0))
        } == by_name(probe_count_rows(spreads, "model"))


def test_without_a_spread_there_is_no_number() -> None:
    found = by_name(probe_count_rows([], "training"))
    assert [[None, None, None, 0, "training", None, None, None]] * 3 == list(found.values())


def test_so_many_probe_images_show_an_m_of_a_size_in_four_tests_of_five() -> None:
    z = stats.norm.ppf(0.95) + stats.norm.ppf(0.8)
    assert 619 == required_probes(1.0, 0.1)
    assert (z / 0.1) ** 2 == pytest.approx(618.3, abs=0.1)
    assert 2 == required_probes(0.001, 1.0)
    rng = np.random.default_rng(1)
    found = [stats.ttest_1samp(rng.normal(0.1, 1.0, 619), 0, alternative="greater").pvalue < 0.05 for _ in range(400)]
    assert 0.74 < sum(found) / 400 < 0.86
