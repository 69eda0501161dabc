"""The images that are shown, chosen from synthetic inferences about embedded scenes."""

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
SCENES = load_with_boxes(DATA)


def image_of(label: int, number: int) -> tuple[str, int]:
    """The id and label of the image of this class with this number."""
    row = np.flatnonzero(SCENES.labels == label)[number]
    return SCENES.ids[row], label


# Of A: 1 and 2 are memorised, 2 more confidently; 3 is correlated; 4 is neither, and the target is most confident of
# it.
NEAR_LABELS = {
    ("A", "A"): [
        (*image_of(1, 0), (1, 1, 1, 2)),
        (*image_of(2, 0), (2, 2, 2, 2)),
        (*image_of(3, 0), (3, 3, 0, 3)),
        (*image_of(4, 0), (5,) * 4),
    ],
    ("B", "A"): [
        (*image_of(1, 0), (0, 2, 3, 1)),
        (*image_of(2, 0), (0, 1, 3, 4)),
        (*image_of(3, 0), (3, 3, 3, 3)),
        (*image_of(4, 0), (6, 5, 4, 3)),
    ],
}


def retrieve(count: int, near: pa.Table | None = None, layers: tuple[int, ...] = (3,)) -> list[dict[str, object]]:
    near = made_up.neighbours(NEAR_LABELS) if near is None else near
    models = [near.filter(pa.compute.field("model") == name) for name in "AB"]
    settings = Retrieving(DATA, 0.0, count, layers, 4)
    table = retrieval(settings, [inferences(Voting((4,)), models), *models])
    assert table.schema == RETRIEVAL
    rows: list[dict[str, object]] = table.to_pylist()
    return rows


def test_kinds_of_images_have_the_papers_order() -> None:
    rows_of_all = [row for row in retrieve(3) if row["scope"] == "all"]
    classes_by_kind = {}
    for kind in ("memorised", "correlated", "confident"):
        classes_by_kind[kind] = [row["class"] for row in rows_of_all if row["kind"] == kind]
    assert {kind: classes_by_kind[kind] for kind in ("memorised", "correlated")} == {
        "memorised": ["2", "1"],
        "correlated": ["3"],
    }
    # their neighbours all agree
    assert set(classes_by_kind["confident"][:2]) == {"2", "4"}
    assert [row["rank"] for row in rows_of_all[:3]] == [1, 2, 1]


def test_top_images_are_listed_overall_and_by_class() -> None:
    rows = retrieve(1)
    kinds = []
    for row in rows:
        if row["kind"] != "confident":
            kinds.append((row["kind"], row["scope"], row["class"]))
    expected = [("memorised", "all", "2"), ("memorised", "class", "1"), ("memorised", "class", "2")]
    assert kinds == [*expected, ("correlated", "all", "3"), ("correlated", "class", "3")]
    assert sum(row["kind"] == "confident" and row["scope"] == "all" for row in rows) == 4
    assert retrieve(0) == []


def test_confident_class_has_four_times_the_images() -> None:
    ids = [image_of(1, number)[0] for number in range(6)]
    agreeing = (1, 1, 1, 1)  # labels by the target
    differing = (1, 2, 3, 4)  # the reference says 2
    neighbour_labels = {
        ("A", "A"): [(id_, 1, agreeing if id_ != ids[0] else differing) for id_ in ids],
        ("B", "A"): [(id_, 1, (2, 2, 2, 2)) for id_ in ids],
    }
    rows = retrieve(1, made_up.neighbours(neighbour_labels))
    counts = Counter((row["kind"], row["scope"]) for row in rows)
    assert {(kind, scope): 4 if kind == "confident" else 1 for kind, scope in counts} == counts
    of_class = []
    for row in rows:
        if (row["kind"], row["scope"]) == ("confident", "class"):
            of_class.append(row)
    assert [row["rank"] for row in of_class] == [1, 2, 3, 4]
    assert ids[0] not in {row["id"] for row in of_class}


def test_first_layer_chooses_the_images_for_all_layers() -> None:
    backbone = {**NEAR_LABELS, ("A", "A"): [(id_, label, (0, 0, 5, 0)) for id_, label, _ in NEAR_LABELS["A", "A"]]}
    near = pa.concat_tables([made_up.neighbours(NEAR_LABELS), made_up.neighbours(backbone, layer=0)])
    rows_of_both = retrieve(2, near, (3, 0))
    rows_of_first = retrieve(2)
    assert [3, 0] * len(rows_of_first) == [row["layer"] for row in rows_of_both]
    assert rows_of_first == rows_of_both[::2]  # equals the result for the first layer only
    names = ("kind", "scope", "rank", "set", "id", "label", "class")
    for projector, by_backbone in zip(rows_of_both[::2], rows_of_both[1::2], strict=True):
        assert [projector[name] for name in names] == [by_backbone[name] for name in names]
        assert by_backbone["target_class"] == "0"
        assert [SCENES.ids[row_number] for row_number in (100, 100)] == by_backbone["target_neighbours"]
        assert projector["reference_neighbours"] == by_backbone["reference_neighbours"]


def test_neighbours_are_named_nearest_first_with_their_classes() -> None:
    row = next(row for row in retrieve(3) if (row["kind"], row["class"]) == ("memorised", "1"))
    rows = [101, 101, 101]
    assert [SCENES.ids[row_number] for row_number in rows] == row["target_neighbours"]
    assert [SCENES.ids[row_number] for row_number in (100, 102, 103)] == row["reference_neighbours"]
    assert [str(SCENES.labels[row_number]) for row_number in (100, 102, 103)] == row["reference_neighbour_classes"]
    assert row["set"] == "A"
    assert row["target_class"] == "1"
    assert row["reference_class"] == "0"
