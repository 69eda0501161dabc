"""Ties and numbers that are not finite, in ranks and in the exact test."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.audits.membership.trainings import stack_answers
from tasks.numerics.exact_test import enough_draws, randomisation_p_values, reduced_p_values
from tasks.numerics.ranks import rank_p_value, share_below, share_tied
from tests.tasks.audits.membership.made_up import make_answers

INVALID = [np.nan, np.inf, -np.inf]


def test_ties_are_counted_by_column() -> None:
    scores = np.array([[1.0, 1.0, 1.0], [2.0, 1.0, 1.0], [3.0, 2.0, 1.0], [4.0, 2.0, 1.0]])
    assert share_tied(scores).tolist() == [0.0, 2 / 6, 1.0]
    assert share_tied(scores[:, 1]) == 2 / 6
    assert np.isnan(share_tied(scores[:1, 0]))


@pytest.mark.parametrize(
    ("scores", "below", "p_value"),
    [([3.0, 1.0, 2.0, 0.0], 7 / 8, 1 / 4), ([1.0, 1.0, 1.0, 1.0], 1 / 2, 1.0), ([1.0, 1.0, 0.0, 2.0], 1 / 2, 3 / 4)],
)
def test_ties_count_half_and_against_p_values(scores: list[float], below: float, p_value: float) -> None:
    assert share_below(np.array(scores)) == below
    assert rank_p_value(np.array(scores)) == p_value


@pytest.mark.parametrize("invalid", INVALID)
def test_numbers_that_are_not_finite_are_refused(invalid: float) -> None:
    tables = make_answers(8, 20, 0.0, 600_400)
    odds = tables[3]["log_odds"].to_numpy().copy()
    odds[5] = invalid
    tables[3] = tables[3].set_column(2, "log_odds", [odds])
    with pytest.raises(ValueError, match="1 of 160 scores are NaN or infinite"):
        stack_answers(tables)
    member = np.arange(6)[:, None] < 3
    scores = np.where(np.arange(6)[:, None] == 2, invalid, np.arange(6.0)[:, None])
    with pytest.raises(ValueError, match="1 of 6 scores are NaN or infinite"):
        randomisation_p_values(scores, member, 99, 0)


def test_p_is_at_least_one_over_all_sets() -> None:
    member = np.arange(24)[:, None] < 12
    p_values = randomisation_p_values(member.astype(float), member, 199, 0)
    assert p_values.tolist() == [1 / 200]
    # More sets are drawn: the number that one of 500 records needs at 5 %.
    more = randomisation_p_values(member.astype(float), member, 199, 0, level=0.05, tests=500)
    assert 1 / (1 + enough_draws(0.05, 500)) <= more[0] <= 0.05 / 500


def test_effect_below_threshold_is_significant_but_not_memorised() -> None:
    member = np.arange(16)[:, None] < 8
    scores = np.linspace(0, 1e-6, 16)[:, None] + member * np.array([[0.05, 0.2]])
    p_values = randomisation_p_values(scores, np.repeat(member, 2, axis=1), 999, 0, 0.05)
    reduced = reduced_p_values(scores, np.repeat(member, 2, axis=1), p_values, 0.1, 999, 0, 0.05)
    assert p_values.tolist() == [1 / 12870] * 2
    assert reduced.tolist() == [1.0, 1 / 12870]
