import numpy as np
import pytest

from bench.forgetting import TINY, by_scipy, confidences, rows
from tasks.audits.forgetting.distance import SCORES, Score, distances, resampled
from tasks.audits.forgetting.ratio import weights


def test_rho_is_measured_beside_its_rival_by_either_score() -> None:
    found = list(rows(tiny=True))
    assert ["published", "one-sided"] == [row.what.split(", ")[1] for row in found]
    assert all(row.ratio > 0 for row in found)


@pytest.mark.parametrize("score", SCORES)
def test_the_rival_takes_the_same_distances(score: Score) -> None:
    query, calibration, _ = confidences(TINY)
    _, at = distances(query, calibration, score)
    drawn = weights(np.arange(TINY.images), 3, np.random.default_rng(0))
    expected = resampled(query, calibration, drawn, at, score)
    np.testing.assert_allclose(by_scipy(query, calibration, 3, score), expected, atol=1e-12)
