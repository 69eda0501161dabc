"""The shares of drawings that show the true object: by hand, under the null, and from whole drawings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pytest

from tasks.audits.deja_vu.config import About
from tasks.audits.deja_vu.measures.drawn import DRAWN
from tasks.audits.deja_vu.measures.reconstruction import MEASURE, RECONSTRUCTION, Nothing, reconstruction
from tasks.measure import Tables
from tasks.statistics import mcnemar_greater, paired_difference, proportion

ABOUT = About(confident=20, layer=3, k=4, epoch=5)
Drawings = Mapping[tuple[str, str], Sequence[tuple[str, int, int]]]  # by (model, set): id, label, label of the drawing


def drawings(made: Drawings) -> list[pa.Table]:
    """DRAWN of each model; a picture itself is always named rightly but that called a3."""
    return [
        pa.Table.from_pylist(
            [
                {"model": model, "set": name, "id": id_, "label": label, "drawn_label": said, "side": 1}
                | {"picture_label": label + (id_ == "a3"), "drawing": b"\0\1\2"}
                for (by, name), pictures in made.items()
                for id_, label, said in pictures
                if by == model
            ],
            DRAWN,
        )
        for model in ("A", "B")
    ]


# a1 is shown by model A alone, a2 by both, a3 by neither; b1 by model B alone, b2 by model A alone.
FEW: Drawings = {
    ("A", "A"): [("a1", 1, 1), ("a2", 2, 2), ("a3", 3, 0)],
    ("B", "A"): [("a2", 2, 2), ("a1", 1, 7), ("a3", 3, 4)],
    ("A", "B"): [("b1", 4, 5), ("b2", 5, 5)],
    ("B", "B"): [("b1", 4, 4), ("b2", 5, 9)],
}


def test_the_shares_of_both_ways_by_hand() -> None:
    table = reconstruction(Nothing(), drawings(FEW))
    assert RECONSTRUCTION == table.schema
    found = {row["way"]: row for row in table.to_pylist()}
    assert ["both", "A", "B"] == list(found)
    assert [5, 3, 2] == [row["pictures"] for row in found.values()]
    assert [3 / 5, 2 / 3, 1 / 2] == [row["target"] for row in found.values()]
    assert [2 / 5, 1 / 3, 1 / 2] == [row["reference"] for row in found.values()]
    assert [1 / 5, 1 / 3, 0] == pytest.approx([row["score"] for row in found.values()])
    assert [4 / 5, 2 / 3, 1] == [row["picture"] for row in found.values()]
    # Of the five, a1 and b1 are the target's alone and b2 is the reference's: P[X >= 2] of 3.
    assert 0.5 == found["both"]["p_value"]
    target, reference = [True, True, False, True, False], [False, True, False, False, True]
    score, share = paired_difference(target, reference), proportion(2, 5)
    assert (score.low, score.high) == (found["both"]["score_low"], found["both"]["score_high"])
    assert (share.low, share.high) == (found["both"]["reference_low"], found["both"]["reference_high"])


def test_the_rows_of_the_summary_are_those_of_both_ways() -> None:
    rows = list(MEASURE.rows(Tables([reconstruction(Nothing(), drawings(FEW))]), ABOUT) if MEASURE.rows else [])
    assert ["reconstruction score", "drawn rightly", "drawn rightly", "picture named rightly"] == [
        row["metric"] for row in rows
    ]
    assert (1 / 5, 0.0, 0.5, 5) == pytest.approx(
        (rows[0]["estimate"], rows[0]["null"], rows[0]["p_value"], rows[0]["n"])
    )
    assert '{"epoch": 5, "layer": 3, "model": "target"}' == rows[1]["setting"]
    assert [] == list(MEASURE.rows(Tables([]), ABOUT) if MEASURE.rows else [0])


def test_pictures_that_only_one_model_drew_do_not_count() -> None:
    fewer = {key: [each for each in pictures if key != ("B", "A") or each[0] != "a1"] for key, pictures in FEW.items()}
    found = reconstruction(Nothing(), drawings(fewer)).to_pylist()
    assert [("both", 4, 0.0), ("A", 2, 0.0), ("B", 2, 0.0)] == [
        (row["way"], row["pictures"], row["score"]) for row in found
    ]
    assert 0 == reconstruction(Nothing(), []).num_rows
    assert 0 == reconstruction(Nothing(), drawings(FEW)[:1]).num_rows


def test_a_model_that_draws_better_whatever_it_was_trained_on_makes_no_score() -> None:
    stream, called, scores = np.random.default_rng(0), 0, []
    for _ in range(400):
        right = {model: stream.random((2, 60)) < share for model, share in (("A", 0.6), ("B", 0.3))}
        target = [*right["A"][0].tolist(), *right["B"][1].tolist()]
        reference = [*right["B"][0].tolist(), *right["A"][1].tolist()]
        p = mcnemar_greater(target, reference)
        assert p is not None
        called += p <= 0.05
        scores.append(np.mean(target) - np.mean(reference))
    assert abs(np.mean(scores)) < 0.01
    assert called <= 0.05 * 400 + 3 * (400 * 0.05 * 0.95) ** 0.5
