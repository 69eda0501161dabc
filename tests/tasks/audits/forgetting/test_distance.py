import numpy as np
import pytest
from scipy import stats

from tasks.audits.forgetting.distance import POINTS, among, distances, ks, resampled
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
    assert stats.ks_2samp(first, second, method="asymp").statistic == pytest.approx(ks(first, second), abs=1e-15)


def test_a_distance_by_hand_counts_ties_once_all_of_them_are_passed() -> None:
    # At 0.5 the shares at or below are 1/4 and 3/4; at 1 all of both.
    assert 0.5 == ks([0.2, 1, 1, 1], [0.2, 0.5, 0.5, 1])


def test_equal_lists_lie_0_apart_in_any_order_and_disjoint_ones_1() -> None:
    values = np.random.default_rng(0).random(50)
    assert 0.0 == ks(values, values[::-1])
    assert 0.0 == ks(values, np.repeat(values, 3))
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


def test_matrices_hold_the_distances_of_the_pairs_and_where_they_are_reached() -> None:
    query, calibration, _ = models(np.random.default_rng(0), 3, 1, 60)
    found, at = distances(query, calibration)
    assert [[ks(q, c) for c in calibration] for q in query] == found.tolist()
    gap = np.mean(query[1] <= at[1, 2]) - np.mean(calibration[2] <= at[1, 2])
    assert found[1, 2] == pytest.approx(abs(gap))
    assert [[ks(q, p) for p in query] for q in query] == among(query).tolist()


@pytest.mark.parametrize("images", [40, 3000])
def test_resamples_give_the_distances_of_repeated_images(images: int) -> None:
    chance = np.random.default_rng(0)
    query, calibration, _ = models(chance, 2, 1, images)
    weights = chance.integers(0, 4, (images, 3), dtype=np.int32)
    weights[:, 0] = 1
    exact, at = distances(query, calibration)
    found = resampled(query, calibration, iter([weights[:, :2], weights[:, 2:]]), at)
    assert (3, 2, 2) == found.shape
    assert exact == pytest.approx(found[0], abs=1e-15)  # where all count once, however many images
    for number in (1, 2):
        times = weights[:, number]
        expected = [[ks(np.repeat(q, times), np.repeat(c, times)) for c in calibration] for q in query]
        # Few values are all looked at; of many, points between which at most 1 / POINTS of all lie.
        assert found[number] == pytest.approx(np.array(expected), abs=1e-15 if images < 100 else 4 / POINTS)
