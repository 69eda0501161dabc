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

INF = float("inf")
NAN = float("nan")


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def enumerated_p_value(log_p: np.ndarray, held_out: np.ndarray) -> float:
    """The share of all assignments that score at least as high, computed separately for each, for one observation."""
    present_models = [np.flatnonzero(~np.isnan(models)) for models in log_p]
    choices = []
    for models, fold in zip(present_models, held_out, strict=True):
        choices.append(models if fold in models else [fold])
    score = terms(log_p[None], held_out[None]).score[0]
    other_scores = []
    for assignment in itertools.product(*choices):
        other_scores.append(terms(log_p[None], np.array([assignment])).score[0])
    return float(np.mean([other_score >= score - 1e-6 for other_score in other_scores]))


def test_p_is_the_share_of_assignments_as_high() -> None:
    # V = log mean of the chosen models: for {1, 2} x {3, 5} the sums are 4, 6, 5, 7. Held out by 2 and 3: two sums
    # are at most as large.
    log_p = np.log([[[1.0, 2.0], [3.0, 5.0]]])
    assert p_values(log_p, np.array([[1, 0]]), 99, generator()).tolist() == [2 / 4]
    assert p_values(log_p, np.array([[0, 0]]), 99, generator()).tolist() == [1 / 4]
    assert p_values(log_p, np.array([[1, 1]]), 99, generator()).tolist() == [4 / 4]


def test_p_values_agree_with_separately_scored_assignments() -> None:
    log_p = noise(generator(), 40, 3, 3, 4.0, 2.0)
    held_out = partitions(generator(1), 40, 3, 3)
    log_p[20:, 1, 2] = NAN  # a missing model, which held out some observations
    log_p[30:, 2, :2] = NAN
    log_p[35:, 0] = NAN
    log_p[10:15, 0, 0] = -INF
    p = p_values(log_p, held_out, 99, generator())
    defined = ~np.isnan(terms(log_p, held_out).score)
    assert (defined == ~np.isnan(p)).all()
    expected = []
    for row in np.flatnonzero(defined):
        expected.append(enumerated_p_value(log_p[row], held_out[row]))
    assert expected == pytest.approx(p[defined])
    assert len(set(map(tuple, held_out[20:30]))) > 3


@pytest.mark.parametrize("sd", [100.0, 1000.0])
def test_p_values_stay_exact_at_1000_nats(sd: float) -> None:
    # exp of more than 709 nats overflows; multiplied by 0 it must not remove a draw.
    log_p = noise(generator(3), 60, 3, 4, sd)
    held_out = partitions(generator(1), 60, 3, 4)
    log_p[40:, 1, 2] = NAN
    log_p[30:50, 0, 0] = -INF
    p = p_values(log_p, held_out, 99, generator())
    defined = np.flatnonzero(~np.isnan(terms(log_p, held_out).score))
    expected = []
    for row in defined:
        models = []
        for log_p_of_repetition in log_p[row]:
            models.append(np.flatnonzero(~np.isnan(log_p_of_repetition)))
        candidates = []
        for log_p_of_repetition, fold in zip(models, held_out[row], strict=True):
            candidates.append(log_p_of_repetition if fold in log_p_of_repetition else [fold])
        sums = []
        for log_p_of_repetition in itertools.product(*candidates):
            sums.append(log_sum(log_p[row], log_p_of_repetition))
        expected.append(np.mean(np.array(sums) <= log_sum(log_p[row], held_out[row]) + TOLERANCE))
    assert expected == pytest.approx(p[defined])
    assert p[defined].min() < 0.1


def log_sum(log_p: np.ndarray, models: Sequence[int]) -> float:
    values = log_p[np.arange(len(log_p)), list(models)]
    return float(logsumexp(values[~np.isnan(values)]))


def test_lowest_of_distant_models_counts_all_models() -> None:
    log_p = np.array([[[-2000.0, 0.0, -1000.0]]])
    p = [p_values(log_p, np.array([[fold]]), 99, generator())[0] for fold in range(3)]
    assert p == [1 / 3, 3 / 3, 2 / 3]


def test_sums_equal_up_to_rounding_are_ties() -> None:
    # Held out by .1 and .2, or by .3 and almost 0: .3 either way, but 0.1 + 0.2 > 0.3 in floating point.
    log_p = np.log([[0.1, 0.3], [0.2, 1e-300]]) + generator().uniform(-100, 0, (300, 1, 1))
    for fold in (0, 1):
        assert set(p_values(log_p, np.full((300, 2), fold), 99, generator()).tolist()) == {3 / 4}


def test_repetition_without_held_out_model_is_ignored() -> None:
    # The one model left in the second repetition trained on the observation: for any assignment, S comes from the
    # first.
    log_p = np.array([[[-1.0, -2.0, -3.0], [NAN, -9.0, 50.0]]])
    p = []
    for fold in range(3):
        p.append(p_values(log_p, np.array([[fold, 0]]), 99, generator())[0])
    assert pytest.approx(p) == [3 / 3, 2 / 3, 1 / 3]


def test_sampled_p_values_agree_with_exact_ones() -> None:
    log_p = noise(generator(), 300, 4, 5, 4.0, 2.0)
    held_out = partitions(generator(1), 300, 4, 5)
    exact = p_values(log_p, held_out, 5**4 - 1, generator())
    sampled = p_values(log_p, held_out, 5**4 - 2, generator())
    assert (exact * 5**4).round(9).tolist() == (exact * 5**4).round().tolist()
    many_reach = sampled > (1 + FEW) / (5**4 - 1)
    assert set((sampled[many_reach] * (5**4 - 1)).round(9) % 1) == {0.0}
    assert (exact != sampled)[many_reach].any()
    assert (sampled == exact)[~many_reach].all()
    mean_sampled = np.mean([p_values(log_p, held_out, 600, generator(seed)) for seed in range(20)], axis=0)
    error = np.sqrt(exact * (1 - exact) / 12_000) + 1e-3
    assert (np.abs(mean_sampled - exact) < 4.5 * error).all()


def test_score_impossible_to_held_out_models_is_maximal() -> None:
    log_p = np.array([[[-INF, -1.0, -2.0], [-INF, -3.0, -900.0]]])
    assert pytest.approx(p_values(log_p, np.array([[0, 0]]), 99, generator())) == [1 / 9]
    assert pytest.approx(p_values(np.array([[[-INF, 0.0], [-INF, 0.0]]]), np.array([[1, 1]]), 99, generator())) == [
        9 / 9
    ]
    undefined = p_values(np.full((1, 2, 3), -INF), np.array([[0, 0]]), 99, generator())
    assert undefined == pytest.approx([NAN], nan_ok=True)


def test_impossible_observations_do_not_affect_their_block() -> None:
    log_p = np.array([[[-INF, -1.0, -2.0], [-INF, -3.0, -900.0]], [[-5.0, -1.0, -2.0], [-4.0, -1.0, -2.0]]])
    assert pytest.approx(p_values(log_p, np.zeros((2, 2), int), 99, generator())) == [1 / 9, 1 / 9]


@pytest.mark.parametrize("permutations", [6, 7, 8, 9])
def test_small_p_is_exact_for_any_permutation_count(permutations: int) -> None:
    equal = np.zeros((1, 2, 3))
    lowest = np.array([[[-9.0, 0.0, 0.0], [-9.0, 0.0, 0.0]]])
    assert p_values(equal, np.zeros((1, 2), int), permutations, generator()).tolist() == [1.0]
    p = p_values(lowest, np.zeros((1, 2), int), permutations, generator(1))[0]
    assert p == pytest.approx(1 / 9)  # few draws reach this score, so it is computed exactly in both cases
    sampled = set()
    for seed in range(20):
        sampled.add(p_values(equal, np.zeros((1, 2), int), 50, generator(seed))[0])
    assert sampled == {1.0}


def test_lists_are_halved_for_most_exact_sums() -> None:
    # Two sums are just above the bound but equal to it after rounding down: 8 sums at once are too many to
    # be exact.
    two = np.array([0.0, 0.5 + 1e-9])
    four = np.array([0.0, *[0.5 + 1e-9] * 3])
    assert share_below([two] * 4, 1.0, max_sums=4) == 5 / 16
    assert share_below([two, two, four], 1.0, max_sums=4) == 6 / 16
    assert share_below([two] * 4, 1.0, max_sums=2) == 11 / 16
    assert share_below([two] * 4 + [np.ones(9)] * 3, 4.0, max_sums=4) == 5 / 16  # equal values use up no sums


def test_equal_answers_are_no_evidence() -> None:
    assert p_values(np.full((2, 10, 10), -1234.5), np.zeros((2, 10), int), 99, generator()).tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("repetitions", "folds", "permutations", "expected"),
    [(10, 10, 9999, 1e-10), (3, 10, 9999, 1e-3), (4, 10, 9999, 1e-4), (10, 2, 9999, 1 / 1024), (1, 4, 1, 1 / 4)],
)
def test_smallest_p_belongs_to_the_highest_score(
    repetitions: int, folds: int, permutations: int, expected: float
) -> None:
    assert expected == pytest.approx(smallest_p_value(repetitions, folds))
    log_p = np.zeros((1, repetitions, folds))
    log_p[:, :, 0] = -500.0
    p = p_values(log_p, np.zeros((1, repetitions), int), permutations, generator())
    assert expected == pytest.approx(p[0])


def test_rare_scores_get_the_exact_p() -> None:
    log_p = noise(generator(), 400, 4, 5, 4.0, 2.0)
    held_out = partitions(generator(1), 400, 4, 5)
    log_p[200:, 1, 2] = NAN  # a missing model, which held out some observations
    log_p[300:320, 0, 0] = -INF
    exact = p_values(log_p, held_out, 5**4 - 1, generator())
    sampled = p_values(log_p, held_out, 200, generator())
    replaced = np.flatnonzero((np.abs(sampled * 201 - np.round(sampled * 201)) > 1e-6) | (sampled < 1 / 201))
    assert len(replaced) > 10
    assert exact[replaced] == pytest.approx(sampled[replaced])
    assert exact[replaced].max() < 5 * (1 + FEW) / 201
    unchanged = np.setdiff1d(np.arange(400), replaced)
    assert (np.isnan(sampled[unchanged]) | (sampled[unchanged] > 1 / 201)).all()


def test_p_is_never_too_small_if_binned() -> None:
    log_p = noise(generator(), 200, 4, 5, 4.0, 2.0)
    held_out = partitions(generator(1), 200, 4, 5)
    exact = p_values(log_p, held_out, 5**4 - 1, generator())
    sampled, at_most = (p_values(log_p, held_out, 200, generator(2), max_sums=max_sums) for max_sums in (10**6, 3))
    assert (sampled * (1 - 1e-12) <= at_most).all()
    rare = sampled < 5 / 201
    assert exact[rare] == pytest.approx(sampled[rare])
    assert at_most[rare] == pytest.approx(sampled[rare], rel=0.05)


def test_one_memorised_of_60000_can_be_called() -> None:
    # Ten partitions into ten folds: from draws alone, no p-value is below 1e-4, and at least 120 of 60,000
    # observations would have to share the smallest.
    log_p = noise(generator(), 1, 10, 10, 3.0)
    held_out = np.array([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3]])
    np.put_along_axis(log_p, held_out[:, :, None], -180.0, axis=2)
    memorised = p_values(log_p, held_out, 9999, generator())
    assert pytest.approx(memorised) == [1e-10]
    null_p = (1 + np.arange(59_999)) / 60_000  # uniform, as without memorisation
    is_called = false_discovery_control(np.concatenate([memorised, null_p])) <= 0.05
    assert np.flatnonzero(is_called).tolist() == [0]
    by_draws = false_discovery_control(np.concatenate([[1e-5], null_p]))  # from 99,999 draws
    assert not (by_draws <= 0.05).any()


def null_p_values(repetitions: int, folds: int, permutations: int) -> np.ndarray:
    """p-values of 5,000 observations in ten simulations without memorisation."""
    p = []
    for seed in range(10):
        rng = generator(seed)
        log_p = noise(rng, 500, repetitions, folds, 3.0, 3.0)
        p.append(p_values(log_p, rng.integers(0, folds, (500, repetitions)), permutations, rng))
    return np.concatenate(p)


@pytest.mark.parametrize(("repetitions", "folds", "permutations"), [(6, 5, 399), (10, 10, 999)])
def test_p_values_are_valid_at_every_level(repetitions: int, folds: int, permutations: int) -> None:
    # Valid at every level, including levels below the resolution of draws and on both sides of the switch to exact
    # values.
    p = null_p_values(repetitions, folds, permutations)
    for level in (0.1 / permutations, 1 / permutations, FEW / permutations, (2 + FEW) / permutations, 0.1):
        assert int(np.sum(p <= level)) <= bounds(level)[1]


@pytest.mark.parametrize(
    ("repetitions", "folds", "permutations", "smallest"),
    [(3, 4, 399, 1 / 64), (10, 2, 2000, 1 / 1024), (10, 10, 399, 1 / 400)],
)
def test_null_p_values_have_their_nominal_rates(
    repetitions: int, folds: int, permutations: int, smallest: float
) -> None:
    # Models that differ in quality over all observations. Every multiple of the smallest p-value is equally likely,
    # so the share of p <= level is the largest multiple up to that level.
    p = null_p_values(repetitions, folds, permutations)
    for level in (0.02, 0.05, 0.25, 0.5):
        attained = math.floor(level / smallest + 1e-9) * smallest
        assert_rate(attained, int(np.sum(p <= level + 1e-9)), 5000)


def test_few_false_and_most_true_calls() -> None:
    false_shares = []
    power = []
    for seed in range(20):
        log_p = noise(generator(seed), 600, 10, 5, 3.0, 2.0)
        held_out = partitions(generator(seed), 600, 10, 5)
        memorised = np.arange(600) < 90
        out = np.arange(5) == held_out[:, :, None]
        log_p[memorised] += np.where(out[memorised], 0.0, 25.0)
        p = p_values(log_p, held_out, 1999, generator(seed))
        is_called = false_discovery_control(p) <= 0.1
        false_shares.append((is_called & ~memorised).sum() / max(is_called.sum(), 1))
        power.append(is_called[memorised].mean())
    assert np.mean(false_shares) < 0.1 + 2 * np.std(false_shares) / math.sqrt(20)
    assert np.mean(power) > 0.9


def test_models_are_reassigned_evenly() -> None:
    log_p = np.zeros((6000, 3, 4))
    log_p[:, 1, 2] = NAN
    log_p[:, 2] = NAN
    held_out = np.tile([1, 3, 2], (6000, 1))
    held_out[:3000, 1] = 2  # held out by a missing model, which keeps its role
    reassigned = reassign_models(log_p, held_out, generator())
    counts = []
    for repetition in range(3):
        counts.append(np.bincount(reassigned[3000:, repetition], minlength=4).tolist())
    assert pytest.approx(counts[0], abs=100) == [750] * 4
    assert pytest.approx(counts[1], abs=110) == [1000, 1000, 0, 1000]
    assert counts[2] == [0, 0, 3000, 0]
    assert set(reassigned[:3000, 1].tolist()) == {2}


TINY = 1e-12  # relative tolerance for equal sums


def enumerated_share(values: list[np.ndarray], bound: float) -> float:
    """The share of all sums, each computed separately."""
    sums = np.array([sum(parts) for parts in itertools.product(*values)])
    return float((sums <= bound).mean())


def lists(seed: int, sizes: tuple[int, ...], repeats: bool) -> list[np.ndarray]:
    """Values of at least 0: eighths with many repeats, or values of very different sizes."""
    rng = np.random.default_rng(seed)
    result = []
    for size in sizes:
        result.append(rng.integers(0, 4, size) / 8 if repeats else np.exp(rng.normal(0, 5, size)))
    return result


@pytest.mark.parametrize("repeats", [True, False])
@pytest.mark.parametrize("sizes", [(3,), (2, 3), (4, 1, 3), (5, 5, 5, 5), (2,) * 11, (6, 2, 7, 3, 4)])
def test_share_is_that_of_all_sums(sizes: tuple[int, ...], repeats: bool) -> None:
    for seed in range(8):
        values = lists(seed, sizes, repeats)
        rng = np.random.default_rng(100 + seed)
        for _ in range(4):
            # a sum that occurs: a tie counts as at most the bound
            bound = sum(rng.choice(part) for part in values) * (1 + TINY)
            assert enumerated_share(values, bound) == share_below(values, bound)


def test_share_is_0_and_1_at_the_ends() -> None:
    values = lists(0, (4, 5, 6), repeats=False)
    low, high = sum(part.min() for part in values), sum(part.max() for part in values)
    bounds = low / 2, low * (1 + TINY), high * (1 + TINY)
    assert [share_below(values, bound) for bound in bounds] == [0.0, 1 / 120, 1.0]
    assert share_below([], 0.0) == 1.0
    assert share_below([np.zeros(3), np.zeros(4)], 0.0) == 1.0


def test_one_of_ten_billion_sums_is_counted() -> None:
    values = [np.arange(10.0) for _ in range(10)]
    assert share_below(values, 0.0) == 1e-10
    assert share_below(values, 1.0) == 11e-10
    # The sum of ten digits is symmetric about 45: the share below plus the share at most 45 is 1.
    below = share_below(values, 44.0)
    at_most = share_below(values, 45.0)
    assert pytest.approx(below + at_most) == 1.0
    assert at_most - below == pytest.approx(432457640 / 10**10)  # the number of sums equal to 45


@pytest.mark.parametrize("repeats", [True, False])
def test_binned_share_is_conservative_and_nearly_exact(repeats: bool) -> None:
    for seed in range(20):
        values = lists(seed, (5, 5, 5, 5), repeats)
        rng = np.random.default_rng(100 + seed)
        bound = sum(rng.choice(part) for part in values) * (1 + TINY)
        slack = bound - sum(part.min() for part in values)
        share = share_below(values, bound, max_sums=4)
        assert (
            enumerated_share(values, bound)
            <= share * (1 + TINY)
            <= enumerated_share(values, bound + slack * 4 / BINS) * (1 + 2 * TINY)
        )


def test_binned_share_is_exact_for_multiples_of_bins() -> None:
    values = [np.arange(4.0), np.arange(4.0), np.arange(4.0)]
    assert enumerated_share(values, 4.0) == pytest.approx(binned_share(values, [4, 4, 4], 4.0, bins=8))
    assert enumerated_share(values, 0.0) == pytest.approx(binned_share([np.zeros(1)] * 3, [4, 4, 4], 0.0, bins=8))
    # Bins of 2: 1 counts as 0 and 3 as 2.
    assert enumerated_share([2 * (part // 2) for part in values], 4.0) == pytest.approx(
        binned_share(values, [4, 4, 4], 4.0, bins=2)
    )


def raise_trained(log_p: np.ndarray, held_out: np.ndarray, nats: np.ndarray | float) -> np.ndarray:
    """log p increased by `nats` for the models that trained on each observation."""
    is_trained = np.arange(log_p.shape[2]) != held_out[:, :, None]
    return log_p + np.reshape(nats, (-1, 1, 1)) * is_trained


def test_negligible_effect_is_subtracted_before_the_test() -> None:
    log_p = noise(generator(), 40, 3, 3, 4.0, 2.0)
    held_out = partitions(generator(1), 40, 3, 3)
    p_before = p_values(log_p, held_out, 99, generator())
    p = p_values(raise_trained(log_p, held_out, 2.0), held_out, 99, generator(), negligible=2.0)
    assert p_before == pytest.approx(p)


def test_detection_limit_just_reaches_the_level() -> None:
    log_p = noise(generator(), 30, 3, 3, 2.0, 2.0)
    held_out = partitions(generator(1), 30, 3, 3)
    log_p[20:, 1, 2] = NAN  # a missing model, which held out some observations
    log_p[28] = NAN  # no score
    log_p[29, 0, 0] = -INF
    for level, negligible in ((2 / 27, 0.0), (2 / 27, 3.0), (0.3, 0.0)):
        nats = least_found(log_p, held_out, level, negligible)
        assert np.isnan(nats[28:]).all()
        assert not np.isnan(nats[:28]).any()
        assert np.isfinite(nats[:20]).all()
        finite = np.flatnonzero(np.isfinite(nats))
        nats = nats[finite]
        reduced = np.maximum(0.989 * nats, negligible)
        p_at_limit = p_values(
            raise_trained(log_p[finite], held_out[finite], nats),
            held_out[finite],
            99,
            generator(),
            2**21,
            negligible,
        )
        p_below_limit = p_values(
            raise_trained(log_p[finite], held_out[finite], reduced),
            held_out[finite],
            99,
            generator(),
            2**21,
            negligible,
        )
        assert (p_at_limit <= level + TOLERANCE).all()
        # If almost no memory is enough, slightly less is enough as well.
        assert (p_below_limit > level)[reduced > negligible].all()
        assert (reduced > negligible).sum() > 10


def test_detection_limit_lifts_trained_above_held_out_models() -> None:
    # The trained models give 1 and 2 nats less: 1 nat lifts one of the models above, 2 nats both. The second
    # repetition lacks the model that held out the observation, so it has no effect.
    log_p = np.array([[[-700.0, -701.0, -702.0], [NAN, -700.0, -702.0]]])
    for level, negligible, expected in ((2 / 3, 0.0, 1.0), (1 / 3, 0.0, 2.0), (1 / 3, 0.5, 2.5)):
        (limit,) = least_found(log_p, np.zeros((1, 2), int), level, negligible)
        assert expected < limit <= 1.01 * expected
    plain = log_p
    impossible = np.where(log_p == -702.0, -INF, log_p)
    by_default = []
    for values in (plain, impossible):
        by_default.append(least_found(values, np.zeros((1, 2), int), 1 / 3)[0])
    assert by_default == pytest.approx([least_found(log_p, np.zeros((1, 2), int), 1 / 3, 0.0)[0], NAN], nan_ok=True)


def test_unattainable_p_has_an_infinite_limit() -> None:
    log_p = noise(generator(), 4, 2, 3, 2.0, 2.0)
    held_out = partitions(generator(1), 4, 2, 3)
    assert least_found(log_p, held_out, 0.1).tolist() == [INF] * 4  # 1 / 9 is the smallest


def test_half_sums_drop_large_sums_and_give_up() -> None:
    value_lists = [np.array([0.0, 3.0]), np.array([0.0, 2.0, 5.0])]
    sums = half_sums(value_lists, 5.0, 6)
    assert sums is not None
    assert sorted(sums.tolist()) == [0.0, 2.0, 3.0, 5.0, 5.0]
    assert half_sums(value_lists, 5.0, 5) is None
