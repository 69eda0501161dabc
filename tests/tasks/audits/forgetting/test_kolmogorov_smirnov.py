import numpy as np
import pytest
from scipy import stats

from tasks.audits.forgetting.kolmogorov_smirnov import SCORES, Score, distances, ks, pairwise_distances
from tests.tasks.audits.forgetting.made_up import models


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", ["continuous", "tied", "saturated"])
def test_the_distance_is_that_of_the_two_sample_test(kind: str, seed: int) -> None:
    chance = np.random.default_rng(seed)
    first, second = chance.random(101), chance.random(67) ** 1.5
    if kind == "tied":
        first, second = first.round(1), second.round(1)
    if kind == "saturated":
        first[:60], second[:20] = 1.0, 1.0
    theirs = {
        alternative: stats.ks_2samp(first, second, alternative, method="asymp").statistic
        for alternative in ("two-sided", "less", "greater")
    }
    assert theirs["two-sided"] == pytest.approx(ks(first, second), abs=1e-15)
    assert theirs["less"] == pytest.approx(ks(first, second, "one-sided"), abs=1e-15)
    assert theirs["greater"] == pytest.approx(ks(second, first, "one-sided"), abs=1e-15)
    assert ks(first, second) == max(ks(first, second, "one-sided"), ks(second, first, "one-sided"))


def test_a_distance_by_hand_counts_ties_once_all_of_them_are_passed() -> None:
    # At 0.5 the shares at or below are 1/4 and 3/4; at 1 all of both.
    assert 0.5 == ks([0.2, 1, 1, 1], [0.2, 0.5, 0.5, 1])


def test_one_sided_only_what_lies_below_the_first_list_counts() -> None:
    low, high = [0.1, 0.2, 0.3, 0.9], [0.4, 0.5, 0.6, 0.8]
    assert 0.75 == ks(high, low, "one-sided")  # at 0.3 the shares at or below are 0 and 3/4
    assert 0.25 == ks(low, high, "one-sided")  # at 0.8 they are 3/4 and 1
    assert 0.75 == ks(high, low) == ks(low, high)
    assert (0.0, 1.0) == (ks([0.1, 0.2], [0.3, 0.4], "one-sided"), ks([0.3, 0.4], [0.1, 0.2], "one-sided"))


def test_equal_lists_lie_0_apart_in_any_order_and_disjoint_ones_1() -> None:
    values = np.random.default_rng(0).random(50)
    assert 0.0 == ks(values, values[::-1])
    assert 0.0 == ks(values, np.repeat(values, 3)) == ks(values, values, "one-sided")
    assert 1.0 == ks(values, values + 1)


def test_each_function_at_its_own_sorted_values_would_give_0_always() -> None:
    chance = np.random.default_rng(0)
    first, second = chance.random(40), chance.random(40) / 10
    literal = [np.searchsorted(np.sort(each), np.sort(each), "right") for each in (first, second)]
    assert literal[0].tolist() == literal[1].tolist()
    assert 0.8 < ks(first, second)


def test_lists_that_no_distance_is_known_of_are_refused() -> None:
    with pytest.raises(ValueError, match="a list of confidences is empty"):
        ks([], [1.0])
    with pytest.raises(ValueError, match="2 of 3 confidences are not numbers"):
        ks([0.5], [np.nan, 0.1, np.nan])


@pytest.mark.parametrize("score", SCORES)
def test_matrices_hold_the_distances_of_the_pairs_and_where_they_are_reached(score: Score) -> None:
    query, calibration, _ = models(np.random.default_rng(0), 3, 1, 60)
    found, at = distances(query, calibration, score)
    assert [[ks(q, c, score) for c in calibration] for q in query] == found.tolist()
    gap = np.mean(calibration[2] <= at[1, 2]) - np.mean(query[1] <= at[1, 2])
    assert found[1, 2] == pytest.approx(gap)
    assert [[ks(q, p, score) for p in query] for q in query] == pairwise_distances(query, score).tolist()


def test_the_published_distances_among_models_are_the_larger_of_the_one_sided_ones_in_either_order() -> None:
    query, _, _ = models(np.random.default_rng(0), 4, 1, 60)
    below = pairwise_distances(query, "one-sided")
    assert np.maximum(below, below.T).tolist() == pairwise_distances(query, "published").tolist()
    assert [0.0] * 4 == np.diag(below).tolist()
    assert (below != below.T).any()
