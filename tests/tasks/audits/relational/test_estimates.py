"""Intervals over contexts, and the entropy of answers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tasks.audits.relational import estimates
from tasks.audits.relational.estimates import (
    ContextSums,
    bootstrap_means,
    contrasts,
    entropy,
    estimate,
    sum_by_context,
)
from tasks.contract.summaries import Estimate
from tasks.numerics import seeds


def drawn(rng: np.random.Generator, contexts: int, rate: float, alike: float, models: int = 1) -> ContextSums:
    """Return questions of contexts, 1 to 5 each; the rate of correct answers varies between contexts by `alike`.

    Each column is a model's, which knows its own contexts.
    """
    scale, size = 1 / alike - 1, (contexts, models)
    rates = rng.beta(rate * scale, (1 - rate) * scale, size) if rate else np.zeros(size)
    places = np.repeat(np.arange(contexts), rng.integers(1, 6, contexts))
    return sum_by_context((rng.random((len(places), models)) < rates[places]).astype(float), places)


def test_questions_are_summed_by_context() -> None:
    found = sum_by_context(np.array([[1.0, 0.5], [0.0, 0.5], [1.0, 0.0]]), np.array([7, 7, 3]))
    assert found.sums.tolist() == [[1.0, 0.0], [1.0, 1.0]]
    assert found.counts.tolist() == [1.0, 2.0]
    assert pytest.approx([2 / 3, 1 / 3]) == found.means.tolist()


def test_estimates_lie_inside_their_intervals() -> None:
    train, validation = sum_by_context(np.ones((4, 1)), np.arange(4)), sum_by_context(np.zeros((2, 1)), np.arange(2))
    (found,) = contrasts(train, validation, 500, 0)
    assert (found.train.value, found.validation.value, found.difference.value) == (1.0, 0.0, 1.0)
    assert (found.train.n, found.validation.n, found.difference.n) == (4, 2, 6)
    for each in (found.train, found.validation, found.difference):
        assert each.low is not None
        assert each.value is not None
        assert each.high is not None
        assert each.low < each.high
        assert each.low <= each.value <= each.high


def test_a_part_without_questions_has_no_estimate() -> None:
    nothing = sum_by_context(np.empty((0, 1)), np.empty(0, int))
    (found,) = contrasts(sum_by_context(np.ones((2, 1)), np.arange(2)), nothing, 50, 0)
    assert Estimate(None, None, None, 2) == found.difference
    assert (Estimate(None, None, None, 2), Estimate(None, None, None, 0)) == (found.train, found.validation)
    assert found.p_value is None
    assert [each.p_value for each in contrasts(*[sum_by_context(np.empty((0, 3)), np.empty(0, int))] * 2, 9, 0)] == [
        None
    ] * 3


@pytest.mark.parametrize("at_once", [1, 13, 4_000_000])
def test_resamples_include_one_right_one_wrong_context(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    of = ContextSums(np.array([[1.0, 0.0], [2.0, 3.0], [0.0, 1.0]]), np.array([1.0, 4.0, 1.0]))
    weights = np.random.default_rng(3).multinomial(5, [1 / 5] * 5, 7)
    with_ends, sizes = np.vstack([of.sums, [2.0, 2.0], [0.0, 0.0]]), np.array([1.0, 4.0, 1.0, 2.0, 2.0])
    expected = [[row @ with_ends[:, column] / (row @ sizes) for column in range(2)] for row in weights]
    monkeypatch.setattr(estimates, "DRAWN_AT_ONCE", at_once)
    np.testing.assert_allclose(expected, bootstrap_means(of, 7, np.random.default_rng(3)))


def test_interval_is_central_and_contains_value() -> None:
    draws = np.arange(201) / 200
    assert Estimate(0.5, pytest.approx(0.025), pytest.approx(0.975), 3) == estimate(0.5, draws, 3)
    assert Estimate(-1.0, -1.0, pytest.approx(0.975), 3) == estimate(-1.0, draws, 3)
    assert Estimate(2.0, pytest.approx(0.025), 2.0, 3) == estimate(2.0, draws, 3)


def test_each_column_is_contrasted_by_itself() -> None:
    train = sum_by_context(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), np.array([0, 1, 2]))
    validation = sum_by_context(np.array([[0.0, 1.0], [0.0, 0.0]]), np.array([0, 1]))
    first, second = contrasts(train, validation, 99, 0)
    assert pytest.approx([first.train.value, first.validation.value, first.difference.value]) == [2 / 3, 0.0, 2 / 3]
    assert pytest.approx([second.train.value, second.validation.value, second.difference.value]) == [1 / 3, 0.5, -1 / 6]
    means = [
        bootstrap_means(each, 99, seeds.generator(0, "contexts", name))
        for each, name in ((train, "train"), (validation, "validation"))
    ]
    for column, found in enumerate((first, second)):
        for side, draws in (
            (found.train, means[0]),
            (found.validation, means[1]),
            (found.difference, means[0] - means[1]),
        ):
            low, high = np.quantile(draws[:, column], [0.025, 0.975])
            assert side.value is not None
            assert (min(low, side.value), max(high, side.value)) == pytest.approx((side.low, side.high))


def test_an_interval_comes_from_its_seed() -> None:
    rng = np.random.default_rng(0)
    parts = drawn(rng, 30, 0.3, 0.3), drawn(rng, 20, 0.3, 0.3)
    assert contrasts(*parts, 200, 1) == contrasts(*parts, 200, 1)
    assert contrasts(*parts, 200, 1) != contrasts(*parts, 200, 2)


def test_p_value_agrees_with_interval() -> None:
    rng = np.random.default_rng(0)
    for rate in (0.1, 0.2, 0.25, 0.3, 0.5):
        (found,) = contrasts(drawn(rng, 60, rate, 0.2), drawn(rng, 40, 0.1, 0.2), 999, 0)
        assert found.p_value is not None
        assert found.difference.low is not None
        assert (found.difference.low > 0) == (found.p_value <= 0.025)


def test_p_value_counts_differences_at_most_zero() -> None:
    right, wrong = sum_by_context(np.ones((40, 1)), np.arange(40)), sum_by_context(np.zeros((40, 1)), np.arange(40))
    (surely,), (never,) = contrasts(right, wrong, 99, 0), contrasts(wrong, right, 99, 0)
    assert (surely.p_value, never.p_value) == (1 / 100, 100 / 100)
    one = sum_by_context(np.ones((1, 1)), np.arange(1))  # with a context of either kind: ties are frequent
    (alike,) = contrasts(one, one, 99, 3)
    means = [bootstrap_means(one, 99, seeds.generator(3, "contexts", name))[:, 0] for name in ("train", "validation")]
    below, ties = int((means[0] < means[1]).sum()), int((means[0] == means[1]).sum())
    assert ties > 0
    assert (below + ties + 1) / 100 == alike.p_value


@pytest.mark.parametrize(
    ("contexts", "rate", "alike"),
    [((100, 50), 0.0, 0.3), ((300, 100), 0.01, 0.3), ((100, 30), 0.1, 0.5), ((600, 200), 0.3, 0.3)],
)
def test_interval_covers_zero_without_memory(contexts: tuple[int, int], rate: float, alike: float) -> None:
    """The rule of the verdict under its null: 400 models each, in groups of twenty with the same resamples."""
    rng = np.random.default_rng(1)
    covered = accused = 0
    for seed in range(20):
        train, validation = (drawn(rng, count, rate, alike, 20) for count in contexts)
        for found in contrasts(train, validation, 1000, seed):
            m = found.difference
            assert m.low is not None
            assert m.high is not None
            covered += m.low <= 0 <= m.high
            accused += m.low > 0
    assert covered >= 0.93 * 400
    assert accused <= 0.04 * 400  # 2.5 % expected; 4 % or more has a probability of 4 % at that


def test_a_share_of_memorised_answers_is_found() -> None:
    rng = np.random.default_rng(2)
    found = 0
    for seed in range(10):
        parts = drawn(rng, 400, 0.12, 0.3, 10), drawn(rng, 150, 0.04, 0.3, 10)
        for each in contrasts(*parts, 1000, seed):
            found += each.difference.low is not None and each.difference.low > 0
    assert found >= 80


def test_entropy_of_uniform_answers_is_log_count() -> None:
    assert pytest.approx(math.log(4)) == entropy([("1",), ("2",), ("3",), ("4",)] * 25)


def test_one_answer_has_none() -> None:
    assert entropy(["7"] * 20) == 0.0


def test_frequencies_count() -> None:
    expected = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert pytest.approx(expected) == entropy(["a"] * 75 + ["b"] * 25)
    assert entropy([str(n % 4) for n in range(42)]) is not None
    assert entropy([str(n % 4) for n in range(39)]) is None


@pytest.mark.parametrize("answers", [[], ["1"] * 9, [str(n) for n in range(1000)], [str(n % 100) for n in range(999)]])
def test_entropy_needs_ten_samples_per_answer(answers: list[str]) -> None:
    assert entropy(answers) is None
