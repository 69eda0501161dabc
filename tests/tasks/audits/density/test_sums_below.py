import itertools

import numpy as np
import pytest

from tasks.audits.density.sums_below import BINS, binned_share, half_sums, share_below

TINY = 1e-12  # what stands for the tolerance of equal sums


def every(values: list[np.ndarray], bound: float) -> float:
    """The share of all sums, each made on its own."""
    sums = np.array([sum(each) for each in itertools.product(*values)])
    return float((sums <= bound).mean())


def lists(seed: int, sizes: tuple[int, ...], whole: bool) -> list[np.ndarray]:
    """Values from 0 on: whole numbers, most of which occur several times, or of very unlike sizes."""
    chance = np.random.default_rng(seed)
    return [chance.integers(0, 4, size) / 8 if whole else np.exp(chance.normal(0, 5, size)) for size in sizes]


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("sizes", [(3,), (2, 3), (4, 1, 3), (5, 5, 5, 5), (2,) * 11, (6, 2, 7, 3, 4)])
def test_it_is_the_share_of_all_sums(sizes: tuple[int, ...], whole: bool) -> None:
    for seed in range(8):
        values = lists(seed, sizes, whole)
        chosen = np.random.default_rng(100 + seed)
        for _ in range(4):
            bound = sum(chosen.choice(each) for each in values) * (1 + TINY)  # of sums there are: ties are at most it
            assert every(values, bound) == share_below(values, bound)


def test_the_lowest_and_the_highest_sum_are_the_ends() -> None:
    values = lists(0, (4, 5, 6), whole=False)
    low, high = sum(each.min() for each in values), sum(each.max() for each in values)
    bounds = low / 2, low * (1 + TINY), high * (1 + TINY)
    assert [0.0, 1 / 120, 1.0] == [share_below(values, bound) for bound in bounds]
    assert [1.0, 1.0] == [share_below([], 0.0), share_below([np.zeros(3), np.zeros(4)], 0.0)]


def test_of_ten_to_the_power_of_ten_sums_one_is_found() -> None:
    values = [np.arange(10.0) for _ in range(10)]
    assert [1e-10, 11e-10] == [share_below(values, 0.0), share_below(values, 1.0)]
    # The sum of ten digits is symmetric about 45: what is below and the tie are as many as what is above and the tie.
    below, at_most = share_below(values, 44.0), share_below(values, 45.0)
    assert 1.0 == pytest.approx(below + at_most)
    assert at_most - below == pytest.approx(432457640 / 10**10)  # so many have the sum 45


@pytest.mark.parametrize("whole", [True, False])
def test_where_a_half_has_too_many_sums_the_share_is_none_too_small_and_nearly_exact(whole: bool) -> None:
    for seed in range(20):
        values = lists(seed, (5, 5, 5, 5), whole)
        chosen = np.random.default_rng(100 + seed)
        bound = sum(chosen.choice(each) for each in values) * (1 + TINY)
        slack = bound - sum(each.min() for each in values)
        found = share_below(values, bound, most=4)
        assert every(values, bound) <= found * (1 + TINY) <= every(values, bound + slack * 4 / BINS) * (1 + 2 * TINY)


def test_the_binned_share_is_right_where_values_are_multiples_of_a_bin() -> None:
    values = [np.arange(4.0), np.arange(4.0), np.arange(4.0)]
    assert every(values, 4.0) == pytest.approx(binned_share(values, [4, 4, 4], 4.0, bins=8))
    assert every(values, 0.0) == pytest.approx(binned_share([np.zeros(1)] * 3, [4, 4, 4], 0.0, bins=8))
    # Bins of 2: 1 counts as 0 and 3 as 2.
    assert every([2 * (each // 2) for each in values], 4.0) == pytest.approx(
        binned_share(values, [4, 4, 4], 4.0, bins=2)
    )


def test_half_sums_leave_out_what_is_too_large_and_give_up_above_the_most() -> None:
    lists_of = [np.array([0.0, 3.0]), np.array([0.0, 2.0, 5.0])]
    found = half_sums(lists_of, 5.0, 6)
    assert found is not None
    assert [0.0, 2.0, 3.0, 5.0, 5.0] == sorted(found.tolist())
    assert half_sums(lists_of, 5.0, 5) is None
