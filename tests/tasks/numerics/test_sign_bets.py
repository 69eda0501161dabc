"""Bets on signs: exact expectations by enumeration, and the records that evidence identifies."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import integrate

from tasks.numerics.sign_bets import adjust_evidence, find_by_evidence, running_evidence, sign_evidence


@pytest.mark.parametrize("count", [1, 2, 5])
def test_expected_evidence_of_fair_signs_is_one(count: int) -> None:
    sequences = np.array(list(itertools.product([False, True], repeat=count))).T
    assert running_evidence(sequences) == pytest.approx(np.ones(count))  # all sequences are equally likely
    for is_positive in (False, True):
        before = sign_evidence(np.array([1]), count)[0]
        branches = sign_evidence(np.array([1, 2]), count + 1)
        assert branches.mean() == pytest.approx(before), is_positive


def test_evidence_is_the_mixture_over_probabilities() -> None:
    for positives, count in ((0, 1), (3, 7), (7, 7)):
        bets, _ = integrate.quad(lambda p, k=positives, m=count: 2 * (2 * p) ** k * (2 - 2 * p) ** (m - k), 0.5, 1)
        assert sign_evidence(np.array([positives]), count)[0] == pytest.approx(bets)


def test_evidence_stays_finite_after_many_comparisons() -> None:
    values = sign_evidence(np.array([0, 2000]), 2000)
    assert np.isfinite(values).all()
    assert values[0] == pytest.approx(1 / 2001)
    assert values[1] > 1e299


def test_found_hypotheses_have_enough_evidence_together() -> None:
    evidence = np.array([0.1, 50.0, 41.0, 0.2])
    assert find_by_evidence(evidence, 0.05).tolist() == [False, True, True, False]  # 4 / (2 * 0.05) = 40
    assert adjust_evidence(evidence) == pytest.approx(4 / 82)
    assert not find_by_evidence(evidence, 0.04).any()
