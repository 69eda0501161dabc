"""Inferences from made-up neighbours, image by image."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from tasks.audits.deja_vu.measures.inferences import INFERENCES, Voting, cells, inferences
from tests.tasks.audits.deja_vu import made_up

THREE_OF_FOUR = 0.75 * math.log(0.75) + 0.25 * math.log(0.25)
TWO_AND_TWO = math.log(0.5)


def test_each_picture_has_what_its_own_model_and_the_other_infer() -> None:
    table = inferences(Voting((4,)), [made_up.neighbours(made_up.FEW)])
    assert table.schema == INFERENCES
    rows = {row["id"]: row for row in table.to_pylist()}
    assert list(rows) == ["a1", "a2", "a3", "b1", "b2"]
    labels = {id_: (row["label"], row["target_label"], row["reference_label"]) for id_, row in rows.items()}
    assert labels == {"a1": (1, 1, 0), "a2": (2, 2, 2), "a3": (3, 0, 3), "b1": (1, 1, 2), "b2": (0, 0, 0)}
    sure = {id_: (row["target_confidence"], row["reference_confidence"]) for id_, row in rows.items()}
    assert sure["a1"] == pytest.approx((0, THREE_OF_FOUR))
    assert sure["a3"] == pytest.approx((TWO_AND_TWO, THREE_OF_FOUR))
    assert sure["b1"] == pytest.approx((THREE_OF_FOUR, TWO_AND_TWO))


def test_rows_are_aligned_by_id_whatever_order_they_come_in() -> None:
    table = made_up.neighbours(made_up.FEW)
    upside_down = table.take(list(range(table.num_rows))[::-1])
    assert inferences(Voting((4,)), [table]).equals(inferences(Voting((4,)), [upside_down]))


def test_a_picture_that_one_model_was_not_asked_about_does_not_count() -> None:
    made = {key: pictures[1:] if key == ("B", "A") else pictures for key, pictures in made_up.FEW.items()}
    table = inferences(Voting((4,)), [made_up.neighbours(made)])
    assert table["id"].to_pylist() == ["a2", "a3", "b1", "b2"]


def test_fewer_neighbours_are_the_nearest() -> None:
    table = inferences(Voting((4, 1)), [made_up.neighbours(made_up.FEW)])
    one = [row for row in table.to_pylist() if row["k"] == 1]
    assert [row["target_label"] for row in one] == [1, 2, 0, 1, 0]
    assert [row["reference_label"] for row in one] == [0, 2, 3, 3, 0]
    assert {0.0} == {row["target_confidence"] for row in one}


def test_cells_come_by_epoch_layer_and_number_of_neighbours() -> None:
    tables = [made_up.neighbours(made_up.FEW, epoch, layer) for epoch in (7, 2) for layer in (3, 0)]
    found = inferences(Voting((4, 2)), [pa.concat_tables(tables)])
    expected = [(epoch, layer, k) for epoch in (2, 7) for layer in (3, 0) for k in (4, 2)]
    assert expected == [(cell.epoch, cell.layer, cell.k) for cell in cells(found)]
    way = next(cells(found)).way("B")
    assert (
        way.labels.tolist(), way.target.correct.tolist(), way.reference.correct.tolist(),
    ) == ([1, 0], [True, True], [False, True])  # fmt: skip


def test_one_model_alone_gives_no_inferences() -> None:
    made = {key: pictures for key, pictures in made_up.FEW.items() if key[0] == "A"}
    assert inferences(Voting((4,)), [made_up.neighbours(made)]).num_rows == 0
    assert inferences(Voting((4,)), []).num_rows == 0
