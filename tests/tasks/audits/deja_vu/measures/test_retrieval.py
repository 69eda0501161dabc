"""The images to look at, of made-up inferences about embedded scenes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa

from tasks.audits.deja_vu.measures.inferences import Voting, inferences
from tasks.audits.deja_vu.measures.retrieval import RETRIEVAL, Retrieving, retrieval
from tasks.datasets.catalog import load_with_boxes, pin
from tasks.datasets.dataset import Dataset
from tests.tasks.audits.deja_vu import made_up

DATA = pin(Dataset("digits-on-photos"))
PICTURES = load_with_boxes(DATA)


def of(label: int, at: int) -> tuple[str, int]:
    """The id and label of the image of this class with this number."""
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


def looked_at(shown: int, near: pa.Table | None = None, layers: tuple[int, ...] = (3,)) -> list[dict[str, object]]:
    near = made_up.neighbours(LOOKED_AT) if near is None else near
    models = [near.filter(pa.compute.field("model") == name) for name in "AB"]
    asked = Retrieving(DATA, 0.0, shown, layers, 4)
    table = retrieval(asked, [inferences(Voting((4,)), models), *models])
    assert table.schema == RETRIEVAL
    rows: list[dict[str, object]] = table.to_pylist()
    return rows


def test_pictures_of_each_kind_are_told_in_the_papers_order() -> None:
    every = [row for row in looked_at(3) if row["scope"] == "all"]
    found = {
        kind: [row["class"] for row in every if row["kind"] == kind]
        for kind in ("memorised", "correlated", "confident")
    }
    assert {kind: found[kind] for kind in ("memorised", "correlated")} == {"memorised": ["2", "1"], "correlated": ["3"]}
    assert {"2", "4"} == set(found["confident"][:2])  # whose neighbours all agree
    assert [row["rank"] for row in every[:3]] == [1, 2, 1]


def test_of_each_class_the_first_are_told_and_of_all_as_many_as_are_shown() -> None:
    rows = looked_at(1)
    kinds = [(row["kind"], row["scope"], row["class"]) for row in rows if row["kind"] != "confident"]
    expected = [("memorised", "all", "2"), ("memorised", "class", "1"), ("memorised", "class", "2")]
    assert [*expected, ("correlated", "all", "3"), ("correlated", "class", "3")] == kinds
    assert sum(row["kind"] == "confident" and row["scope"] == "all" for row in rows) == 4
    assert looked_at(0) == []


def test_the_surest_of_a_class_are_four_times_as_many_as_the_others() -> None:
    ids = [of(1, at)[0] for at in range(6)]
    surely, unsurely = (1, 1, 1, 1), (1, 2, 3, 4)  # by the target; the reference says 2
    made = {
        ("A", "A"): [(id_, 1, surely if id_ != ids[0] else unsurely) for id_ in ids],
        ("B", "A"): [(id_, 1, (2, 2, 2, 2)) for id_ in ids],
    }
    rows = looked_at(1, made_up.neighbours(made))
    counted = Counter((row["kind"], row["scope"]) for row in rows)
    assert {(kind, scope): 4 if kind == "confident" else 1 for kind, scope in counted} == counted
    of_class = [row for row in rows if (row["kind"], row["scope"]) == ("confident", "class")]
    assert [row["rank"] for row in of_class] == [1, 2, 3, 4]
    assert ids[0] not in {row["id"] for row in of_class}


def test_the_first_layer_decides_and_its_pictures_are_told_at_the_others() -> None:
    backbone = {**LOOKED_AT, ("A", "A"): [(id_, label, (0, 0, 5, 0)) for id_, label, _ in LOOKED_AT["A", "A"]]}
    near = pa.concat_tables([made_up.neighbours(LOOKED_AT), made_up.neighbours(backbone, layer=0)])
    both, alone = looked_at(2, near, (3, 0)), looked_at(2)
    assert [3, 0] * len(alone) == [row["layer"] for row in both]
    assert alone == both[::2]  # as where the first layer alone is asked
    names = ("kind", "scope", "rank", "set", "id", "label", "class")
    for projector, by_backbone in zip(both[::2], both[1::2], strict=True):
        assert [projector[name] for name in names] == [by_backbone[name] for name in names]
        assert by_backbone["target_class"] == "0"
        assert [PICTURES.ids[at] for at in (100, 100)] == by_backbone["target_neighbours"]
        assert projector["reference_neighbours"] == by_backbone["reference_neighbours"]


def test_neighbours_are_named_nearest_first_with_their_classes() -> None:
    row = next(row for row in looked_at(3) if (row["kind"], row["class"]) == ("memorised", "1"))
    rows = [101, 101, 101]
    assert [PICTURES.ids[at] for at in rows] == row["target_neighbours"]
    assert [PICTURES.ids[at] for at in (100, 102, 103)] == row["reference_neighbours"]
    assert [str(PICTURES.labels[at]) for at in (100, 102, 103)] == row["reference_neighbour_classes"]
    assert (row["set"], row["target_class"], row["reference_class"]) == ("A", "1", "0")
