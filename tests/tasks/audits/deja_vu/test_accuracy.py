"""Votes of neighbours, accuracy of the most confident images, and confidence limits that keep their width."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tasks.audits.deja_vu import accuracy as module
from tasks.audits.deja_vu.accuracy import (
    PERCENTAGES,
    Inferences,
    Way,
    Weighted,
    accuracy,
    bootstrap_accuracies,
    limits,
    most_confident,
    numbers,
    resample_accuracy,
    votes,
    wilson,
)
from tasks.numerics.statistics import proportion


def test_majority_label_wins_and_sets_confidence() -> None:
    result = votes(np.array([[1, 1, 1, 2], [0, 0, 0, 0], [0, 1, 2, 3]]), 4)
    assert result.predicted.tolist() == [1, 0, 0]
    assert result.confidence == pytest.approx(
        [0.75 * math.log(0.75) + 0.25 * math.log(0.25), 0.0, math.log(0.25)], abs=1e-15
    )


def test_lowest_of_equally_frequent_labels_wins() -> None:
    assert votes(np.array([[3, 2, 3, 2], [2, 3, 2, 3], [9, 1, 5, 3]]), 10).predicted.tolist() == [2, 2, 1]


def test_equal_vote_counts_have_equal_confidence() -> None:
    result = votes(np.array([[0, 1, 1, 7, 7, 7], [7, 0, 7, 0, 0, 3], [3, 3, 3, 1, 1, 2]]), 8)
    assert len(set(result.confidence.tolist())) == 1


def test_confidence_ignores_label_order_and_class_count() -> None:
    rng = np.random.default_rng(1)
    vote_positions = np.repeat([0, 1, 2, 3, 4, 5], [9, 7, 5, 4, 3, 2])
    confidences = set()
    for classes in (6, 10, 1000):
        for _ in range(200):
            confidences.add(votes(rng.permutation(classes)[:6][vote_positions][None], classes).confidence[0])
    assert len(confidences) == 1


def test_a_single_neighbour_is_certain() -> None:
    result = votes(np.array([[4], [0]]), 5)
    assert result.predicted.tolist() == [4, 0]
    assert result.confidence.tolist() == [0.0, 0.0]


def test_counting_in_parts_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = np.random.default_rng(0).integers(7, size=(50, 9))
    result = votes(labels, 7)
    monkeypatch.setattr(module, "PICTURES", 8)
    parts = votes(labels, 7)
    assert result.predicted.tolist() == parts.predicted.tolist()
    assert result.confidence.tolist() == parts.confidence.tolist()


def test_no_neighbours_are_refused() -> None:
    with pytest.raises(ValueError, match="k is 0; a vote needs at least one neighbour"):
        votes(np.empty((3, 0), np.int64), 2)


def inferences(correct: list[int], confidence: list[float]) -> Inferences:
    return Inferences(np.array(correct, bool), np.array(confidence, float))


def test_confident_count_is_rounded_down_but_positive() -> None:
    assert most_confident(10, 1) == 1
    assert most_confident(10, 19) == 1
    assert most_confident(10, 20) == 2
    assert most_confident(10, 100) == 10
    # 0.29 * 100 is 28.999...
    assert most_confident(100, 29) == 29
    assert most_confident(100, 57) == 57
    for n in (1, 37, 250):
        assert [most_confident(n, percent) for percent in PERCENTAGES] == numbers(n, PERCENTAGES).tolist()


def test_accuracy_counts_only_the_most_confident() -> None:
    outcome = inferences(
        [1, 0, 1, 1, 0], [-1.0, -0.1, -0.2, -3.0, -2.0]
    )  # by confidence: wrong, right, right, wrong, right
    assert accuracy(outcome, [20, 40, 60, 80, 100]).tolist() == [0.0, 0.5, 2 / 3, 0.5, 0.6]


def test_first_of_equally_confident_images_count() -> None:
    assert accuracy(inferences([1, 0, 0, 1], [0, 0, 0, 0]), [25, 50]).tolist() == [1.0, 0.5]
    assert accuracy(inferences([0, 0, 1, 1], [0, 0, 0, 0]), [25, 50]).tolist() == [0.0, 0.0]


def test_models_are_scored_on_their_most_confident_images() -> None:
    way = Way(
        np.zeros(4, np.int64), inferences([1, 1, 0, 0], [-1, -2, -3, -4]), inferences([1, 0, 0, 1], [-4, -1, -2, -3])
    )
    lead = accuracy(way.target, [25, 50, 100]) - accuracy(way.reference, [25, 50, 100])
    assert lead.tolist() == [1.0, 1.0, 0.0]


def test_accuracy_of_no_images_is_undefined() -> None:
    no_images = inferences([], [])
    assert np.isnan(accuracy(no_images, [20, 100])).all()
    resampled = bootstrap_accuracies(
        Way(np.zeros(0, np.int64), no_images, no_images), [20, 60, 100], 5, np.random.default_rng(0)
    )
    assert (resampled.shape, bool(np.isnan(resampled).all())) == ((5, 2, 3), True)


def test_resample_without_repeats_equals_the_sample() -> None:
    rng = np.random.default_rng(1)
    outcome = Inferences(rng.random(37) < 0.4, rng.integers(5, size=37).astype(float))
    percents = list(range(1, 101))
    assert accuracy(outcome, percents) == pytest.approx(
        resample_accuracy(outcome, np.ones(37, int), percents), abs=1e-15
    )


def test_copies_in_a_resample_count_as_images() -> None:
    rng = np.random.default_rng(2)
    outcome = Inferences(rng.random(23) < 0.5, rng.random(23))
    for _ in range(20):
        rows = np.sort(rng.integers(23, size=23))
        copies = np.bincount(rows, minlength=23)
        expected = accuracy(Inferences(outcome.correct[rows], outcome.confidence[rows]), range(1, 101))
        assert expected == pytest.approx(resample_accuracy(outcome, copies, range(1, 101)), abs=1e-12)


def test_bootstrap_draws_the_same_images_for_both_models(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    outcome = Inferences(rng.random(40) < 0.5, rng.random(40))
    resampled = bootstrap_accuracies(
        Way(np.zeros(40, np.int64), outcome, outcome), [20, 100], 50, np.random.default_rng(0)
    )
    assert resampled.shape == (50, 2, 2)
    assert (resampled[:, 0] == resampled[:, 1]).all()
    assert resampled[:, 0, 1].std() == pytest.approx(
        np.sqrt(outcome.correct.mean() * (1 - outcome.correct.mean()) / 40), rel=0.3
    )
    for draws in (3 * 40, 1):  # three resamples at one time, or one
        monkeypatch.setattr(module, "DRAWS", draws)
        way = Way(np.zeros(40, np.int64), outcome, outcome)
        assert np.array_equal(bootstrap_accuracies(way, [20, 100], 50, np.random.default_rng(0)), resampled)


def weighted_share(weight: float, right: int, total: int) -> Weighted:
    return Weighted(weight, np.array([right / total]), np.array([total]))


@pytest.mark.parametrize(("right", "total"), [(0, 8), (1, 1), (3, 40), (40, 40), (57, 100)])
def test_a_single_share_has_wilsons_interval(right: int, total: int) -> None:
    expected = proportion(right, total)
    low, high = (float(end[0]) for end in wilson(np.array([right / total]), np.array([total])))
    assert low == pytest.approx(expected.low, abs=1e-12)
    assert high == pytest.approx(expected.high, abs=1e-12)


def test_limits_stay_within_0_and_1() -> None:
    counts = np.arange(1, 3000)
    assert wilson(np.zeros(2999), counts)[0].min() == 0.0
    assert wilson(np.ones(2999), counts)[1].max() == 1.0


def test_curve_has_every_percentage() -> None:
    assert [*range(1, 101)] == [*PERCENTAGES]


def test_a_difference_has_newcombes_interval() -> None:
    # Newcombe 1998, "Interval estimation for the difference between independent proportions", table II, method 10.
    for (first, second), printed in {
        ((56, 70), (48, 80)): (0.0524, 0.3339),
        ((9, 10), (3, 10)): (0.1705, 0.8090),
    }.items():
        low, high = limits([weighted_share(1, *first), weighted_share(-1, *second)])
        assert (round(float(low[0]), 4), round(float(high[0]), 4)) == printed


def test_limits_of_few_wrong_images_are_wide() -> None:
    low, high = limits([weighted_share(sign / 2, 0, 8) for sign in (1, -1, 1, -1)])
    assert -0.35 < low[0] < -0.15
    assert 0.15 < high[0] < 0.35


def test_the_mean_of_two_differences_is_covered() -> None:
    rng = np.random.default_rng(0)
    n = 20
    shares = (0.1, 0.05, 0.3, 0.1)
    truth = (shares[0] - shares[1] + shares[2] - shares[3]) / 2
    parts = []
    for share, sign in zip(shares, (1, -1, 1, -1), strict=True):
        parts.append(Weighted(sign / 2, rng.binomial(n, share, 2000) / n, np.full(2000, n)))
    low, high = limits(parts)
    assert 0.94 <= np.mean((low <= truth) & (truth <= high)) <= 0.99
