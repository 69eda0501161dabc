"""The randomisation test against every parting there is, and its error rates."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from tasks.audits.deja_vu import randomisation as module
from tasks.audits.deja_vu.accuracy import Inferences, Way, accuracy
from tasks.audits.deja_vu.randomisation import Parted, differs, p_value, pool_ways, redrawn
from tests.support.calibration import assert_rate, bounds

Ways = tuple[Way, Way]


def drawn(seed: int, n: int, classes: int = 3, memory: float = 0.0, skill: tuple[float, float] = (0.5, 0.5)) -> Ways:
    """Two models of these skills, each of which knows a share of its own images and is confident of them."""
    rng = np.random.default_rng(seed)

    def of(own: bool, right: float) -> Inferences:
        known = (rng.random(n) < memory) & own
        return Inferences(known | (rng.random(n) < right), rng.random(n) + known)

    labels = np.arange(n) % classes
    first = Way(labels, of(True, skill[0]), of(False, skill[1]))
    return first, Way(labels, of(True, skill[1]), of(False, skill[0]))


def test_the_score_of_the_true_parting_is_the_mean_of_both_ways() -> None:
    ways = drawn(0, 30)
    pictures = pool_ways(ways)
    for percent in (5, 20, 50, 100):
        expected = np.mean([accuracy(way.target, [percent]) - accuracy(way.reference, [percent]) for way in ways])
        found = Parted(pictures, percent).scores(pictures.first[None])
        assert [pytest.approx(expected, abs=1e-12)] == found.tolist()


def test_p_is_the_share_of_all_partings_whose_score_is_as_high() -> None:
    ways = drawn(4, 4, classes=1, memory=0.6)
    pictures = pool_ways(ways)
    masks = np.array([[at in chosen for at in range(8)] for chosen in itertools.combinations(range(8), 4)])
    found = Parted(pictures, 50).scores(masks)
    exact = np.mean(found >= Parted(pictures, 50).scores(pictures.first[None])[0] - 1e-12)
    assert exact < 1
    assert p_value(ways, 50, 20_000, np.random.default_rng(1)) == pytest.approx(exact, abs=0.02)


@pytest.mark.parametrize("cells", [1, 100])
def test_partings_keep_the_number_of_pictures_of_every_class_and_the_parts_of_memory_change_nothing(
    monkeypatch: pytest.MonkeyPatch, cells: int
) -> None:
    pictures = pool_ways(drawn(2, 11, classes=4))
    monkeypatch.setattr(module, "CELLS", cells)
    masks = np.concatenate(list(redrawn(pictures, 37, np.random.default_rng(0))))
    assert masks.shape == (37, 22)
    for label in range(4):
        of_class = pictures.labels == label
        assert {int(pictures.first[of_class].sum())} == set(masks[:, of_class].sum(axis=1).tolist())
    assert len(np.unique(masks, axis=0)) > 30


def test_a_model_that_is_better_everywhere_is_not_taken_for_one_that_remembers() -> None:
    found = [p_value(drawn(seed, 40, skill=(0.9, 0.3)), 20, 199, np.random.default_rng(seed)) for seed in range(400)]
    assert_rate(0.05, sum(p is not None and p <= 0.05 for p in found), 400)


def test_models_that_remember_nothing_are_called_at_the_stated_rate() -> None:
    found = [p_value(drawn(seed, 30), 20, 199, np.random.default_rng(seed)) for seed in range(1000)]
    assert sum(p is not None and p <= 0.025 for p in found) <= 45  # exact, or less where scores are tied
    assert_rate(0.05, sum(p is not None and p <= 0.05 for p in found), 1000)


def two_way_p(true: float, drawn: list[float]) -> float:
    """Twice the smaller share of the drawn ones, and the true one, that are at least or at most the true one."""
    above, below = (1 + sum(each >= true for each in drawn)) / 10, (1 + sum(each <= true for each in drawn)) / 10
    return min(1.0, 2 * min(above, below))


@pytest.mark.parametrize("seed", range(4))
def test_p_counts_the_true_parting_among_those_that_are_drawn(seed: int) -> None:
    ways = drawn(seed, 5, classes=1, memory=0.3)
    pictures = pool_ways(ways)
    masks = np.concatenate(list(redrawn(pictures, 9, np.random.default_rng(seed))))
    scores = np.round(Parted(pictures, 50).scores(masks), 9)
    true = np.round(Parted(pictures, 50).scores(pictures.first[None])[0], 9)
    assert (1 + (scores >= true).sum()) / 10 == p_value(ways, 50, 9, np.random.default_rng(seed))
    gain = [round(gains(pictures.inferences_a, pictures.labels, mask, 50), 9) for mask in (pictures.first, *masks)]
    found = differs(pictures.labels, pictures.first, pictures.inferences_a, 50, 9, np.random.default_rng(seed))
    assert two_way_p(gain[0], gain[1:]) == found


def test_pictures_of_both_ways_are_pooled_in_the_order_of_their_ids() -> None:
    def says(*confidence: float) -> Inferences:
        return Inferences(np.array(confidence) > 3, np.array(confidence))

    there = Way(np.array([7, 8]), says(1, 2), says(3, 4), np.array(["b", "d"]))
    back = Way(np.array([5, 6, 9]), says(10, 20, 50), says(30, 40, 60), np.array(["a", "c", "e"]))
    pooled = pool_ways((there, back))
    assert (pooled.labels.tolist(), pooled.first.tolist()) == ([5, 7, 6, 8, 9], [False, True, False, True, False])
    # One model is the first way's target and the second one's reference.
    assert pooled.inferences_a.confidence.tolist() == [30, 1, 40, 2, 60]
    assert pooled.inferences_b.confidence.tolist() == [10, 3, 20, 4, 50]
    assert pooled.inferences_a.correct.tolist() == [True, False, True, False, True]
    assert pool_ways((replace(there, ids=None), back)).labels.tolist() == [7, 8, 5, 6, 9]
    assert pool_ways((there, replace(back, ids=None))).labels.tolist() == [7, 8, 5, 6, 9]


def test_a_tenth_of_the_pictures_known_is_found() -> None:
    found = [p_value(drawn(seed, 300, memory=0.1), 20, 999, np.random.default_rng(seed)) for seed in range(20)]
    assert all(p is not None and p <= 0.025 for p in found)


def test_without_pictures_of_one_set_there_is_no_p() -> None:
    first, _ = drawn(0, 5)
    nobody = Inferences(np.empty(0, bool), np.empty(0))
    empty = Way(np.empty(0, np.int64), nobody, nobody)
    assert p_value((first, empty), 20, 99, np.random.default_rng(0)) is None


def gains(of: Inferences, labels: np.ndarray, first: np.ndarray, percent: int) -> float:
    """A model's accuracy on the first set less that on the second."""
    inside, outside = (Inferences(of.correct[part], of.confidence[part]) for part in (first, ~first))
    return float(accuracy(inside, [percent])[0] - accuracy(outside, [percent])[0])


@pytest.mark.parametrize("better", [True, False])
def test_a_model_that_tells_the_sets_apart_is_told_by_both_tails_of_all_partings(better: bool) -> None:
    rng = np.random.default_rng(3)
    labels, first = np.zeros(8, np.int64), np.arange(8) < 4
    of = Inferences(rng.random(8) < 0.4 + 0.4 * first, rng.random(8))
    first = first if better else ~first
    masks = np.array([[at in chosen for at in range(8)] for chosen in itertools.combinations(range(8), 4)])
    drawn_gains = np.array([gains(of, labels, mask, 50) for mask in masks])
    true = gains(of, labels, first, 50)
    above, below = np.mean(drawn_gains >= true - 1e-12), np.mean(drawn_gains <= true + 1e-12)
    found = differs(labels, first, of, 50, 20_000, np.random.default_rng(1))
    assert found == pytest.approx(min(1, 2 * min(above, below)), abs=0.02)


def test_without_one_of_the_sets_nothing_is_said_of_their_difference() -> None:
    of = Inferences(np.ones(3, bool), np.zeros(3))
    for first in (np.ones(3, bool), np.zeros(3, bool)):
        assert None is differs(np.zeros(3, np.int64), first, of, 20, 19, np.random.default_rng(0))


def test_sets_that_are_alike_are_told_apart_as_often_as_the_level_says() -> None:
    happened = 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        labels, first = np.tile(np.arange(4), 20), np.arange(80) < 40
        of = Inferences(rng.random(80) < 0.4, rng.random(80))
        p = differs(labels, first, of, 40, 99, rng)
        happened += p is not None and p <= 0.1
    low, high = bounds(0.1, 400)
    assert happened <= high
    assert happened >= low // 2  # scores of few images are often equal, which makes p larger


def test_ties_are_told_by_ids_which_do_not_know_the_sets() -> None:
    # One neighbour: all are equally confident, and images that come first are named more often than others.
    n, found = 60, []
    for seed in range(1000):
        rng = np.random.default_rng(seed)
        right = rng.random((2, n)) < np.linspace(0.9, 0.1, n)
        first = np.sort(rng.permutation(n)[: n // 2])
        second = np.setdiff1d(np.arange(n), first)
        same = np.zeros(n)
        ways = [
            Way(
                np.zeros(n // 2, np.int64),
                *(Inferences(right[model][rows], same[rows]) for model in order),
                np.array([f"{row:03d}" for row in rows]),
            )
            for rows, order in ((first, (0, 1)), (second, (1, 0)))
        ]
        found.append(p_value((ways[0], ways[1]), 20, 199, np.random.default_rng(seed)))
    assert sum(p is not None and p <= 0.025 for p in found) <= bounds(0.025, 1000)[1]
