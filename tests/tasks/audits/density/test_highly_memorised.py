"""Who is highly memorised, and how many of them lie where log p is not unusual."""

from __future__ import annotations

import numpy as np

from tasks.audits.density.highly_memorised import highly_memorised, within_central
from tasks.statistics import proportion
from tests.tasks.audits.density.made_up_scores import scores


def test_the_highly_memorised_are_those_above_numpys_quantile() -> None:
    for n in (1, 2, 19, 20, 21, 100, 101, 12345):
        m = np.random.default_rng(n).normal(size=n)
        assert (m > np.quantile(m, 0.95)).tolist() == highly_memorised(m).tolist()
    assert 5 == highly_memorised(np.arange(100.0)).sum()
    assert 0 == highly_memorised(np.zeros(100)).sum()


def test_the_share_within_the_central_90_percent_is_counted_among_the_highly_memorised() -> None:
    u = [float(value) for value in range(1000)]
    m = [0.0] * 1000
    for row in (*range(20), *range(500, 530)):  # 20 of the 50 are below the 5 % quantile of U
        m[row] = 1.0
    assert proportion(30, 50) == within_central(scores(u, m))
    everywhere = np.random.default_rng(0).permutation(1000).astype(float).tolist()
    low, high = within_central(scores(u, everywhere)).low, within_central(scores(u, everywhere)).high
    assert low is not None
    assert high is not None
    assert low <= 0.9 <= high


def test_a_score_that_has_nothing_to_do_with_log_p_has_its_null_inside_the_interval() -> None:
    rng = np.random.default_rng(3)
    found = [within_central(scores(rng.normal(size=400), rng.normal(size=400))) for _ in range(200)]
    inside = [each.low <= 0.9 <= each.high for each in found if each.low is not None and each.high is not None]
    assert sum(inside) >= 180
