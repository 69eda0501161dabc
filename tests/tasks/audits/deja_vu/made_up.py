"""Neighbours that were made up: which public labels are near to each picture's crop by either model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from tasks.audits.deja_vu.measures.neighbours import NEIGHBOURS

# By (model, set): each picture's id, its label, and the labels of its neighbours.
Made = Mapping[tuple[str, str], Sequence[tuple[str, int, Sequence[int]]]]


def neighbours(made: Made, epoch: int = 5, layer: int = 3) -> pa.Table:
    """NEIGHBOURS of these; a neighbour's row is 100 plus its label."""
    rows = [
        {"epoch": epoch, "layer": layer, "model": model, "set": name, "id": id_, "label": label}
        | {"neighbours": [100 + near for near in labels], "neighbour_labels": list(labels)}
        for (model, name), pictures in made.items()
        for id_, label, labels in pictures
    ]
    return pa.Table.from_pylist(rows, NEIGHBOURS)


# Three pictures of A and two of B. Model A knows a1 and a2 of its own, B knows b1; b2 is told by its background.
FEW: Made = {
    ("A", "A"): [("a1", 1, (1, 1, 1, 1)), ("a2", 2, (2, 2, 0, 2)), ("a3", 3, (0, 0, 1, 1))],
    ("B", "A"): [("a1", 1, (0, 0, 0, 1)), ("a2", 2, (2, 2, 2, 2)), ("a3", 3, (3, 3, 3, 0))],
    ("B", "B"): [("b1", 1, (1, 1, 1, 2)), ("b2", 0, (0, 0, 0, 0))],
    ("A", "B"): [("b1", 1, (3, 2, 2, 3)), ("b2", 0, (0, 0, 0, 1))],
}
