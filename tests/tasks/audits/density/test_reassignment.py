from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.special import logsumexp

from tasks.audits.density.memorization import terms
from tasks.audits.density.reassignment import (
    BINS,
    FEW,
    TOLERANCE,
    binned_share,
    half_sums,
    least_found,
    p_values,
    reassign_models,
    share_below,
    smallest_p_value,
)
from tasks.numerics.ranks import false_discovery_control
from tests.support.calibration import assert_rate, bounds
from tests.tasks.audits.density.made_up import noise, partitions

INF, NAN = float("inf"), float("nan")


def chance(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def manual_gradient(log_p: np.ndarray, held_out: np.ndarray) -> float:
    """The share of all assignments with a score at least as high, each scored on its own, for one observation."""
    there = [np.flatnonzero(~np.isnan(models)) for models in log_p]
    choices = [models if fold in models else [fold] for models, fold in zip(there, held_out, strict=True)]
    score = terms(log_p[None], held_out[None]).score[0]
    others = [terms(log_p[None], np.array([each])).score[0] for each in itertools.product(*choices)]
    return float(np.mean([other >= score - 1e-6 for other in others]))


def test_a_p_value_is_the_share_of_assignments_that_score_as_high() -> None:
    # V = log mean of the chosen: of {1, 2} x {3, 5} the sums are 4, 6, 5, 7. Held out by 2 and 3: two are no more.
    log_p = np.log([[[1.0, 2.0], [3.0, 5.0]]])
    assert p_values(log_p, np.array([[1, 0]]), 99, chance()).tolist() == [2 / 4]
    assert p_values(log_p, np.array([[0, 0]]), 99, chance()).tolist() == [1 / 4]
    assert p_values(log_p, np.array([[1, 1]]), 99, chance()).tolist() == [4 / 4]


def test_p_values_agree_with_every_assignment_scored_on_its_own() -> None:
    log_p, held_out = noise(chance(), 40, 3, 3, 4.0, 2.0), partitions(chance(1), 40, 3, 3)
    log_p[20:, 1, 2] = NAN  # a missing model, for some of which it was the one that held them out
    log_p[30:, 2, :2] = NAN
    log_p[35:, 0] = NAN
    log_p[10:15, 0, 0] = -INF
    found = p_values(log_p, held_out, 99, chance())
    defined = ~np.isnan(terms(log_p, held_out).score)
    assert (defined == ~np.isnan(found)).all()
    expected = [manual_gradient(log_p[row], held_out[row]) for row in np.flatnonzero(defined)]
    assert expected == pytest.approx(found[defined])
    assert len(set(map(tuple, held_out[20:30]))) > 3


@pytest.mark.parametrize("sd", [100.0, 1000.0])
def test_models_a_thousand_nats_apart_leave_the_p_values_exact(sd: float) -> None:
    # exp of 709 nats and more is no number any more; times 0 it must not make a draw disappear.
    log_p, held_out = noise(chance(3), 60, 3, 4, sd), partitions(chance(1), 60, 3, 4)
    log_p[40:, 1, 2] = NAN
    log_p[30:50, 0, 0] = -INF
    found = p_values(log_p, held_out, 99, chance())
    defined = np.flatnonzero(~np.isnan(terms(log_p, held_out).score))
    expected = []
    for row in defined:
        models = [np.flatnonzero(~np.isnan(each)) for each in log_p[row]]
        kept = [each if fold in each else [fold] for each, fold in zip(models, held_out[row], strict=True)]
        sums = [log_sum(log_p[row], each) for each in itertools.product(*kept)]
        expected.append(np.mean(np.array(sums) <= log_sum(log_p[row], held_out[row]) + TOLERANCE))
    assert expected == pytest.approx(found[defined])
    assert found[defined].min() < 0.1


def log_sum(log_p: np.ndarray, chosen: Sequence[int]) -> float:
    said = log_p[np.arange(len(log_p)), list(chosen)]
    return float(logsumexp(said[~np.isnan(said)]))


def test_the_lowest_of_models_a_thousand_nats_apart_is_one_of_as_many_as_there_are() -> None:
    log_p = np.array([[[-2000.0, 0.0, -1000.0]]])
    found = [p_values(log_p, np.array([[fold]]), 99, chance())[0] for fold in range(3)]
    assert found == [1 / 3, 3 / 3, 2 / 3]


def test_sums_that_are_equal_but_for_rounding_are_ties() -> None:
    # Held out by .1 and .2, or by .3 and next to nothing: .3 either way, and 0.1 + 0.2 > 0.3 to a machine.
    log_p = np.log([[0.1, 0.3], [0.2, 1e-300]]) + chance().uniform(-100, 0, (300, 1, 1))
    for fold in (0, 1):
        assert {3 / 4} == set(p_values(log_p, np.full((300, 2), fold), 99, chance()).tolist())


def test_a_repetition_that_held_nothing_out_says_nothing_in_any_draw() -> None:
    # The one model left of the second repetition trained on it: whichever it is drawn to be, S is the first's alone.
    log_p = np.array([[[-1.0, -2.0, -3.0], [NAN, -9.0, 50.0]]])
    found = [p_values(log_p, np.array([[fold, 0]]), 99, chance())[0] for fold in range(3)]
    assert pytest.approx(found) == [3 / 3, 2 / 3, 1 / 3]


def test_drawn_assignments_give_what_all_of_them_give() -> None:
    log_p, held_out = noise(chance(), 300, 4, 5, 4.0, 2.0), partitions(chance(1), 300, 4, 5)
    exact = p_values(log_p, held_out, 5**4 - 1, chance())
    drawn = p_values(log_p, held_out, 5**4 - 2, chance())
    assert (exact * 5**4).round(9).tolist() == (exact * 5**4).round().tolist()
    many_reach = drawn > (1 + FEW) / (5**4 - 1)
    assert set((drawn[many_reach] * (5**4 - 1)).round(9) % 1) == {0.0}
    assert (exact != drawn)[many_reach].any()
    assert (drawn == exact)[~many_reach].all()
    many = np.mean([p_values(log_p, held_out, 600, chance(seed)) for seed in range(20)], axis=0)
    error = np.sqrt(exact * (1 - exact) / 12_000) + 1e-3
    assert (np.abs(many - exact) < 4.5 * error).all()


def test_impossible_to_all_that_held_it_out_is_as_high_as_a_score_can_be() -> None:
    log_p = np.array([[[-INF, -1.0, -2.0], [-INF, -3.0, -900.0]]])
    assert pytest.approx(p_values(log_p, np.array([[0, 0]]), 99, chance())) == [1 / 9]
    assert pytest.approx(p_values(np.array([[[-INF, 0.0], [-INF, 0.0]]]), np.array([[1, 1]]), 99, chance())) == [9 / 9]
    undefined = p_values(np.full((1, 2, 3), -INF), np.array([[0, 0]]), 99, chance())
    assert pytest.approx(undefined, nan_ok=True) == [NAN]


def test_what_is_impossible_to_some_leaves_the_p_values_of_others_in_its_block() -> None:
    log_p = np.array([[[-INF, -1.0, -2.0], [-INF, -3.0, -900.0]], [[-5.0, -1.0, -2.0], [-4.0, -1.0, -2.0]]])
    assert pytest.approx(p_values(log_p, np.zeros((2, 2), int), 99, chance())) == [1 / 9, 1 / 9]


@pytest.mark.parametrize("permutations", [6, 7, 8, 9])
def test_all_nine_assignments_are_looked_at_or_so_many_are_drawn(permutations: int) -> None:
    equal, alone = np.zeros((1, 2, 3)), np.array([[[-9.0, 0.0, 0.0], [-9.0, 0.0, 0.0]]])
    assert p_values(equal, np.zeros((1, 2), int), permutations, chance()).tolist() == [1.0]
    found = p_values(alone, np.zeros((1, 2), int), permutations, chance(1))[0]
    assert found == pytest.approx(1 / 9)  # few draws reach it, so that it is exact either way
    drawn = {p_values(equal, np.zeros((1, 2), int), 50, chance(seed))[0] for seed in range(20)}
    assert {1.0} == drawn


def test_lists_are_halved_so_that_as_many_sums_as_can_be_are_exact() -> None:
    # Two of them are just above the bound, and at it once rounded down: 8 sums at once would be too many to be exact.
    two, four = np.array([0.0, 0.5 + 1e-9]), np.array([0.0, *[0.5 + 1e-9] * 3])
    assert share_below([two] * 4, 1.0, max_sums=4) == 5 / 16
    assert share_below([two, two, four], 1.0, max_sums=4) == 6 / 16
    assert share_below([two] * 4, 1.0, max_sums=2) == 11 / 16
    assert share_below([two] * 4 + [np.ones(9)] * 3, 4.0, max_sums=4) == 5 / 16  # equal values take no sums from others


def test_equal_answers_are_no_evidence() -> None:
    assert p_values(np.full((2, 10, 10), -1234.5), np.zeros((2, 10), int), 99, chance()).tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("repetitions", "folds", "permutations", "expected"),
    [(10, 10, 9999, 1e-10), (3, 10, 9999, 1e-3), (4, 10, 9999, 1e-4), (10, 2, 9999, 1 / 1024), (1, 4, 1, 1 / 4)],
)
def test_the_smallest_p_value_is_that_of_the_highest_score(
    repetitions: int, folds: int, permutations: int, expected: float
) -> None:
    assert expected == pytest.approx(smallest_p_value(repetitions, folds))
    log_p = np.zeros((1, repetitions, folds))
    log_p[:, :, 0] = -500.0
    found = p_values(log_p, np.zeros((1, repetitions), int), permutations, chance())
    assert expected == pytest.approx(found[0])


def test_few_draws_give_the_p_value_of_all_assignments_where_few_reach_the_score() -> None:
    log_p, held_out = noise(chance(), 400, 4, 5, 4.0, 2.0), partitions(chance(1), 400, 4, 5)
    log_p[200:, 1, 2] = NAN  # a missing model, for some of which it was the one that held them out
    log_p[300:320, 0, 0] = -INF
    exact, drawn = (p_values(log_p, held_out, permutations, chance()) for permutations in (5**4 - 1, 200))
    replaced = np.flatnonzero((np.abs(drawn * 201 - np.round(drawn * 201)) > 1e-6) | (drawn < 1 / 201))
    assert len(replaced) > 10
    assert exact[replaced] == pytest.approx(drawn[replaced])
    assert exact[replaced].max() < 5 * (1 + FEW) / 201
    others = np.setdiff1d(np.arange(400), replaced)
    assert (np.isnan(drawn[others]) | (drawn[others] > 1 / 201)).all()


def test_no_p_value_is_too_small_where_the_assignments_are_too_many_to_enumerate() -> None:
    log_p, held_out = noise(chance(), 200, 4, 5, 4.0, 2.0), partitions(chance(1), 200, 4, 5)
    exact = p_values(log_p, held_out, 5**4 - 1, chance())
    drawn, at_most = (p_values(log_p, held_out, 200, chance(2), max_sums=most) for most in (10**6, 3))
    assert (drawn * (1 - 1e-12) <= at_most).all()
    rare = drawn < 5 / 201
    assert exact[rare] == pytest.approx(drawn[rare])
    assert at_most[rare] == pytest.approx(drawn[rare], rel=0.05)


def test_one_observation_that_is_memorised_among_sixty_thousand_can_be_called() -> None:
    # Ten partitions into ten folds: by draws alone no p-value would be below 1e-4, and of 60,000 at least 120 would be
    # needed at the smallest together.
    log_p = noise(chance(), 1, 10, 10, 3.0)
    held_out = np.array([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3]])
    np.put_along_axis(log_p, held_out[:, :, None], -180.0, axis=2)
    memorised = p_values(log_p, held_out, 9999, chance())
    assert pytest.approx(memorised) == [1e-10]
    others = (1 + np.arange(59_999)) / 60_000  # as even as where nothing is memorised
    called = false_discovery_control(np.concatenate([memorised, others])) <= 0.05
    assert np.flatnonzero(called).tolist() == [0]
    by_draws = false_discovery_control(np.concatenate([[1e-5], others]))  # of 99,999
    assert not (by_draws <= 0.05).any()


def null_p_values(repetitions: int, folds: int, permutations: int) -> np.ndarray:
    """p-values of 5,000 observations of ten worlds in which nothing is memorised."""
    found = []
    for world in range(10):
        rng = chance(world)
        log_p = noise(rng, 500, repetitions, folds, 3.0, 3.0)
        found.append(p_values(log_p, rng.integers(0, folds, (500, repetitions)), permutations, rng))
    return np.concatenate(found)


@pytest.mark.parametrize(("repetitions", "folds", "permutations"), [(6, 5, 399), (10, 10, 999)])
def test_p_values_are_as_small_as_they_say_at_most(repetitions: int, folds: int, permutations: int) -> None:
    # Valid at every level, below what draws can show and on either side of where they are made exact.
    found = null_p_values(repetitions, folds, permutations)
    for level in (0.1 / permutations, 1 / permutations, FEW / permutations, (2 + FEW) / permutations, 0.1):
        assert int(np.sum(found <= level)) <= bounds(level)[1]


@pytest.mark.parametrize(
    ("repetitions", "folds", "permutations", "smallest"),
    [(3, 4, 399, 1 / 64), (10, 2, 2000, 1 / 1024), (10, 10, 399, 1 / 400)],
)
def test_where_nothing_is_memorised_p_values_are_as_small_as_often_as_they_say(
    repetitions: int, folds: int, permutations: int, smallest: float
) -> None:
    # Models that differ in how good they are, over all observations. Every multiple of the smallest is equally likely,
    # so that of p <= level the share is the largest multiple that is no greater.
    found = null_p_values(repetitions, folds, permutations)
    for level in (0.02, 0.05, 0.25, 0.5):
        attained = math.floor(level / smallest + 1e-9) * smallest
        assert_rate(attained, int(np.sum(found <= level + 1e-9)), 5000)


def test_of_those_called_memorised_few_are_not_and_most_of_the_memorised_are_among_them() -> None:
    false, power = [], []
    for world in range(20):
        log_p, held_out = noise(chance(world), 600, 10, 5, 3.0, 2.0), partitions(chance(world), 600, 10, 5)
        memorised = np.arange(600) < 90
        out = np.arange(5) == held_out[:, :, None]
        log_p[memorised] += np.where(out[memorised], 0.0, 25.0)
        p = p_values(log_p, held_out, 1999, chance(world))
        called = false_discovery_control(p) <= 0.1
        false.append((called & ~memorised).sum() / max(called.sum(), 1))
        power.append(called[memorised].mean())
    assert np.mean(false) < 0.1 + 2 * np.std(false) / math.sqrt(20)
    assert np.mean(power) > 0.9


def test_models_are_reassigned_evenly_among_those_that_are_there() -> None:
    log_p = np.zeros((6000, 3, 4))
    log_p[:, 1, 2] = NAN
    log_p[:, 2] = NAN
    held_out = np.tile([1, 3, 2], (6000, 1))
    held_out[:3000, 1] = 2  # by a model that is missing: it stays the one
    found = reassign_models(log_p, held_out, chance())
    counts = [np.bincount(found[3000:, repetition], minlength=4).tolist() for repetition in range(3)]
    assert pytest.approx(counts[0], abs=100) == [750] * 4
    assert pytest.approx(counts[1], abs=110) == [1000, 1000, 0, 1000]
    assert counts[2] == [0, 0, 3000, 0]
    assert {2} == set(found[:3000, 1].tolist())


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
    assert [share_below(values, bound) for bound in bounds] == [0.0, 1 / 120, 1.0]
    assert [share_below([], 0.0), share_below([np.zeros(3), np.zeros(4)], 0.0)] == [1.0, 1.0]


def test_of_ten_to_the_power_of_ten_sums_one_is_found() -> None:
    values = [np.arange(10.0) for _ in range(10)]
    assert [share_below(values, 0.0), share_below(values, 1.0)] == [1e-10, 11e-10]
    # The sum of ten digits is symmetric about 45: what is below and the tie are as many as what is above and the tie.
    below, at_most = share_below(values, 44.0), share_below(values, 45.0)
    assert pytest.approx(below + at_most) == 1.0
    assert at_most - below == pytest.approx(432457640 / 10**10)  # so many have the sum 45


@pytest.mark.parametrize("whole", [True, False])
def test_where_a_half_has_too_many_sums_the_share_is_none_too_small_and_nearly_exact(whole: bool) -> None:
    for seed in range(20):
        values = lists(seed, (5, 5, 5, 5), whole)
        chosen = np.random.default_rng(100 + seed)
        bound = sum(chosen.choice(each) for each in values) * (1 + TINY)
        slack = bound - sum(each.min() for each in values)
        found = share_below(values, bound, max_sums=4)
        assert every(values, bound) <= found * (1 + TINY) <= every(values, bound + slack * 4 / BINS) * (1 + 2 * TINY)


def test_the_binned_share_is_right_where_values_are_multiples_of_a_bin() -> None:
    values = [np.arange(4.0), np.arange(4.0), np.arange(4.0)]
    assert every(values, 4.0) == pytest.approx(binned_share(values, [4, 4, 4], 4.0, bins=8))
    assert every(values, 0.0) == pytest.approx(binned_share([np.zeros(1)] * 3, [4, 4, 4], 0.0, bins=8))
    # Bins of 2: 1 counts as 0 and 3 as 2.
    assert every([2 * (each // 2) for each in values], 4.0) == pytest.approx(
        binned_share(values, [4, 4, 4], 4.0, bins=2)
    )


def raise_trained(log_p: np.ndarray, held_out: np.ndarray, nats: np.ndarray | float) -> np.ndarray:
    """log p with so many nats more by the models that trained on each observation."""
    trained = np.arange(log_p.shape[2]) != held_out[:, :, None]
    return log_p + np.reshape(nats, (-1, 1, 1)) * trained


def test_what_training_is_allowed_to_be_worth_is_taken_off_before_the_test() -> None:
    log_p, held_out = noise(chance(), 40, 3, 3, 4.0, 2.0), partitions(chance(1), 40, 3, 3)
    without = p_values(log_p, held_out, 99, chance())
    found = p_values(raise_trained(log_p, held_out, 2.0), held_out, 99, chance(), negligible=2.0)
    assert without == pytest.approx(found)


def test_the_least_that_is_found_makes_the_p_value_as_small_as_the_level_and_a_little_less_does_not() -> None:
    log_p, held_out = noise(chance(), 30, 3, 3, 2.0, 2.0), partitions(chance(1), 30, 3, 3)
    log_p[20:, 1, 2] = NAN  # a missing model, for some of which it was the one that held them out
    log_p[28] = NAN  # no score
    log_p[29, 0, 0] = -INF
    for level, negligible in ((2 / 27, 0.0), (2 / 27, 3.0), (0.3, 0.0)):
        nats = least_found(log_p, held_out, level, negligible)
        assert np.isnan(nats[28:]).all()
        assert not np.isnan(nats[:28]).any()
        assert np.isfinite(nats[:20]).all()
        some = np.flatnonzero(np.isfinite(nats))
        nats = nats[some]
        less = np.maximum(0.989 * nats, negligible)
        at, below = (
            p_values(raise_trained(log_p[some], held_out[some], each), held_out[some], 99, chance(), 2**21, negligible)
            for each in (nats, less)
        )
        assert (at <= level + TOLERANCE).all()
        # Where as much as nothing is enough, or nearly so, a little less is enough, too.
        assert (below > level)[less > negligible].all()
        assert (less > negligible).sum() > 10


def test_the_least_that_is_found_is_what_lifts_the_models_that_trained_above_the_one_that_did_not() -> None:
    # They answer 1 and 2 nats less: 1 nat is enough for one of them to be above, 2 for both. The second repetition
    # lacks the model that held the observation out, and says nothing.
    log_p = np.array([[[-700.0, -701.0, -702.0], [NAN, -700.0, -702.0]]])
    for level, negligible, expected in ((2 / 3, 0.0, 1.0), (1 / 3, 0.0, 2.0), (1 / 3, 0.5, 2.5)):
        (found,) = least_found(log_p, np.zeros((1, 2), int), level, negligible)
        assert expected < found <= 1.01 * expected
    plain, impossible = log_p, np.where(log_p == -702.0, -INF, log_p)
    by_default = [least_found(of, np.zeros((1, 2), int), 1 / 3)[0] for of in (plain, impossible)]
    assert [least_found(log_p, np.zeros((1, 2), int), 1 / 3, 0.0)[0], NAN] == pytest.approx(by_default, nan_ok=True)


def test_no_memory_is_enough_for_a_p_value_that_there_is_not() -> None:
    log_p, held_out = noise(chance(), 4, 2, 3, 2.0, 2.0), partitions(chance(1), 4, 2, 3)
    assert least_found(log_p, held_out, 0.1).tolist() == [INF] * 4  # 1 / 9 is the smallest


def test_half_sums_leave_out_what_is_too_large_and_give_up_above_the_most() -> None:
    lists_of = [np.array([0.0, 3.0]), np.array([0.0, 2.0, 5.0])]
    found = half_sums(lists_of, 5.0, 6)
    assert found is not None
    assert sorted(found.tolist()) == [0.0, 2.0, 3.0, 5.0, 5.0]
    assert half_sums(lists_of, 5.0, 5) is None
