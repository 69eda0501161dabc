"""The exact test by hand, over all its randomisations, and on transformed scores."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from math import comb

import numpy as np
import pytest
from numpy.typing import NDArray

from tasks.numerics.exact_test import randomisation_p_values, reduced_p_values, smallest_p_value
from tasks.numerics.ranks import false_discovery_control


def halves(models: int) -> NDArray[np.bool_]:
    """Every half of the models as a column, (models, halves)."""
    subsets = list(combinations(range(models), models // 2))
    member = np.zeros((models, len(subsets)), dtype=bool)
    for column, subset in enumerate(subsets):
        member[list(subset), column] = True
    return member


def test_p_value_is_share_of_larger_sums() -> None:
    scores = np.array([[4.0, 4.0, 1.0], [3.0, 1.0, 1.0], [2.0, 3.0, 1.0], [1.0, 2.0, 1.0]])
    member = np.array([[True] * 3, [True] * 3, [False] * 3, [False] * 3])
    # 4 + 3 is the largest of six sums; 4 + 1 is reached by 4 + 3, 4 + 2, 3 + 2 and itself; all sums of ones are equal.
    assert pytest.approx(randomisation_p_values(scores, member, 99, 0)) == [1 / 6, 4 / 6, 1.0]
    assert randomisation_p_values(scores[:, :1], ~member[:, :1], 99, 0)[0] == pytest.approx(1.0)


def test_blocks_of_records_have_the_same_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = np.random.default_rng(4)
    member = stream.permuted(np.tile(np.arange(20)[:, None] < 10, 25), axis=0)
    scores = stream.normal(size=(20, 25)) + member * (np.arange(25) % 5)
    expected = randomisation_p_values(scores, member, 199, 0, 0.05)
    monkeypatch.setattr("tasks.numerics.exact_test.RECORDS_AT_ONCE", 4)
    assert randomisation_p_values(scores, member, 199, 0, 0.05).tolist() == expected.tolist()


@pytest.mark.parametrize(("effect", "share"), [(0.0, 0.0), (3.0, 0.02), (3.0, 0.3), (1.6, 1.0)])
def test_costly_stages_are_not_needed_to_find_records(
    effect: float, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = np.random.default_rng(8)
    member = stream.permuted(np.tile(np.arange(20)[:, None] < 10, 600), axis=0)
    scores = stream.normal(size=(20, 600)) + effect * member * (np.arange(600) < 600 * share)
    p_values = {}
    for always in (0, 2**40):
        monkeypatch.setattr("tasks.numerics.exact_test.ALWAYS", always)
        found = randomisation_p_values(scores, member, 99, 0, 0.05)
        p_values[always] = np.stack([found, reduced_p_values(scores, member, found, 0.4, 99, 0, 0.05)])
    assert (p_values[0] >= p_values[2**40]).all()
    is_detected = [false_discovery_control(of_test) <= 0.05 for of_test in [*p_values[0], *p_values[2**40]]]
    assert np.array_equal(is_detected[:2], is_detected[2:])
    assert not (is_detected[1] & ~is_detected[0]).any()
    assert is_detected[0].sum() >= 600 * share / 2
    assert (p_values[0] > p_values[2**40]).any() == (share > 0)


@pytest.mark.parametrize("decimals", [12, 0, -1])
def test_p_values_are_valid_over_all_halves(decimals: int) -> None:
    member = halves(6)
    scores = np.random.default_rng(3).normal(0, 3, 6).round(decimals)[:, None] * np.ones(member.shape[1])
    p_values = randomisation_p_values(scores, member, 99, 0)
    levels = np.arange(1, 21) / 20
    shares = (p_values[:, None] <= levels + 1e-12).mean(axis=0)
    assert (shares <= levels + 1e-12).all()
    if decimals == 12:
        assert levels == pytest.approx(shares)  # exact without equal scores


@pytest.mark.parametrize("change", [lambda s: 3 * s - 2, lambda s: s / 1e6, lambda s: s + 1e6])
def test_scale_and_shift_do_not_change_p_values(
    change: Callable[[NDArray[np.float64]], NDArray[np.float64]],
) -> None:
    stream = np.random.default_rng(4)
    member = halves(8)
    scores = stream.normal(size=(8, member.shape[1])).round(6)
    before = randomisation_p_values(scores, member, 99, 0)
    after = randomisation_p_values(change(scores), member, 99, 0)
    assert before == pytest.approx(after)


def test_many_models_use_drawn_halves_and_few_all() -> None:
    scores = np.arange(20.0)[:, None]
    member = scores >= 10
    assert randomisation_p_values(scores, member, 199, 0) == [1 / 200]
    assert smallest_p_value(20, 199) == 1 / 200
    assert smallest_p_value(16, 199) == 1 / 12870
    assert comb(16, 8) == 12870
    # Two in five sets of eight contain a given model.
    one = np.arange(20) < 1
    eight = np.arange(20) < 8
    p_value = randomisation_p_values(one[:, None].astype(float), eight[:, None], 9999, 0)[0]
    assert p_value == pytest.approx(0.4, abs=0.025)


def test_records_without_variation_have_no_p_value() -> None:
    scores = np.arange(4.0)[:, None] * np.ones(3)
    member = np.array([[True, False, False], [True, False, False], [True, False, False], [True, False, True]])
    assert randomisation_p_values(scores, member, 99, 0) == pytest.approx([np.nan, np.nan, 1 / 4], nan_ok=True)
