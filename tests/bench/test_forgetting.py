import numpy as np
import pytest

from bench.forgetting import TINY, by_scipy, confidences, rows
from tasks.audits.forgetting.rho import SCORES, Score, distances


@pytest.mark.parametrize("score", SCORES)
def test_rho_is_measured_beside_its_rival(score: Score) -> None:
    (found,) = rows(tiny=True, score=score)
    assert f"{score} rho with its interval, 3 x 2 models, 50 images" in found.what
    assert found.ratio > 0


@pytest.mark.parametrize("score", SCORES)
def test_the_rival_takes_the_same_distances(score: Score) -> None:
    query, calibration, _ = confidences(TINY)
    expected, _ = distances(query, calibration, score)
    np.testing.assert_allclose(by_scipy(query, calibration, score), expected, atol=1e-12)
