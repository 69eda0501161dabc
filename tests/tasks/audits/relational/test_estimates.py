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


def draw_sums(rng: np.random.Generator, contexts: int, rate: float, variation: float, models: int = 1) -> ContextSums:
    """Return questions of contexts, 1 to 5 each; the rate of correct answers differs between contexts by
    `variation`.

    Each column belongs to one model, which knows different contexts from the others.
    """
    scale = 1 / variation - 1
    size = (contexts, models)
    rates = rng.beta(rate * scale, (1 - rate) * scale, size) if rate else np.zeros(size)
    context_numbers = np.repeat(np.arange(contexts), rng.integers(1, 6, contexts))
    return sum_by_context(
        (rng.random((len(context_numbers), models)) < rates[context_numbers]).astype(float), context_numbers
    )


def test_questions_are_summed_by_context() -> None:
    sums = sum_by_context(np.array([[1.0, 0.5], [0.0, 0.5], [1.0, 0.0]]), np.array([7, 7, 3]))
    assert sums.sums.tolist() == [[1.0, 0.0], [1.0, 1.0]]
    assert sums.counts.tolist() == [1.0, 2.0]
    assert sums.means.tolist() == pytest.approx([2 / 3, 1 / 3])


def test_estimates_lie_inside_their_intervals() -> None:
    train = sum_by_context(np.ones((4, 1)), np.arange(4))
    validation = sum_by_context(np.zeros((2, 1)), np.arange(2))
    (contrast,) = contrasts(train, validation, 500, 0)
    assert contrast.train.value == 1.0
    assert contrast.validation.value == 0.0
    assert contrast.difference.value == 1.0
    assert contrast.train.n == 4
    assert contrast.validation.n == 2
    assert contrast.difference.n == 6
    for side in (contrast.train, contrast.validation, contrast.difference):
        assert side.low is not None
        assert side.value is not None
        assert side.high is not None
        assert side.low < side.high
        assert side.low <= side.value <= side.high


def test_part_without_questions_has_no_estimate() -> None:
    no_questions = sum_by_context(np.empty((0, 1)), np.empty(0, int))
    (contrast,) = contrasts(sum_by_context(np.ones((2, 1)), np.arange(2)), no_questions, 50, 0)
    assert Estimate(None, None, None, 2) == contrast.difference
    assert Estimate(None, None, None, 2) == contrast.train
    assert Estimate(None, None, None, 0) == contrast.validation
    assert contrast.p_value is None
    assert [
        contrast_of_none.p_value
        for contrast_of_none in contrasts(*[sum_by_context(np.empty((0, 3)), np.empty(0, int))] * 2, 9, 0)
    ] == [None] * 3


@pytest.mark.parametrize("at_once", [1, 13, 4_000_000])
def test_resamples_add_a_right_and_a_wrong_context(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    context_sums = ContextSums(np.array([[1.0, 0.0], [2.0, 3.0], [0.0, 1.0]]), np.array([1.0, 4.0, 1.0]))
    weights = np.random.default_rng(3).multinomial(5, [1 / 5] * 5, 7)
    with_ends = np.vstack([context_sums.sums, [2.0, 2.0], [0.0, 0.0]])
    sizes = np.array([1.0, 4.0, 1.0, 2.0, 2.0])
    expected = []
    for row in weights:
        expected.append([row @ with_ends[:, column] / (row @ sizes) for column in range(2)])
    monkeypatch.setattr(estimates, "DRAWN_AT_ONCE", at_once)
    np.testing.assert_allclose(expected, bootstrap_means(context_sums, 7, np.random.default_rng(3)))


def test_interval_is_central_and_contains_value() -> None:
    draws = np.arange(201) / 200
    assert Estimate(0.5, pytest.approx(0.025), pytest.approx(0.975), 3) == estimate(0.5, draws, 3)
    assert Estimate(-1.0, -1.0, pytest.approx(0.975), 3) == estimate(-1.0, draws, 3)
    assert Estimate(2.0, pytest.approx(0.025), 2.0, 3) == estimate(2.0, draws, 3)


def test_columns_are_contrasted_independently() -> None:
    train = sum_by_context(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), np.array([0, 1, 2]))
    validation = sum_by_context(np.array([[0.0, 1.0], [0.0, 0.0]]), np.array([0, 1]))
    first, second = contrasts(train, validation, 99, 0)
    assert pytest.approx([first.train.value, first.validation.value, first.difference.value]) == [2 / 3, 0.0, 2 / 3]
    assert pytest.approx([second.train.value, second.validation.value, second.difference.value]) == [1 / 3, 0.5, -1 / 6]
    means = []
    for part_sums, name in ((train, "train"), (validation, "validation")):
        means.append(bootstrap_means(part_sums, 99, seeds.generator(0, "contexts", name)))
    for column, contrast in enumerate((first, second)):
        for side, draws in (
            (contrast.train, means[0]),
            (contrast.validation, means[1]),
            (contrast.difference, means[0] - means[1]),
        ):
            low, high = np.quantile(draws[:, column], [0.025, 0.975])
            assert side.value is not None
            assert (min(low, side.value), max(high, side.value)) == pytest.approx((side.low, side.high))


def test_seed_determines_an_interval() -> None:
    rng = np.random.default_rng(0)
    parts = draw_sums(rng, 30, 0.3, 0.3), draw_sums(rng, 20, 0.3, 0.3)
    assert contrasts(*parts, 200, 1) == contrasts(*parts, 200, 1)
    assert contrasts(*parts, 200, 1) != contrasts(*parts, 200, 2)


def test_p_value_agrees_with_interval() -> None:
    rng = np.random.default_rng(0)
    for rate in (0.1, 0.2, 0.25, 0.3, 0.5):
        (contrast,) = contrasts(draw_sums(rng, 60, rate, 0.2), draw_sums(rng, 40, 0.1, 0.2), 999, 0)
        assert contrast.p_value is not None
        assert contrast.difference.low is not None
        assert (contrast.difference.low > 0) == (contrast.p_value <= 0.025)


def test_p_value_counts_differences_at_most_zero() -> None:
    all_right = sum_by_context(np.ones((40, 1)), np.arange(40))
    all_wrong = sum_by_context(np.zeros((40, 1)), np.arange(40))
    (always_right,), (never_right,) = contrasts(all_right, all_wrong, 99, 0), contrasts(all_wrong, all_right, 99, 0)
    assert always_right.p_value == 1 / 100
    assert never_right.p_value == 100 / 100
    # a right and a wrong context are added, so ties are frequent
    single_context = sum_by_context(np.ones((1, 1)), np.arange(1))
    (equal_parts,) = contrasts(single_context, single_context, 99, 3)
    means = []
    for name in ("train", "validation"):
        means.append(bootstrap_means(single_context, 99, seeds.generator(3, "contexts", name))[:, 0])
    below = int((means[0] < means[1]).sum())
    ties = int((means[0] == means[1]).sum())
    assert ties > 0
    assert (below + ties + 1) / 100 == equal_parts.p_value


@pytest.mark.parametrize(
    ("contexts", "rate", "variation"),
    [((100, 50), 0.0, 0.3), ((300, 100), 0.01, 0.3), ((100, 30), 0.1, 0.5), ((600, 200), 0.3, 0.3)],
)
def test_interval_covers_zero_without_memory(contexts: tuple[int, int], rate: float, variation: float) -> None:
    """The rule of the verdict under its null: 400 models each, in groups of twenty with the same resamples."""
    rng = np.random.default_rng(1)
    covered = false_alarms = 0
    for seed in range(20):
        train, validation = (draw_sums(rng, count, rate, variation, 20) for count in contexts)
        for contrast in contrasts(train, validation, 1000, seed):
            m = contrast.difference
            assert m.low is not None
            assert m.high is not None
            covered += m.low <= 0 <= m.high
            false_alarms += m.low > 0
    assert covered >= 0.93 * 400
    assert false_alarms <= 0.04 * 400  # 2.5 % expected; 4 % or more has a probability of 4 % at that


def test_share_of_memorised_answers_is_detected() -> None:
    rng = np.random.default_rng(2)
    detections = 0
    for seed in range(10):
        parts = draw_sums(rng, 400, 0.12, 0.3, 10), draw_sums(rng, 150, 0.04, 0.3, 10)
        for contrast in contrasts(*parts, 1000, seed):
            detections += contrast.difference.low is not None and contrast.difference.low > 0
    assert detections >= 80


def test_entropy_of_uniform_answers_is_log_count() -> None:
    assert entropy([("1",), ("2",), ("3",), ("4",)] * 25) == pytest.approx(math.log(4))


def test_constant_answer_has_no_entropy() -> None:
    assert entropy(["7"] * 20) == 0.0


def test_entropy_uses_answer_frequencies() -> None:
    expected = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert entropy(["a"] * 75 + ["b"] * 25) == pytest.approx(expected)
    assert entropy([str(n % 4) for n in range(42)]) is not None
    assert entropy([str(n % 4) for n in range(39)]) is None


@pytest.mark.parametrize("answers", [[], ["1"] * 9, [str(n) for n in range(1000)], [str(n % 100) for n in range(999)]])
def test_entropy_needs_ten_samples_per_answer(answers: list[str]) -> None:
    assert entropy(answers) is None
