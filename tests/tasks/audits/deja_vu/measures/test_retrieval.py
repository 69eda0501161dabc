"""The pictures to look at, of made-up inferences about embedded scenes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tasks.audits.deja_vu.measures.inferences import Voting, inferences
from tasks.audits.deja_vu.measures.retrieval import RETRIEVAL, Retrieving, retrieval
from tasks.datasets.catalog import load_boxed, pin
from tasks.datasets.dataset import Dataset
from tests.tasks.audits.deja_vu import made_up

DATA = pin(Dataset("digits-on-photos"))
PICTURES = load_boxed(DATA)


def of(label: int, at: int) -> tuple[str, int]:
    """The id and label of the picture of this class with this number."""
    row = np.flatnonzero(PICTURES.labels == label)[at]
    return PICTURES.ids[row], label


# Of A: 1 and 2 are memorised, the second more surely; 3 is correlated; 4 is neither, and the target is surest of it.
LOOKED_AT = {
    ("A", "A"): [
        (*of(1, 0), (1, 1, 1, 2)),
        (*of(2, 0), (2, 2, 2, 2)),
        (*of(3, 0), (3, 3, 0, 3)),
        (*of(4, 0), (5,) * 4),
    ],
    ("B", "A"): [
        (*of(1, 0), (0, 2, 3, 1)),
        (*of(2, 0), (0, 1, 3, 4)),
        (*of(3, 0), (3, 3, 3, 3)),
        (*of(4, 0), (6, 5, 4, 3)),
    ],
}


def looked_at(shown: int) -> list[dict[str, object]]:
    near = made_up.neighbours(LOOKED_AT)
    models = [near.filter(pa.compute.field("model") == name) for name in "AB"]
    asked = Retrieving(DATA, 0.0, shown, 3, 4)
    table = retrieval(asked, [inferences(Voting((4,)), models), *models])
    assert RETRIEVAL == table.schema
    rows: list[dict[str, object]] = table.to_pylist()
    return rows


def test_pictures_of_each_kind_are_told_in_the_papers_order() -> None:
    every = [row for row in looked_at(3) if row["scope"] == "all"]
    found = {
        kind: [row["class"] for row in every if row["kind"] == kind]
        for kind in ("memorised", "correlated", "confident")
    }
    assert {"memorised": ["2", "1"], "correlated": ["3"]} == {kind: found[kind] for kind in ("memorised", "correlated")}
    assert {"2", "4"} == set(found["confident"][:2])  # whose neighbours all agree
    assert [1, 2, 1] == [row["rank"] for row in every[:3]]


def test_of_each_class_the_first_are_told_and_of_all_as_many_as_are_shown() -> None:
    rows = looked_at(1)
    kinds = [(row["kind"], row["scope"], row["class"]) for row in rows if row["kind"] != "confident"]
    expected = [("memorised", "all", "2"), ("memorised", "class", "1"), ("memorised", "class", "2")]
    assert [*expected, ("correlated", "all", "3"), ("correlated", "class", "3")] == kinds
    assert 4 == sum(row["kind"] == "confident" and row["scope"] == "all" for row in rows)
    assert [] == looked_at(0)


def test_neighbours_are_named_nearest_first_with_their_classes() -> None:
    row = next(row for row in looked_at(3) if (row["kind"], row["class"]) == ("memorised", "1"))
    rows = [101, 101, 101]
    assert [PICTURES.ids[at] for at in rows] == row["target_neighbours"]
    assert [PICTURES.ids[at] for at in (100, 102, 103)] == row["reference_neighbours"]
    assert [str(PICTURES.labels[at]) for at in (100, 102, 103)] == row["reference_neighbour_classes"]
    assert ("A", "1", "0") == (row["set"], row["target_class"], row["reference_class"])
