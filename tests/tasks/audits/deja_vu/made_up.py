"""Synthetic neighbours: the labels of the public images that each model places nearest to an image's crop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from tasks.audits.deja_vu.measures.inferences import INFERENCES
from tasks.audits.deja_vu.measures.neighbours import NEIGHBOURS

# By (model, set): each image's id, its label and the labels of its neighbours.
NeighbourLabels = Mapping[tuple[str, str], Sequence[tuple[str, int, Sequence[int]]]]


def neighbours(labels_by_model: NeighbourLabels, epoch: int = 5, layer: int = 3) -> pa.Table:
    """NEIGHBOURS of these labels; a neighbour's row is 100 plus its label."""
    rows = []
    for (model, name), images in labels_by_model.items():
        for id_, label, labels in images:
            rows.append(
                {"epoch": epoch, "layer": layer, "model": model, "set": name, "id": id_, "label": label}
                | {"neighbours": [100 + near for near in labels], "neighbour_labels": list(labels)}
            )
    return pa.Table.from_pylist(rows, NEIGHBOURS)


# Three images of A and two of B. Model A memorised a1 and a2, model B memorised b1; the background reveals b2.
FEW: NeighbourLabels = {
    ("A", "A"): [("a1", 1, (1, 1, 1, 1)), ("a2", 2, (2, 2, 0, 2)), ("a3", 3, (0, 0, 1, 1))],
    ("B", "A"): [("a1", 1, (0, 0, 0, 1)), ("a2", 2, (2, 2, 2, 2)), ("a3", 3, (3, 3, 3, 0))],
    ("B", "B"): [("b1", 1, (1, 1, 1, 2)), ("b2", 0, (0, 0, 0, 0))],
    ("A", "B"): [("b1", 1, (3, 2, 2, 3)), ("b2", 0, (0, 0, 0, 1))],
}


def simulate_inferences(seed: int, n: int, chance: float, memory: float, epoch: int = 5) -> pa.Table:
    """Inferences of both sets: a label is right with probability `chance`, or if the model memorised the image."""
    rng = np.random.default_rng(seed)
    parts = []
    for name in "AB":
        label = np.arange(n) % 10
        is_memorised = rng.random(n) < memory
        columns = {"label": label}
        for role, is_known in (("target", is_memorised), ("reference", np.zeros(n, bool))):
            is_right = is_known | (rng.random(n) < chance)
            columns[f"{role}_label"] = np.where(is_right, label, (label + 1) % 10)
            columns[f"{role}_confidence"] = rng.normal(size=n) + is_known
        ids = [f"{name.lower()}{number:05}" for number in range(n)]
        fixed = {"epoch": [epoch] * n, "layer": [3] * n, "k": [4] * n, "set": [name] * n, "id": ids}
        parts.append(pa.table({**fixed, **columns}).select(INFERENCES.names).cast(INFERENCES))
    return pa.concat_tables(parts)
