import itertools
import math

import numpy as np
import pytest
from scipy import stats

from tasks.audits.density.measures.distribution import Gain
from tests.tasks.audits.density.made_up import noise, partitions

INF, NAN = float("inf"), float("nan")


def chance(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def gained(log_p: np.ndarray, held_out: np.ndarray, size: int = 7) -> Gain:
    """Block by block."""
    gain = Gain(*log_p.shape[1:])
    for start in range(0, len(log_p), size):
        gain.add(log_p[start : start + size], held_out[start : start + size])
    return gain


def test_the_gain_is_the_mean_of_those_that_trained_on_it_less_the_one_that_did_not() -> None:
    log_p = np.array([[[-1.0, -3.0, -8.0], [-2.0, -2.0, -5.0]], [[-4.0, -6.0, -7.0], [-1.0, -1.0, -1.0]]])
    gain = gained(log_p, np.array([[2, 0], [1, 2]]), 1)
    # Repetition 0: -2 + 8 = 6 and -5.5 + 6 = .5; repetition 1: -3.5 + 2 = -1.5 and 0.
    assert [3.25, -0.75] == pytest.approx(gain.by_repetition)
    estimate = gain.estimate
    assert [1.25, 2] == pytest.approx([estimate.value, estimate.n])
    assert 1.25 + stats.t.ppf(0.975, 1) * 2.0 == pytest.approx(estimate.high)
    assert stats.ttest_1samp([3.25, -0.75], 0, alternative="greater").pvalue == pytest.approx(gain.t_test())
    assert 2 == gain.observations


def test_missing_models_stay_out_and_so_do_observations_that_all_hold_impossible() -> None:
    log_p = np.array([[[-1.0, -3.0, NAN], [NAN, NAN, NAN]]] * 3)
    log_p[1, 0, :2] = -INF
    gain = gained(log_p, np.array([[1, 0], [1, 0], [2, 0]]))  # the third was held out by the missing one
    assert [2.0, NAN] == pytest.approx(gain.by_repetition, nan_ok=True)
    assert [2.0, 1, 1] == pytest.approx([gain.estimate.value, gain.estimate.n, gain.observations])
    none = gained(log_p[1:], np.array([[1, 0], [2, 0]]))
    assert (None, 0, None, None, 0) == (
        none.estimate.value,
        none.estimate.n,
        none.p_value(),
        none.t_test(),
        none.observations,
    )


def test_what_a_model_holds_impossible_counts_as_the_lowest_of_the_others() -> None:
    # Of the most memorised those that held it out give -inf: they stay in, with no more than is sure.
    log_p = np.array([[[-1.0, -4.0, -INF], [-2.0, -INF, -2.0]], [[-1.0, -1.0, -1.0], [-1.0, -1.0, -1.0]]])
    out = np.array([[2, 1], [0, 0]])
    gain = gained(log_p, out)
    assert [(-2.5 + 4) / 2, (-2.0 + 4) / 2] == pytest.approx(gain.by_repetition)
    assert 2 == gain.observations
    # It has no part in who trained on it: of all partitions the mean gain is 0.
    every = [gained(log_p[:1], np.array([[a, b]])).by_repetition for a in range(3) for b in range(3)]
    assert [0.0, 0.0] == pytest.approx(np.mean(every, axis=0))


def test_the_p_value_is_of_more_than_is_negligible() -> None:
    log_p, held_out = noise(chance(4), 400, 3, 4, 1.0), partitions(chance(5), 400, 3, 4)
    raised = log_p + np.where(np.arange(4) == held_out[:, :, None], 0.0, 0.25)
    plain, shifted = gained(log_p, held_out), Gain(3, 4, 0.25)
    shifted.add(raised, held_out)
    assert plain.by_repetition + 0.25 == pytest.approx(shifted.by_repetition)
    assert plain.p_value() == pytest.approx(shifted.p_value())
    assert plain.t_test() == pytest.approx(shifted.t_test())
    assert (gained(raised, held_out).p_value() or 1.0) < 1e-6


@pytest.mark.parametrize("sizes", [(3, 3), (2, 4), (2, 2, 2), (3, 2, 1)])
def test_its_variance_is_that_over_all_partitions(sizes: tuple[int, ...]) -> None:
    log_p = noise(chance(2), 6, 1, len(sizes), 3.0, 2.0)
    partition = np.repeat(np.arange(len(sizes)), sizes)
    every = [
        gained(log_p, np.array(each)[:, None]).by_repetition[0]
        for each in set(itertools.permutations(partition.tolist()))
    ]
    gain = gained(log_p, partition[:, None])
    mean, variance = gain.moments(0, len(sizes) / (len(sizes) - 1))
    assert [np.mean(every), np.var(every)] == pytest.approx([mean, variance])
    z = (gain.by_repetition[0] - np.mean(every)) / np.std(every)
    assert stats.norm.sf(z) == pytest.approx(gain.p_value())


def test_its_p_value_is_the_share_of_redrawn_partitions_that_gain_as_much() -> None:
    log_p, held_out = noise(chance(), 120, 2, 4, 3.0, 2.0), partitions(chance(1), 120, 2, 4)
    log_p += np.where(np.arange(4) == held_out[:, :, None], -0.3, 0.0)
    log_p[:, 1, 3] = NAN
    observed = gained(log_p, held_out)
    # Of those that the missing model held out nothing is known, and they stay with it.
    known = held_out[:, 1] != 3
    drawn = []
    for seed in range(2000):
        other = held_out.copy()
        other[:, 0] = chance(seed).permutation(held_out[:, 0])
        other[known, 1] = chance(seed + 10_000).permutation(held_out[known, 1])
        drawn.append(gained(log_p, other, 120).by_repetition.mean())
    share = np.mean(np.array(drawn) >= observed.by_repetition.mean())
    assert 0.01 < share < 0.5
    assert share == pytest.approx(observed.p_value(), abs=4 * math.sqrt(share / 2000) + 0.01)


def test_leave_one_out_has_no_other_partition() -> None:
    log_p = noise(chance(), 20, 4, 2, 3.0)
    log_p[3, 2, 1] = NAN
    gain = gained(log_p, np.ones((20, 4), int))
    assert gain.p_value() is None
    assert np.nanmean(log_p[:, 2, 0][np.arange(20) != 3] - np.delete(log_p[:, 2, 1], 3)) == pytest.approx(
        gain.by_repetition[2]
    )
