"""The randomisation test compared with all partitions, and its error rates."""

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


def draw_ways(
    seed: int, n: int, classes: int = 3, memory: float = 0.0, skill: tuple[float, float] = (0.5, 0.5)
) -> Ways:
    """Two models of these skills; each memorises a share of its training images and is confident about these images."""
    rng = np.random.default_rng(seed)

    def draw_inferences(is_own: bool, right: float) -> Inferences:
        is_memorised = (rng.random(n) < memory) & is_own
        return Inferences(is_memorised | (rng.random(n) < right), rng.random(n) + is_memorised)

    labels = np.arange(n) % classes
    first = Way(labels, draw_inferences(True, skill[0]), draw_inferences(False, skill[1]))
    return first, Way(labels, draw_inferences(True, skill[1]), draw_inferences(False, skill[0]))


def test_true_score_is_the_mean_of_both_ways() -> None:
    ways = draw_ways(0, 30)
    pooled = pool_ways(ways)
    for percent in (5, 20, 50, 100):
        expected = np.mean([accuracy(way.target, [percent]) - accuracy(way.reference, [percent]) for way in ways])
        scores = Parted(pooled, percent).scores(pooled.first[None])
        assert scores.tolist() == [pytest.approx(expected, abs=1e-12)]


def test_p_is_the_share_of_partitions_as_high() -> None:
    ways = draw_ways(4, 4, classes=1, memory=0.6)
    pooled = pool_ways(ways)
    masks = np.array([[index in members for index in range(8)] for members in itertools.combinations(range(8), 4)])
    scores = Parted(pooled, 50).scores(masks)
    exact = np.mean(scores >= Parted(pooled, 50).scores(pooled.first[None])[0] - 1e-12)
    assert exact < 1
    assert p_value(ways, 50, 20_000, np.random.default_rng(1)) == pytest.approx(exact, abs=0.02)


@pytest.mark.parametrize("cells", [1, 100])
def test_partitions_keep_class_counts_whatever_the_chunk_size(monkeypatch: pytest.MonkeyPatch, cells: int) -> None:
    pooled = pool_ways(draw_ways(2, 11, classes=4))
    monkeypatch.setattr(module, "CELLS", cells)
    masks = np.concatenate(list(redrawn(pooled, 37, np.random.default_rng(0))))
    assert masks.shape == (37, 22)
    for label in range(4):
        of_class = pooled.labels == label
        assert set(masks[:, of_class].sum(axis=1).tolist()) == {int(pooled.first[of_class].sum())}
    assert len(np.unique(masks, axis=0)) > 30


def test_uniformly_better_model_is_no_finding() -> None:
    p_values = []
    for seed in range(400):
        p_values.append(p_value(draw_ways(seed, 40, skill=(0.9, 0.3)), 20, 199, np.random.default_rng(seed)))
    assert_rate(0.05, sum(p is not None and p <= 0.05 for p in p_values), 400)


def test_false_alarm_rate_is_the_stated_level() -> None:
    p_values = []
    for seed in range(1000):
        p_values.append(p_value(draw_ways(seed, 30), 20, 199, np.random.default_rng(seed)))
    assert sum(p is not None and p <= 0.025 for p in p_values) <= 45  # exact, or less if scores are tied
    assert_rate(0.05, sum(p is not None and p <= 0.05 for p in p_values), 1000)


def two_way_p(true: float, drawn_scores: list[float]) -> float:
    """Twice the smaller share of drawn scores, the true score included, on either side of the true score."""
    above = (1 + sum(score >= true for score in drawn_scores)) / 10
    below = (1 + sum(score <= true for score in drawn_scores)) / 10
    return min(1.0, 2 * min(above, below))


@pytest.mark.parametrize("seed", range(4))
def test_p_counts_the_true_partition(seed: int) -> None:
    ways = draw_ways(seed, 5, classes=1, memory=0.3)
    pooled = pool_ways(ways)
    masks = np.concatenate(list(redrawn(pooled, 9, np.random.default_rng(seed))))
    scores = np.round(Parted(pooled, 50).scores(masks), 9)
    true = np.round(Parted(pooled, 50).scores(pooled.first[None])[0], 9)
    assert (1 + (scores >= true).sum()) / 10 == p_value(ways, 50, 9, np.random.default_rng(seed))
    gain = []
    for mask in (pooled.first, *masks):
        gain.append(round(gains(pooled.inferences_a, pooled.labels, mask, 50), 9))
    p = differs(pooled.labels, pooled.first, pooled.inferences_a, 50, 9, np.random.default_rng(seed))
    assert two_way_p(gain[0], gain[1:]) == p


def test_both_ways_are_pooled_in_id_order() -> None:
    def inferences(*confidence: float) -> Inferences:
        return Inferences(np.array(confidence) > 3, np.array(confidence))

    first_way = Way(np.array([7, 8]), inferences(1, 2), inferences(3, 4), np.array(["b", "d"]))
    second_way = Way(np.array([5, 6, 9]), inferences(10, 20, 50), inferences(30, 40, 60), np.array(["a", "c", "e"]))
    pooled = pool_ways((first_way, second_way))
    assert pooled.labels.tolist() == [5, 7, 6, 8, 9]
    assert pooled.first.tolist() == [False, True, False, True, False]
    # One model is the target of the first way and the reference of the second.
    assert pooled.inferences_a.confidence.tolist() == [30, 1, 40, 2, 60]
    assert pooled.inferences_b.confidence.tolist() == [10, 3, 20, 4, 50]
    assert pooled.inferences_a.correct.tolist() == [True, False, True, False, True]
    assert pool_ways((replace(first_way, ids=None), second_way)).labels.tolist() == [7, 8, 5, 6, 9]
    assert pool_ways((first_way, replace(second_way, ids=None))).labels.tolist() == [7, 8, 5, 6, 9]


def test_memory_of_a_tenth_is_detected() -> None:
    p_values = []
    for seed in range(20):
        p_values.append(p_value(draw_ways(seed, 300, memory=0.1), 20, 999, np.random.default_rng(seed)))
    assert all(p is not None and p <= 0.025 for p in p_values)


def test_p_is_undefined_without_both_sets() -> None:
    first, _ = draw_ways(0, 5)
    no_images = Inferences(np.empty(0, bool), np.empty(0))
    empty = Way(np.empty(0, np.int64), no_images, no_images)
    assert p_value((first, empty), 20, 99, np.random.default_rng(0)) is None


def gains(outcome: Inferences, labels: np.ndarray, first: np.ndarray, percent: int) -> float:
    """The model's accuracy on the first set minus its accuracy on the second."""
    inside, outside = (Inferences(outcome.correct[part], outcome.confidence[part]) for part in (first, ~first))
    return float(accuracy(inside, [percent])[0] - accuracy(outside, [percent])[0])


@pytest.mark.parametrize("better", [True, False])
def test_two_sided_p_agrees_with_all_partitions(better: bool) -> None:
    rng = np.random.default_rng(3)
    labels = np.zeros(8, np.int64)
    first = np.arange(8) < 4
    outcome = Inferences(rng.random(8) < 0.4 + 0.4 * first, rng.random(8))
    first = first if better else ~first
    masks = np.array([[index in members for index in range(8)] for members in itertools.combinations(range(8), 4)])
    drawn_gains = np.array([gains(outcome, labels, mask, 50) for mask in masks])
    true = gains(outcome, labels, first, 50)
    above = np.mean(drawn_gains >= true - 1e-12)
    below = np.mean(drawn_gains <= true + 1e-12)
    p = differs(labels, first, outcome, 50, 20_000, np.random.default_rng(1))
    assert p == pytest.approx(min(1, 2 * min(above, below)), abs=0.02)


def test_difference_is_undefined_without_both_sets() -> None:
    outcome = Inferences(np.ones(3, bool), np.zeros(3))
    for first in (np.ones(3, bool), np.zeros(3, bool)):
        assert differs(np.zeros(3, np.int64), first, outcome, 20, 19, np.random.default_rng(0)) is None


def test_equal_sets_differ_at_the_stated_rate() -> None:
    false_alarms = 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        labels = np.tile(np.arange(4), 20)
        first = np.arange(80) < 40
        outcome = Inferences(rng.random(80) < 0.4, rng.random(80))
        p = differs(labels, first, outcome, 40, 99, rng)
        false_alarms += p is not None and p <= 0.1
    low, high = bounds(0.1, 400)
    assert false_alarms <= high
    assert false_alarms >= low // 2  # scores of few images are often equal, which increases p


def test_id_order_of_ties_is_independent_of_sets() -> None:
    # One neighbour: all images are equally confident, and earlier images are named correctly more often.
    n = 60
    p_values = []
    for seed in range(1000):
        rng = np.random.default_rng(seed)
        right = rng.random((2, n)) < np.linspace(0.9, 0.1, n)
        first = np.sort(rng.permutation(n)[: n // 2])
        second = np.setdiff1d(np.arange(n), first)
        equal_confidence = np.zeros(n)
        ways = []
        for rows, order in ((first, (0, 1)), (second, (1, 0))):
            ways.append(
                Way(
                    np.zeros(n // 2, np.int64),
                    *(Inferences(right[model][rows], equal_confidence[rows]) for model in order),
                    np.array([f"{row:03d}" for row in rows]),
                )
            )
        p_values.append(p_value((ways[0], ways[1]), 20, 199, np.random.default_rng(seed)))
    assert sum(p is not None and p <= 0.025 for p in p_values) <= bounds(0.025, 1000)[1]
