"""What neighbours vote for, how often the most confident are right, and limits that keep a width."""

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


def test_the_most_frequent_label_wins_and_its_share_says_the_confidence() -> None:
    found = votes(np.array([[1, 1, 1, 2], [0, 0, 0, 0], [0, 1, 2, 3]]), 4)
    assert found.predicted.tolist() == [1, 0, 0]
    assert found.confidence == pytest.approx(
        [0.75 * math.log(0.75) + 0.25 * math.log(0.25), 0.0, math.log(0.25)], abs=1e-15
    )


def test_of_equally_frequent_labels_the_lowest_wins_wherever_it_stands() -> None:
    assert votes(np.array([[3, 2, 3, 2], [2, 3, 2, 3], [9, 1, 5, 3]]), 10).predicted.tolist() == [2, 2, 1]


def test_equal_counts_of_other_labels_have_the_same_confidence_bit_for_bit() -> None:
    found = votes(np.array([[0, 1, 1, 7, 7, 7], [7, 0, 7, 0, 0, 3], [3, 3, 3, 1, 1, 2]]), 8)
    assert len(set(found.confidence.tolist())) == 1


def test_equal_counts_are_equally_sure_wherever_they_stand_and_however_many_classes_there_are() -> None:
    rng = np.random.default_rng(1)
    counted = np.repeat([0, 1, 2, 3, 4, 5], [9, 7, 5, 4, 3, 2])
    found = {
        votes(rng.permutation(classes)[:6][counted][None], classes).confidence[0]
        for classes in (6, 10, 1000)
        for _ in range(200)
    }
    assert len(found) == 1


def test_a_single_neighbour_is_certain() -> None:
    found = votes(np.array([[4], [0]]), 5)
    assert (found.predicted.tolist(), found.confidence.tolist()) == ([4, 0], [0.0, 0.0])


def test_counting_in_parts_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = np.random.default_rng(0).integers(7, size=(50, 9))
    whole = votes(labels, 7)
    monkeypatch.setattr(module, "PICTURES", 8)
    parts = votes(labels, 7)
    assert whole.predicted.tolist() == parts.predicted.tolist()
    assert whole.confidence.tolist() == parts.confidence.tolist()


def test_no_neighbours_are_refused() -> None:
    with pytest.raises(ValueError, match="k is 0; a vote needs at least one neighbour"):
        votes(np.empty((3, 0), np.int64), 2)


def inferences(correct: list[int], confidence: list[float]) -> Inferences:
    return Inferences(np.array(correct, bool), np.array(confidence, float))


def test_the_most_confident_percent_are_rounded_down_and_at_least_one() -> None:
    assert [most_confident(10, percent) for percent in (1, 19, 20, 100)] == [1, 1, 2, 10]
    assert [most_confident(100, 29), most_confident(100, 57)] == [29, 57]  # 0.29 * 100 is 28.999...
    for n in (1, 37, 250):
        assert [most_confident(n, percent) for percent in PERCENTAGES] == numbers(n, PERCENTAGES).tolist()


def test_accuracy_counts_the_most_confident_alone() -> None:
    of = inferences([1, 0, 1, 1, 0], [-1.0, -0.1, -0.2, -3.0, -2.0])  # ranked: wrong, right, right, wrong, right
    assert accuracy(of, [20, 40, 60, 80, 100]).tolist() == [0.0, 0.5, 2 / 3, 0.5, 0.6]


def test_of_equally_confident_pictures_the_first_are_taken() -> None:
    assert accuracy(inferences([1, 0, 0, 1], [0, 0, 0, 0]), [25, 50]).tolist() == [1.0, 0.5]
    assert accuracy(inferences([0, 0, 1, 1], [0, 0, 0, 0]), [25, 50]).tolist() == [0.0, 0.0]


def test_each_model_is_scored_on_its_own_most_confident_pictures() -> None:
    way = Way(
        np.zeros(4, np.int64), inferences([1, 1, 0, 0], [-1, -2, -3, -4]), inferences([1, 0, 0, 1], [-4, -1, -2, -3])
    )
    lead = accuracy(way.target, [25, 50, 100]) - accuracy(way.reference, [25, 50, 100])
    assert lead.tolist() == [1.0, 1.0, 0.0]


def test_without_pictures_there_is_no_accuracy() -> None:
    nobody = inferences([], [])
    assert np.isnan(accuracy(nobody, [20, 100])).all()
    drawn = bootstrap_accuracies(Way(np.zeros(0, np.int64), nobody, nobody), [20, 60, 100], 5, np.random.default_rng(0))
    assert (drawn.shape, bool(np.isnan(drawn).all())) == ((5, 2, 3), True)


def test_a_resample_that_takes_each_picture_once_is_the_sample() -> None:
    rng = np.random.default_rng(1)
    of = Inferences(rng.random(37) < 0.4, rng.integers(5, size=37).astype(float))
    percents = list(range(1, 101))
    assert accuracy(of, percents) == pytest.approx(resample_accuracy(of, np.ones(37, int), percents), abs=1e-15)


def test_a_resample_is_scored_as_if_its_copies_were_pictures() -> None:
    rng = np.random.default_rng(2)
    of = Inferences(rng.random(23) < 0.5, rng.random(23))
    for _ in range(20):
        rows = np.sort(rng.integers(23, size=23))
        copies = np.bincount(rows, minlength=23)
        expected = accuracy(Inferences(of.correct[rows], of.confidence[rows]), range(1, 101))
        assert expected == pytest.approx(resample_accuracy(of, copies, range(1, 101)), abs=1e-12)


def test_a_bootstrap_draws_both_models_on_the_same_pictures() -> None:
    rng = np.random.default_rng(3)
    of = Inferences(rng.random(40) < 0.5, rng.random(40))
    found = bootstrap_accuracies(Way(np.zeros(40, np.int64), of, of), [20, 100], 50, np.random.default_rng(0))
    assert found.shape == (50, 2, 2)
    assert (found[:, 0] == found[:, 1]).all()
    assert found[:, 0, 1].std() == pytest.approx(np.sqrt(of.correct.mean() * (1 - of.correct.mean()) / 40), rel=0.3)


def weighted(weight: float, right: int, of: int) -> Weighted:
    return Weighted(weight, np.array([right / of]), np.array([of]))


@pytest.mark.parametrize(("right", "of"), [(0, 8), (1, 1), (3, 40), (40, 40), (57, 100)])
def test_a_single_share_has_wilsons_interval(right: int, of: int) -> None:
    expected = proportion(right, of)
    low, high = (float(end[0]) for end in wilson(np.array([right / of]), np.array([of])))
    assert (pytest.approx(expected.low, abs=1e-12), pytest.approx(expected.high, abs=1e-12)) == (low, high)


def test_limits_of_none_and_of_all_stay_within_0_and_1() -> None:
    counts = np.arange(1, 3000)
    assert wilson(np.zeros(2999), counts)[0].min() == 0.0
    assert wilson(np.ones(2999), counts)[1].max() == 1.0


def test_a_curve_has_every_hundredth_from_the_first_to_all() -> None:
    assert [*range(1, 101)] == [*PERCENTAGES]


def test_a_difference_has_newcombes_interval() -> None:
    # Newcombe 1998, "Interval estimation for the difference between independent proportions", table II, method 10.
    for (first, second), printed in {
        ((56, 70), (48, 80)): (0.0524, 0.3339),
        ((9, 10), (3, 10)): (0.1705, 0.8090),
    }.items():
        low, high = limits([weighted(1, *first), weighted(-1, *second)])
        assert (round(float(low[0]), 4), round(float(high[0]), 4)) == printed


def test_nothing_right_in_few_pictures_leaves_room_for_much() -> None:
    low, high = limits([weighted(sign / 2, 0, 8) for sign in (1, -1, 1, -1)])
    assert -0.35 < low[0] < -0.15
    assert 0.15 < high[0] < 0.35


def test_the_mean_of_two_differences_is_covered() -> None:
    rng, n, shares = np.random.default_rng(0), 20, (0.1, 0.05, 0.3, 0.1)
    truth = (shares[0] - shares[1] + shares[2] - shares[3]) / 2
    parts = [
        Weighted(sign / 2, rng.binomial(n, share, 2000) / n, np.full(2000, n))
        for share, sign in zip(shares, (1, -1, 1, -1), strict=True)
    ]
    low, high = limits(parts)
    assert 0.94 <= np.mean((low <= truth) & (truth <= high)) <= 0.99
