"""Votes of neighbours against cases counted by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tasks.audits.deja_vu import votes as module
from tasks.audits.deja_vu.votes import votes


def test_the_most_frequent_label_wins_and_its_share_says_the_confidence() -> None:
    found = votes(np.array([[1, 1, 1, 2], [0, 0, 0, 0], [0, 1, 2, 3]]), 4)
    assert [1, 0, 0] == found.predicted.tolist()
    assert found.confidence == pytest.approx(
        [0.75 * math.log(0.75) + 0.25 * math.log(0.25), 0.0, math.log(0.25)], abs=1e-15
    )


def test_of_equally_frequent_labels_the_lowest_wins_wherever_it_stands() -> None:
    assert [2, 2, 1] == votes(np.array([[3, 2, 3, 2], [2, 3, 2, 3], [9, 1, 5, 3]]), 10).predicted.tolist()


def test_equal_counts_of_other_labels_have_the_same_confidence_bit_for_bit() -> None:
    found = votes(np.array([[0, 1, 1, 7, 7, 7], [7, 0, 7, 0, 0, 3], [3, 3, 3, 1, 1, 2]]), 8)
    assert 1 == len(set(found.confidence.tolist()))


def test_equal_counts_are_equally_sure_wherever_they_stand_and_however_many_classes_there_are() -> None:
    rng = np.random.default_rng(1)
    counted = np.repeat([0, 1, 2, 3, 4, 5], [9, 7, 5, 4, 3, 2])
    found = {
        votes(rng.permutation(classes)[:6][counted][None], classes).confidence[0]
        for classes in (6, 10, 1000)
        for _ in range(200)
    }
    assert 1 == len(found)


def test_a_single_neighbour_is_certain() -> None:
    found = votes(np.array([[4], [0]]), 5)
    assert ([4, 0], [0.0, 0.0]) == (found.predicted.tolist(), found.confidence.tolist())


def test_counting_in_parts_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = np.random.default_rng(0).integers(7, size=(50, 9))
    whole = votes(labels, 7)
    monkeypatch.setattr(module, "PICTURES", 8)
    parts = votes(labels, 7)
    assert whole.predicted.tolist() == parts.predicted.tolist()
    assert whole.confidence.tolist() == parts.confidence.tolist()


def test_no_neighbours_are_refused() -> None:
    with pytest.raises(ValueError, match="k is 0; a vote needs at least one neighbour"):
        votes(np.empty((3, 0), np.int64), 2)
