"""The published score of models that were asked alone."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from tasks.audits.unique_feature.measures.single_divergences import published_score_rows
from tests.tasks.summary_rows import by_name, with_t, with_wilson


def test_m_of_given_models_has_a_t_interval_and_a_share_that_the_published_test_calls_memorised() -> None:
    u = [[1.0, 1.5, 2.0, 1.5], [0.1, 0.2, 0.4, 0.1], [0.3, 0.2, 0.1, 0.2]]
    r = [[0.0, 0.1, 0.2, 0.1], [0.1, 0.3, 0.1, 0.2], [0.3, 0.4, 0.2, 0.3]]
    found = by_name(published_score_rows([pa.table({"d_u": a, "d_r": b}) for a, b in zip(u, r, strict=True)]))
    scores = [float(np.mean(np.subtract(a, b))) for a, b in zip(u, r, strict=True)]
    assert [*with_t(scores), "model", None, None, None] == pytest.approx(found["M", '{"model": "given"}'])
    p = [stats.ttest_ind(a, b, equal_var=False, alternative="greater").pvalue for a, b in zip(u, r, strict=True)]
    assert [True, False, False] == [each < 0.05 for each in p]
    rate = found["rate called memorised", '{"model": "given", "test": "welch"}']
    assert [*with_wilson(1, 3), "model", None, None, None] == pytest.approx(rate)
    spread = sorted(float(np.std(np.subtract(a, b), ddof=1)) for a, b in zip(u, r, strict=True))[1]
    count = math.ceil(((stats.norm.ppf(0.95) + stats.norm.ppf(0.8)) * spread / 0.01) ** 2)
    row = found["probe images needed", '{"M": 0.01, "power": 0.8}']
    assert [count, None, None, 3, "model", None, None, None] == row


def test_a_single_probe_image_has_an_m_and_neither_a_test_nor_a_spread() -> None:
    found = by_name(published_score_rows([pa.table({"d_u": [0.5], "d_r": [0.25]})]))
    assert [0.25, None, None, 1, "model", None, None, None] == found["M", '{"model": "given"}']
    assert [0.0, 1] == [found["rate called memorised", '{"model": "given", "test": "welch"}'][at] for at in (0, 3)]
    assert 2 == len(found)
