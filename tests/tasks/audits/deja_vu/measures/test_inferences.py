"""Inferences from synthetic neighbours, image by image."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from tasks.audits.deja_vu.measures.inferences import INFERENCES, Voting, cells, inferences
from tests.tasks.audits.deja_vu import made_up

THREE_OF_FOUR = 0.75 * math.log(0.75) + 0.25 * math.log(0.25)
TWO_AND_TWO = math.log(0.5)


def test_images_have_inferences_of_both_models() -> None:
    table = inferences(Voting((4,)), [made_up.neighbours(made_up.FEW)])
    assert table.schema == INFERENCES
    rows = {row["id"]: row for row in table.to_pylist()}
    assert list(rows) == ["a1", "a2", "a3", "b1", "b2"]
    labels = {}
    for id_, row in rows.items():
        labels[id_] = (row["label"], row["target_label"], row["reference_label"])
    assert labels == {"a1": (1, 1, 0), "a2": (2, 2, 2), "a3": (3, 0, 3), "b1": (1, 1, 2), "b2": (0, 0, 0)}
    confidences = {}
    for id_, row in rows.items():
        confidences[id_] = (row["target_confidence"], row["reference_confidence"])
    assert confidences["a1"] == pytest.approx((0, THREE_OF_FOUR))
    assert confidences["a3"] == pytest.approx((TWO_AND_TWO, THREE_OF_FOUR))
    assert confidences["b1"] == pytest.approx((THREE_OF_FOUR, TWO_AND_TWO))


def test_row_order_does_not_matter() -> None:
    table = made_up.neighbours(made_up.FEW)
    reversed_table = table.take(list(range(table.num_rows))[::-1])
    assert inferences(Voting((4,)), [table]).equals(inferences(Voting((4,)), [reversed_table]))


def test_images_missing_from_one_model_are_left_out() -> None:
    neighbour_labels = {}
    for key, images in made_up.FEW.items():
        neighbour_labels[key] = images[1:] if key == ("B", "A") else images
    table = inferences(Voting((4,)), [made_up.neighbours(neighbour_labels)])
    assert table["id"].to_pylist() == ["a2", "a3", "b1", "b2"]


def test_fewer_neighbours_are_the_nearest() -> None:
    table = inferences(Voting((4, 1)), [made_up.neighbours(made_up.FEW)])
    rows_of_nearest = [row for row in table.to_pylist() if row["k"] == 1]
    assert [row["target_label"] for row in rows_of_nearest] == [1, 2, 0, 1, 0]
    assert [row["reference_label"] for row in rows_of_nearest] == [0, 2, 3, 3, 0]
    assert {row["target_confidence"] for row in rows_of_nearest} == {0.0}


def test_cells_are_by_epoch_layer_and_k() -> None:
    tables = []
    for epoch in (7, 2):
        for layer in (3, 0):
            tables.append(made_up.neighbours(made_up.FEW, epoch, layer))
    table = inferences(Voting((4, 2)), [pa.concat_tables(tables)])
    expected = []
    for epoch in (2, 7):
        for layer in (3, 0):
            for k in (4, 2):
                expected.append((epoch, layer, k))
    assert expected == [(cell.epoch, cell.layer, cell.k) for cell in cells(table)]
    way = next(cells(table)).way("B")
    assert way.labels.tolist() == [1, 0]
    assert way.target.correct.tolist() == [True, True]
    assert way.reference.correct.tolist() == [False, True]


def test_one_model_gives_no_inferences() -> None:
    neighbour_labels = {}
    for key, images in made_up.FEW.items():
        if key[0] == "A":
            neighbour_labels[key] = images
    assert inferences(Voting((4,)), [made_up.neighbours(neighbour_labels)]).num_rows == 0
    assert inferences(Voting((4,)), []).num_rows == 0
