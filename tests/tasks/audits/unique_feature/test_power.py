"""How many probe images are needed follows from the spread of the middle model."""

from __future__ import annotations

import math

from scipy import stats

from tasks.audits.unique_feature.power import needed
from tests.tasks.summary_rows import by_name


def test_the_probe_images_are_those_of_a_one_tailed_test_at_the_median_spread() -> None:
    z = stats.norm.ppf(0.95) + stats.norm.ppf(0.8)
    for spreads in ([0.5, 0.02, 0.1, 0.3, 0.01], [0.1, 0.02, 0.5, 0.01, 0.3]):
        assert {
            ("probe images needed", f'{{"M": {size}, "power": 0.8}}'): [count, None, None, 5, "model", *[None] * 3]
            for size, count in ((0.001, math.ceil((z * 100) ** 2)), (0.01, math.ceil((z * 10) ** 2)), (0.1, 7.0))
        } == by_name(needed(spreads, "model"))


def test_without_a_spread_there_is_no_number() -> None:
    found = by_name(needed([], "training"))
    assert [[None, None, None, 0, "training", None, None, None]] * 3 == list(found.values())
