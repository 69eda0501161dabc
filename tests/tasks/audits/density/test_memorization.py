import itertools
import math
import warnings

import numpy as np
import pytest
from scipy.special import logsumexp

from tasks.audits.density.memorization import log_mean, log_mean_but_one, lower_log_p, matched_count_score, terms
from tests.tasks.audits.density.made_up import noise, partitions

INF = float("inf")
NAN = float("nan")


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def logs(*values: float) -> list[float]:
    return [math.log(value) if value else -INF for value in values]


def test_published_score_is_log_ratio_of_mean_likelihoods() -> None:
    # Trained: .2, .4, .6 and .1, mean .325. Held out: .1 and .3, mean .2.
    log_p = np.array([[logs(0.2, 0.1, 0.4), logs(0.3, 0.6, 0.1)]])
    log_means = terms(log_p, np.array([[1, 0]]))
    assert [math.log(0.325)] == pytest.approx(log_means.u)
    assert [math.log(0.2)] == pytest.approx(log_means.v)
    assert [math.log(0.325 / 0.2)] == pytest.approx(log_means.score)
    assert log_means.trained_models.tolist() == [[2, 2]]
    assert log_means.held_out_models.tolist() == [[1, 1]]
    trained_means, held_out_means = log_means.by_repetition
    assert logs(0.3, 0.35) == pytest.approx(trained_means[0])
    assert logs(0.1, 0.3) == pytest.approx(held_out_means[0])
    # Without the first repetition .35 against .3, without the second .3 against .1.
    assert logs(0.35 / 0.3, 0.3 / 0.1) == pytest.approx(log_means.score_without_each[0])


def test_log_p_of_2000_nats_agrees_with_scipy() -> None:
    log_p = 2000 * noise(generator(), 50, 4, 5, 1.0)
    held_out = partitions(generator(1), 50, 4, 5)
    out = np.arange(5) == held_out[:, :, None]
    u = logsumexp(np.where(out, -INF, log_p), axis=(1, 2)) - math.log(16)
    v = logsumexp(np.where(out, log_p, -INF), axis=(1, 2)) - math.log(4)
    log_means = terms(log_p, held_out)
    assert u == pytest.approx(log_means.u, rel=1e-13)
    assert v == pytest.approx(log_means.v, rel=1e-13)
    for repetition in range(4):
        rest = terms(np.delete(log_p, repetition, axis=1), np.delete(held_out, repetition, axis=1))
        assert rest.score == pytest.approx(log_means.score_without_each[:, repetition], rel=1e-10, abs=1e-9)


def test_mean_of_one_term_is_that_term() -> None:
    values = np.array([[-1e4 / 3], [-0.1], [-INF], [700.1]])
    assert values[:, 0].tolist() == log_mean(values, np.ones(4, np.int64)).tolist()
    log_p = np.array([[[-1e4 / 3, -7.7]], [[-0.1, -123.4]]])
    log_means = terms(log_p, np.array([[1], [1]]))
    assert log_p[:, 0, 0].tolist() == log_means.u.tolist()
    assert log_p[:, 0, 1].tolist() == log_means.v.tolist()


def test_sum_without_largest_term_keeps_precision() -> None:
    values = np.array([[0.0, -800.0, -801.0], [-5.0, -5.0, -INF], [-INF, -INF, -3.0]])
    log_means = log_mean_but_one(values, np.full((3, 3), 2))
    for row in range(3):
        for column in range(3):
            expected = logsumexp(np.delete(values[row], column)) - math.log(2)
            assert expected == pytest.approx(log_means[row, column])


@pytest.mark.parametrize(
    ("trained", "held_out", "u", "v", "score"),
    [
        ([0.5, 0.0], 0.0, math.log(0.25), -INF, INF),  # impossible to the model that was not trained on it
        ([0.0, 0.0], 0.5, -INF, math.log(0.5), -INF),
        ([0.0, 0.0], 0.0, -INF, -INF, NAN),  # no comparison is possible
        ([0.5, NAN], 0.25, math.log(0.5), math.log(0.25), math.log(2)),  # one model fewer, not one more zero
        ([0.5, 0.0], 0.25, math.log(0.25), math.log(0.25), 0.0),  # one more zero
        ([0.5, 0.5], NAN, math.log(0.5), NAN, NAN),
        ([NAN, NAN], 0.5, NAN, math.log(0.5), NAN),
    ],
)
def test_impossible_differs_from_missing(
    trained: list[float], held_out: float, u: float, v: float, score: float
) -> None:
    log_p = np.array([[[NAN if math.isnan(p) else logs(p)[0] for p in (*trained, held_out)]]])
    log_means = terms(log_p, np.array([[2]]))
    expected = [u, v, score]
    assert expected == pytest.approx([log_means.u[0], log_means.v[0], log_means.score[0]], nan_ok=True)


@pytest.mark.parametrize(
    ("log_p", "held_out", "message"),
    [
        (np.zeros((2, 3)), np.zeros((2, 3), int), r"log_p is \(2, 3\) and held_out \(2, 3\); they must be"),
        (np.zeros((2, 3, 4)), np.zeros((2, 2), int), r"log_p is \(2, 3, 4\) and held_out \(2, 2\); they must be"),
        (np.zeros((2, 1, 4)), np.array([[0], [4]]), "an observation is held out by model 4; it must be from 0 to 3"),
        (np.zeros((2, 1, 4)), np.array([[-1], [4]]), "an observation is held out by model -1; it must be from 0 to 3"),
        (np.zeros((2, 1, 4)), np.array([[-1], [3]]), "an observation is held out by model -1; it must be from 0 to 3"),
        (np.array([[[0.0]], [[INF]]]), np.array([[0], [0]]), "log p of observation 1 of the block is inf"),
        (np.array([[[0.0, 0.0]], [[0.0, INF]]]), np.array([[0], [0]]), "log p of observation 1 of the block is inf"),
    ],
)
def test_invalid_arrays_are_refused(log_p: np.ndarray, held_out: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        terms(log_p, held_out)


def test_nats_are_subtracted_from_trained_models_only() -> None:
    log_p = np.array([[[-1.0, -2.0, NAN], [-3.0, -4.0, -5.0]]])
    lowered = lower_log_p(log_p, np.array([[1, 2]]), 10.0)
    assert lowered.ravel() == pytest.approx([-11, -2, NAN, -13, -14, -5], nan_ok=True)
    assert log_p.ravel() == pytest.approx([-1, -2, NAN, -3, -4, -5], nan_ok=True)


def test_matched_score_is_mean_over_all_choices() -> None:
    # One of .2 and .4, and one of .6 and .1: the sums are .8, .3, 1.0 and .5; the held-out models sum to .4.
    log_p = np.array([[logs(0.2, 0.1, 0.4), logs(0.3, 0.6, 0.1)]])
    expected = np.mean(logs(0.8 / 0.4, 0.3 / 0.4, 1.0 / 0.4, 0.5 / 0.4))
    score, without = matched_count_score(log_p, np.array([[1, 0]]), 4, generator())
    assert [expected] == pytest.approx(score)
    # One repetition: the mean difference. .6 and .1 against .3; .2 and .4 against .1.
    assert [np.mean(logs(2, 1 / 3)), np.mean(logs(2, 4))] == pytest.approx(without[0])
    drawn_scores, _ = matched_count_score(np.repeat(log_p, 2000, axis=0), np.tile([1, 0], (2000, 1)), 3, generator())
    assert expected == pytest.approx(drawn_scores.mean(), abs=4 * drawn_scores.std() / math.sqrt(2000))
    assert drawn_scores.std() > 0


def test_single_repetition_score_is_the_mean_difference() -> None:
    log_p = noise(generator(), 20, 1, 6, 3.0)
    held_out = np.full((20, 1), 2)
    expected = np.delete(log_p[:, 0], 2, axis=1).mean(axis=1) - log_p[:, 0, 2]
    assert expected == pytest.approx(matched_count_score(log_p, held_out, 1, generator())[0], abs=1e-12)


def test_two_models_a_repetition_give_equal_scores() -> None:
    log_p = noise(generator(), 40, 10, 2, 5.0)
    held_out = np.ones((40, 10), np.int64)
    log_means = terms(log_p, held_out)
    score, without = matched_count_score(log_p, held_out, 64, generator())
    assert log_means.score == pytest.approx(score, abs=1e-12)
    assert log_means.score_without_each == pytest.approx(without, abs=1e-9)


def test_matched_score_without_a_repetition_uses_the_others() -> None:
    log_p = noise(generator(), 30, 3, 3, 4.0)
    held_out = partitions(generator(1), 30, 3, 3)
    log_p[:, 2, 1] = NAN
    _, without = matched_count_score(log_p, held_out, 8, generator())
    for repetition in range(3):
        rest = np.delete(log_p, repetition, axis=1), np.delete(held_out, repetition, axis=1)
        assert matched_count_score(*rest, 4, generator())[0] == pytest.approx(without[:, repetition], nan_ok=True)


def test_draws_are_uniform_if_models_are_missing() -> None:
    n = 4000
    log_p = np.tile(np.log([[1.0, 2.0, NAN, 3.0, 5.0]] * 3), (n, 1, 1))
    held_out = np.tile([0, 2, 4], (n, 1))  # the second repetition lacks the model that held it out, so it is not used
    score, _ = matched_count_score(log_p, held_out, 7, generator(), without_each=False)
    sums = [first + third for first in (2, 3, 5) for third in (1, 2, 3)]
    expected = np.mean(np.log(np.array(sums) / 6))
    assert expected == pytest.approx(score.mean(), abs=4 * score.std() / math.sqrt(n))


def test_extra_choices_are_sampled() -> None:
    # 2 x 2 choices, and 3 of 4 models can be trained on the observation: up to three draws leave some choices out.
    log_p = np.tile(np.log([[1.0, 2.0, NAN, 1.0], [NAN, 4.0, 30.0, 1.0]]), (50, 1, 1))
    score, without = matched_count_score(log_p, np.full((50, 2), 3), 1, generator(), without_each=False)
    assert len(set(score.round(9))) == 4
    assert without.shape == (50, 0)
    all_choices, _ = matched_count_score(log_p, np.full((50, 2), 3), 4, generator(), without_each=False)
    assert len(set(all_choices.round(9))) == 1


def test_missing_and_impossible_models_cause_no_warnings() -> None:
    log_p = np.array([[[NAN, -9.0, NAN], [-1.0, -2.0, -3.0]], [[-INF, -9.0, -INF], [-INF, -2.0, -INF]]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained, _ = terms(log_p[:1], np.ones((1, 2), int)).by_repetition
        score, _ = matched_count_score(log_p, np.ones((2, 2), int), 4, generator(), without_each=False)
    assert np.isnan(trained[0]).tolist() == [True, False]
    assert score[1:].tolist() == [-INF]


def test_incomplete_repetitions_do_not_change_the_matched_score() -> None:
    log_p = np.array([[[-1.0, -4.0, -2.0], [NAN, -9.0, NAN], [-9.0, NAN, -8.0], [NAN, NAN, NAN]]])
    score, _ = matched_count_score(log_p, np.array([[1, 1, 1, 1]]), 9, generator())
    assert pytest.approx(score) == [2.5]
    log_means = terms(log_p, np.array([[1, 1, 1, 1]]))
    assert log_means.trained_models.sum(axis=1).tolist() == [4]
    assert log_means.held_out_models.sum(axis=1).tolist() == [2]


def test_score_does_not_depend_on_the_block() -> None:
    # 3 x 3, 3, 1, 1 and 7 x 7 choices in one block: draws beyond an observation's number of choices must not count.
    log_p = np.full((5, 2, 8), NAN)
    log_p[:, :, 0] = -5.0
    log_p[0, :, 1:4] = [[-1.0, -2.0, -4.0], [-3.0, -30.0, -8.0]]
    log_p[1, :, 1:4] = [[-1.0, -2.0, -40.0], [-7.0, NAN, NAN]]
    log_p[2, :, 1] = [-6.0, -9.0]
    log_p[3, :, 1] = -INF
    log_p[4, :, 1:] = noise(generator(), 1, 2, 7, 3.0)[0]
    held_out = np.zeros((5, 2), np.int64)
    block_scores, without = matched_count_score(log_p, held_out, 50, generator())
    single_scores = []
    for row in range(5):
        single_scores.append(matched_count_score(log_p[[row]], held_out[[row]], 50, generator()))
    assert [score[0] for score, _ in single_scores] == pytest.approx(block_scores)
    assert np.concatenate([without_each for _, without_each in single_scores]) == pytest.approx(without)
    log_sums = []
    for pair in itertools.product((-1, -2, -4), (-3, -30, -8)):
        log_sums.append(logsumexp(pair))
    expected = [
        np.mean(log_sums),
        np.mean([logsumexp([without_each, -7]) for without_each in (-1, -2, -40)]),
        logsumexp([-6, -9]),
        -INF,
    ]
    assert [without_each - logsumexp([-5, -5]) for without_each in expected] == pytest.approx(block_scores[:4])
    drawn_scores, _ = matched_count_score(log_p, held_out, 10, generator())
    assert block_scores[:4] == pytest.approx(drawn_scores[:4])
    assert block_scores[4] != drawn_scores[4] == pytest.approx(block_scores[4], abs=3.0)


@pytest.mark.parametrize(
    ("trained", "held_out", "expected"), [(-INF, -3.0, -INF), (-INF, -INF, NAN), (-2.0, -INF, INF), (-2.0, -3.0, 1.0)]
)
def test_impossible_in_every_draw_scores_as_published(trained: float, held_out: float, expected: float) -> None:
    log_p = np.array([[[trained, trained, held_out]] * 3, [[-1.0, -2.0, -3.0]] * 3])
    score = matched_count_score(log_p, np.full((2, 3), 2), 2, generator())[0][0]
    assert [expected] == pytest.approx([score], nan_ok=True)


def test_score_without_incomplete_repetition_uses_the_others() -> None:
    log_p = noise(generator(4), 30, 3, 4, 4.0)
    held_out = np.tile([0, 1, 2], (30, 1))
    log_p[:, 1, 2:] = NAN  # one model that trained on it, and one that held it out
    log_p[:, 2, 2] = NAN  # no model that held it out
    log_means = terms(log_p, held_out)
    for repetition in range(3):
        rest = terms(np.delete(log_p, repetition, axis=1), np.delete(held_out, repetition, axis=1))
        assert rest.score == pytest.approx(log_means.score_without_each[:, repetition], abs=1e-9)


def test_repetition_without_trained_or_held_out_is_nan() -> None:
    log_p = np.array([[[-1.0, -4.0, -2.0], [NAN, -9.0, NAN], [-9.0, NAN, -9.0], [NAN, NAN, NAN], [NAN, -3.0, -7.0]]])
    trained, held_out = terms(log_p, np.array([[1, 1, 1, 1, 1]])).by_repetition
    half = logsumexp([-1, -2]) - math.log(2)
    assert trained[0] == pytest.approx([half, NAN, -9.0, NAN, -7.0], nan_ok=True)
    assert held_out[0] == pytest.approx([-4.0, -9.0, NAN, NAN, -3.0], nan_ok=True)


def test_empty_block_has_no_scores() -> None:
    no_observations = np.zeros((0, 2, 3)), np.zeros((0, 2), np.int64)
    assert len(terms(*no_observations).score) == 0
    assert matched_count_score(*no_observations, 4, generator())[0].shape == (0,)


def test_impossible_draws_are_left_out_of_the_mean() -> None:
    log_p = np.array([[[-INF, -3.0, -1.0], [-INF, -3.0, -2.0]]])
    # Of four choices, one consists of two impossible models; the others sum to e^-3, e^-3 and 2 e^-3.
    held_out_sum = logsumexp([-1, -2])
    expected = (-3 - 3 - 3 + math.log(2)) / 3 - held_out_sum
    assert [expected] == pytest.approx(matched_count_score(log_p, np.array([[2, 2]]), 4, generator())[0])


def test_published_score_is_biased_but_matched_is_not() -> None:
    n = 8000
    for sd, lean in ((5.0, 2.7), (50.0, 44.4)):
        log_p = noise(generator(3), n, 10, 10, sd)
        held_out = partitions(generator(4), n, 10, 10)
        published = terms(log_p, held_out).score
        score, _ = matched_count_score(log_p, held_out, 16, generator(), without_each=False)
        errors = []
        for score_of_kind in (published, score):
            errors.append(score_of_kind.std() / math.sqrt(n))
        assert abs(published.mean() - lean) < 3 * errors[0] < lean / 20
        assert abs(score.mean()) < 3 * errors[1] < lean / 20


def test_seed_determines_the_draws() -> None:
    log_p = noise(generator(), 20, 3, 5, 2.0)
    held_out = partitions(generator(1), 20, 3, 5)
    first = matched_count_score(log_p, held_out, 8, generator(5))[0].tolist()
    second = matched_count_score(log_p, held_out, 8, generator(5))[0].tolist()
    third = matched_count_score(log_p, held_out, 8, generator(6))[0].tolist()
    assert first == second
    assert first != third
