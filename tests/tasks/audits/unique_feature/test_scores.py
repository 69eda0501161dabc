"""Scores of a model's outputs, and the probe images that they need."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from tasks.audits.unique_feature.scores import (
    average,
    black_box_score,
    divergence,
    log_odds,
    log_probabilities,
    probe_count_rows,
    required_probes,
    white_box_score,
)
from tests.tasks.summary_rows import by_name


def test_log_probabilities_are_the_log_softmax() -> None:
    # Logits log 1, log 3 and log 6: probabilities .1, .3 and .6.
    expected = [[math.log(0.1), math.log(0.3), math.log(0.6)]]
    assert log_probabilities(np.log([[1.0, 3.0, 6.0]])) == pytest.approx(np.array(expected))


def test_log_probabilities_stay_finite_under_underflow() -> None:
    # exp(-2000) is 0 in float64, so the log of the softmax would be -inf.
    logged = log_probabilities(np.array([[0.0, 2000.0], [-1e30, 1e30]], np.float32))
    assert logged[:1].tolist() == [[-2000.0, 0.0]]
    assert np.isfinite(logged).all()
    assert logged.dtype == np.float64


def test_outputs_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ValueError, match="outputs are not finite"):
        log_probabilities([[0.0, math.nan]])


def test_divergence_has_the_clean_distribution_first() -> None:
    # KL((1/2, 1/2) || (1/4, 3/4)) = 1/2 log 2 + 1/2 log 2/3; in the other order, it is 1/4 log 1/2 + 3/4 log 3/2.
    clean = np.log([[0.5, 0.5], [0.25, 0.75]])
    changed = np.log([[0.25, 0.75], [0.5, 0.5]])
    forward = 0.5 * math.log(2) + 0.5 * math.log(2 / 3)
    backward = 0.25 * math.log(1 / 2) + 0.75 * math.log(3 / 2)
    assert [forward, backward] == pytest.approx(divergence(clean, changed).tolist())


def test_equal_predictions_do_not_diverge() -> None:
    predictions = log_probabilities(np.random.default_rng(0).normal(size=(5, 10)))
    assert divergence(predictions, predictions).tolist() == [0.0] * 5


def test_divergence_without_class_probability_is_finite() -> None:
    clean = log_probabilities([[0.0, 0.0]])
    changed = log_probabilities([[0.0, -3000.0]])
    # 1/2 log(1/2 / 1) + 1/2 (log 1/2 + 3000)
    assert divergence(clean, changed).tolist() == pytest.approx([1500 - math.log(2)])


def test_m_is_a_difference_of_average_divergences() -> None:
    assert black_box_score([0.5, 1.5], [0.25, 0.25]) == pytest.approx(0.75)
    assert black_box_score([0.25, 0.25], [0.5, 1.5]) == pytest.approx(-0.75)


def test_m_w_is_the_average_label_log_ratio() -> None:
    # log(.5 / .25) and log(.8 / .4) are both log 2.
    assert white_box_score(np.log([0.5, 0.8]), np.log([0.25, 0.4])) == pytest.approx(math.log(2))


def test_no_images_give_no_score() -> None:
    assert black_box_score([], []) is None
    assert white_box_score([], []) is None
    assert average(np.array([])) is None


def test_float32_divergences_are_averaged_in_float64() -> None:
    d_u = np.full(1_000_000, 0.1, np.float32)
    assert black_box_score(d_u, np.zeros_like(d_u)) == pytest.approx(float(np.float32(0.1)), rel=1e-12)


def test_log_odds_are_accurate_near_certainty() -> None:
    log_p = np.log([[0.5, 0.2, 0.3]])
    assert log_odds(log_p)[0] == pytest.approx([0.0, np.log(0.2 / 0.8), np.log(0.3 / 0.7)])
    certain = log_odds(np.array([[-1e-12, 0.0]]))[0]
    assert 12 * np.log(10) == pytest.approx(certain[0])
    assert np.isfinite(certain).all()


def test_probe_images_needed_use_the_median_spread() -> None:
    z = stats.norm.ppf(0.95) + stats.norm.ppf(0.8)
    for spreads in ([0.5, 0.02, 0.1, 0.3, 0.01], [0.1, 0.02, 0.5, 0.01, 0.3]):
        assert {
            ("probe images needed", f'{{"M": {size}, "power": 0.8}}'): [count, None, None, 5, "model", *[None] * 3]
            for size, count in ((0.001, math.ceil((z * 100) ** 2)), (0.01, math.ceil((z * 10) ** 2)), (0.1, 7.0))
        } == by_name(probe_count_rows(spreads, "model"))


def test_no_spread_gives_no_number() -> None:
    probe_rows = by_name(probe_count_rows([], "training"))
    assert list(probe_rows.values()) == [[None, None, None, 0, "training", None, None, None]] * 3


def test_required_probes_have_eighty_percent_power() -> None:
    z = stats.norm.ppf(0.95) + stats.norm.ppf(0.8)
    assert required_probes(1.0, 0.1) == 619
    assert (z / 0.1) ** 2 == pytest.approx(618.3, abs=0.1)
    assert required_probes(0.001, 1.0) == 2
    rng = np.random.default_rng(1)
    detections = []
    for _ in range(400):
        detections.append(stats.ttest_1samp(rng.normal(0.1, 1.0, 619), 0, alternative="greater").pvalue < 0.05)
    assert 0.74 < sum(detections) / 400 < 0.86
