"""Accuracy among the most confident, and its resampling, against cases counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.audits.deja_vu.accuracy import (
    Inferences,
    Way,
    accuracy,
    bootstrap_accuracies,
    most_confident,
    resample_accuracy,
    scores,
)


def inferences(correct: list[int], confidence: list[float]) -> Inferences:
    return Inferences(np.array(correct, bool), np.array(confidence, float))


def test_the_most_confident_percent_are_rounded_down_and_at_least_one() -> None:
    assert [1, 1, 2, 10] == [most_confident(10, percent) for percent in (1, 19, 20, 100)]
    assert [29, 57] == [most_confident(100, 29), most_confident(100, 57)]  # 0.29 * 100 is 28.999...


def test_accuracy_counts_the_most_confident_alone() -> None:
    of = inferences([1, 0, 1, 1, 0], [-1.0, -0.1, -0.2, -3.0, -2.0])  # ranked: wrong, right, right, wrong, right
    assert [0.0, 0.5, 2 / 3, 0.5, 0.6] == accuracy(of, [20, 40, 60, 80, 100]).tolist()


def test_of_equally_confident_pictures_the_first_are_taken() -> None:
    assert [1.0, 0.5] == accuracy(inferences([1, 0, 0, 1], [0, 0, 0, 0]), [25, 50]).tolist()
    assert [0.0, 0.0] == accuracy(inferences([0, 0, 1, 1], [0, 0, 0, 0]), [25, 50]).tolist()


def test_each_model_is_scored_on_its_own_most_confident_pictures() -> None:
    way = Way(
        np.zeros(4, np.int64),
        inferences([1, 1, 0, 0], [-1, -2, -3, -4]),
        inferences([1, 0, 0, 1], [-4, -1, -2, -3]),
    )
    assert [1.0, 1.0, 0.0] == scores(way, [25, 50, 100]).tolist()


def test_without_pictures_there_is_no_accuracy() -> None:
    assert np.isnan(accuracy(inferences([], []), [20, 100])).all()


def test_a_resample_that_takes_each_picture_once_is_the_sample() -> None:
    rng = np.random.default_rng(1)
    of = Inferences(rng.random(37) < 0.4, rng.integers(5, size=37).astype(float))
    percents = list(range(1, 101))
    assert accuracy(of, percents) == pytest.approx(resample_accuracy(of, np.ones(37, int), percents), abs=1e-15)


def test_a_resample_is_scored_as_if_its_copies_were_pictures() -> None:
    rng = np.random.default_rng(2)
    of = Inferences(rng.random(23) < 0.5, rng.random(23))
    for _ in range(20):
        rows = np.sort(rng.integers(23, size=23))
        copies = np.bincount(rows, minlength=23)
        expected = accuracy(Inferences(of.correct[rows], of.confidence[rows]), range(1, 101))
        assert expected == pytest.approx(resample_accuracy(of, copies, range(1, 101)), abs=1e-12)


def test_a_bootstrap_draws_both_models_on_the_same_pictures() -> None:
    rng = np.random.default_rng(3)
    of = Inferences(rng.random(40) < 0.5, rng.random(40))
    found = bootstrap_accuracies(Way(np.zeros(40, np.int64), of, of), [20, 100], 50, np.random.default_rng(0))
    assert (50, 2, 2) == found.shape
    assert (found[:, 0] == found[:, 1]).all()
    assert found[:, 0, 1].std() == pytest.approx(np.sqrt(of.correct.mean() * (1 - of.correct.mean()) / 40), rel=0.3)
