"""Synthetic tables of deja_vu runs with known accuracies, shares and retrieved images."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tasks.audits.deja_vu.config import About, DejaVu
from tasks.audits.deja_vu.measures import summary
from tasks.audits.deja_vu.measures.probe import PROBE
from tasks.audits.deja_vu.measures.reconstruction import DRAWN
from tasks.audits.deja_vu.measures.retrieval import RETRIEVAL
from tasks.audits.deja_vu.measures.scores import CATEGORIES, SCORES
from tasks.audits.deja_vu.presets import SMOKE
from tasks.datasets import catalog
from tasks.datasets.dataset import Dataset
from tests.support.settings import with_settings

Row = dict[str, Any]
SCENES = Dataset("digits-on-photos")
WAYS = ("both", "A", "B")
PICTURES = 200


def embedded(**fields: Any) -> DejaVu:
    """A config whose data set is the embedded one, pinned."""
    return with_settings(SMOKE, data=catalog.pin(SCENES), **fields)


def accuracies(epoch: int, layer: int, k: int, percent: int) -> tuple[float, float]:
    """The target's and the reference's accuracy: their difference is epoch / 100 at layer 3, k 20 and 20 %."""
    reference = 0.3 - percent / 1000
    return reference + (epoch + 10 * (layer - 3) + (k - 20) + (percent - 20) / 2) / 100, reference


def scores(
    epochs: Sequence[int] = (10, 20, 40), layers: Sequence[int] = (3,), ks: Sequence[int] = (20,), percent: int = 20
) -> pa.Table:
    """SCORES of all these attacks; intervals reach 0.05 to either side. Single ways have 1 less: no figure has them."""
    rows: list[Row] = []
    for epoch, layer, k, way, tested_percent in itertools.product(epochs, layers, ks, WAYS, range(1, 101)):
        target, reference = accuracies(epoch, layer, k, tested_percent)
        row: Row = {"epoch": epoch, "layer": layer, "k": k, "way": way, "percent": tested_percent, "images": PICTURES}
        row["p_value"] = 0.01 if (way, tested_percent) == ("both", percent) else None
        values = {"target_accuracy": target, "reference_accuracy": reference, "score": target - reference}
        for name, value in values.items():
            drawn_values = value if way == "both" else value - 1
            row |= {name: drawn_values, f"{name}_low": drawn_values - 0.05, f"{name}_high": drawn_values + 0.05}
        rows.append(row)
    return pa.Table.from_pylist(rows, SCORES)


def categories(
    epochs: Sequence[int] = (10, 20, 40), layers: Sequence[int] = (3,), ks: Sequence[int] = (20,)
) -> pa.Table:
    """CATEGORIES: memorised are epoch / 100, misrepresented 0.05, correlated 0.2, and the rest unassociated."""
    rows: list[Row] = []
    for epoch, layer, k, way in itertools.product(epochs, layers, ks, WAYS):
        shares = {"memorised": epoch / 100, "misrepresented": 0.05, "correlated": 0.2}
        shares["unassociated"] = 1 - sum(shares.values())
        row: Row = {"epoch": epoch, "layer": layer, "k": k, "way": way, "images": PICTURES, "p_value": 0.001}
        for name, value in shares.items():
            row |= {name: value, f"{name}_low": value - 0.02, f"{name}_high": value + 0.02}
        rows.append(row)
    return pa.Table.from_pylist(rows, CATEGORIES)


def probes(epochs: Sequence[int] = (10, 20, 40), layers: Sequence[int] = (3,)) -> pa.Table:
    """Linear probes of two models, right on 90 and 70 of 100 images they were trained on, and on 50 of 100 others."""
    rows = []
    for model, epoch, layer, split in itertools.product("AB", epochs, layers, ("train", "validation")):
        rows.append(
            {"model": model, "epoch": epoch, "layer": layer, "split": split, "n": 100}
            | {"correct": 50 if split == "validation" else {"A": 90, "B": 70}[model]}
        )
    return pa.Table.from_pylist(rows, PROBE)


def tables(**more: pa.Table) -> dict[str, pa.Table]:
    """The tables of a complete run with its summary."""
    result = {"scores": scores(), "categories": categories(), **more}
    return {**result, "summary": summary(About(20, 3, 20, 40), [result["scores"], result["categories"]])}


def retrieved(
    data: Dataset = SCENES,
    kinds: Sequence[str] = ("memorised", "correlated", "confident"),
    per_kind: int = 3,
    near: int = 4,
    layers: Sequence[int] = (3,),
) -> pa.Table:
    """RETRIEVAL of the first images, in this order: image i of a kind has the images 100 i + j near to it by the
    target model, and 200 i + j by the reference; j starts at 1. All layers are equal.
    """
    images = catalog.load_with_boxes(data)
    rows: list[Row] = []
    for kind, scope, index, layer in itertools.product(kinds, ("all", "class"), range(per_kind), layers):
        row: Row = {
            "kind": kind,
            "scope": scope,
            "rank": index + 1,
            "layer": layer,
            "set": "A",
            "id": images.ids[index],
        }
        row |= {"label": int(images.labels[index]), "class": images.names[images.labels[index]]}
        for model, step in (("target", 100), ("reference", 200)):
            neighbours = []
            for j in range(1, near + 1):
                neighbours.append((step * (index + 1) + j) % len(images.ids))
            row[f"{model}_neighbours"] = [images.ids[neighbour] for neighbour in neighbours]
            row[f"{model}_neighbour_classes"] = [images.names[images.labels[neighbour]] for neighbour in neighbours]
            row[f"{model}_confidence"] = -0.25 * step / 100
        row |= {"target_class": row["class"], "reference_class": "none"}
        rows.append(row)
    return pa.Table.from_pylist(rows, RETRIEVAL)


def drawings(data: Dataset = SCENES, per_kind: int = 2, side: int = 4) -> pa.Table:
    """DRAWN for the first images, half of each set: of each four, only the target draws the first
    correctly, only the reference the second, both the third, and neither the last. Model A draws black, B white.
    """
    images = catalog.load_with_boxes(data)
    rows: list[Row] = []
    for name, model in itertools.product("AB", "AB"):
        for index in range(4 * per_kind):
            row_index = index + 4 * per_kind * (name == "B")
            label = int(images.labels[row_index])
            by_target, by_reference = ((True, False), (False, True), (True, True), (False, False))[index % 4]
            is_right = by_target if name == model else by_reference
            row: Row = {"model": model, "set": name, "id": images.ids[row_index], "label": label, "image_label": label}
            row["drawn_label"] = label if is_right else (label + 1) % len(images.names)
            rows.append(row | {"side": side, "drawing": (b"\0" if model == "A" else b"\xff") * (3 * side * side)})
    return pa.Table.from_pylist(rows, DRAWN)
