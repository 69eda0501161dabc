"""Example images: the most memorised, the most correlated, and the most confident.

- Most memorised: only the target is correct. Ranked by the difference of the two models' confidences.
- Most correlated: both models are correct. Ranked by the smaller of the two confidences.
- Most confident: correct or not. Ranked by the target's confidence, over all images and within each class. Four times
  as many images as for the other kinds (Figures 7 and 12 show images among the first 40 of a class).

Images are selected after the last epoch by the votes at the decisive layer. They are reported at every evaluated layer,
with the votes at that layer and the public images nearest to the crop under each model: Figure 20 shows the backbone's
neighbours of images that Figure 6 selected by the projector. Meehan et al. 2023, section 5 and appendices A.1 and A.7.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tasks.audits.deja_vu.config import DejaVu
from tasks.audits.deja_vu.encoder_config import Given
from tasks.audits.deja_vu.measures import inferences, neighbours
from tasks.audits.deja_vu.measures.inferences import OTHER, SETS, Cell, cells
from tasks.audits.deja_vu.trainings import MODELS, Trainings
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure
from tasks.contract.summaries import Row
from tasks.datasets.catalog import load_with_boxes
from tasks.datasets.dataset import Dataset

if TYPE_CHECKING:
    from tasks.datasets.boxed.pictures import BoxedPictures

CONFIDENT = 4  # times as many most confident images: the paper shows 40, and 10 of each other kind

# One row per kind, scope, rank and layer, the decisive layer first.
RETRIEVAL = pa.schema(
    [
        ("kind", pa.string()),  # memorised, correlated or confident
        ("scope", pa.string()),  # all images, or only those with the same label
        ("rank", pa.int32()),  # counted from 1, at the decisive layer
        ("layer", pa.int32()),  # the votes, confidences and neighbours are from this layer
        ("set", pa.string()),
        ("id", pa.string()),
        ("label", pa.int32()),
        ("class", pa.string()),  # class name of the label
        ("target_class", pa.string()),  # class that the neighbours vote for
        ("reference_class", pa.string()),
        ("target_confidence", pa.float64()),
        ("reference_confidence", pa.float64()),
        ("target_neighbours", pa.list_(pa.string())),  # ids of public images, nearest first
        ("reference_neighbours", pa.list_(pa.string())),
        ("target_neighbour_classes", pa.list_(pa.string())),
        ("reference_neighbour_classes", pa.list_(pa.string())),
    ]
)


@dataclass(frozen=True)
class Retrieving:
    """Data, number of examples per kind, and which inferences to use.

    The first of `layers` selects the images. They come from `sets`, which is only A for a given encoder, since that
    encoder was not trained on B.
    """

    data: Dataset
    correlation: float
    shown: int
    layers: tuple[int, ...]
    k: int
    sets: tuple[str, ...] = SETS


@task(version=2, name="deja_vu.retrieval")
def retrieval(config: Retrieving, inputs: Inputs) -> pa.Table:
    """Select the example images (RETRIEVAL) from INFERENCES and both models' last NEIGHBOURS."""
    inference_table, *near = inputs
    last = _last_cells(inference_table, config)
    if not last or not config.shown:
        return RETRIEVAL.empty_table()
    examples = list(_rank_pictures(last[0], config.shown))
    pictures = load_with_boxes(config.data, config.correlation)
    by_layer = [_layer_rows(cell, examples, near, pictures, config.shown) for cell in last]
    return pa.Table.from_pylist([row for rows in zip(*by_layer, strict=True) for row in rows], RETRIEVAL)


def _last_cells(inference_table: pa.Table, config: Retrieving) -> list[Cell]:
    """Return the inferences for the images of `sets` after the last epoch, in the order of `layers`."""
    requested_cells = []
    for cell in cells(inference_table):
        if cell.k == config.k and cell.layer in config.layers:
            requested_cells.append(cell)
    last = max((cell.epoch for cell in requested_cells), default=0)
    of_last = {cell.layer: cell for cell in requested_cells if cell.epoch == last}
    result = []
    for layer in config.layers:
        if layer in of_last:
            result.append(replace(of_last[layer], table=of_last[layer].table.filter(pc.field("set").isin(config.sets))))
    return result


def _rank_pictures(cell: Cell, example_count: int) -> Iterator[Row]:
    """Yield the ranked images of each kind: the top of all images, then the top of each class."""
    table = cell.table
    target, reference = (table[f"{name}_confidence"].to_numpy() for name in ("target", "reference"))
    label = table["label"].to_numpy()
    right = {}
    for name in ("target", "reference"):
        right[name] = table[f"{name}_label"].to_numpy() == label
    classes = np.unique(label)
    kinds: dict[str, tuple[NDArray[np.bool_], NDArray[np.float64], int]] = {
        "memorised": (right["target"] & ~right["reference"], target - reference, example_count),
        "correlated": (right["target"] & right["reference"], np.minimum(target, reference), example_count),
        "confident": (np.ones(len(label), bool), target, CONFIDENT * example_count),
    }
    for kind, (of_kind, strength, count) in kinds.items():
        rows = np.flatnonzero(of_kind)
        rows = rows[np.argsort(-strength[rows], kind="stable")]
        scopes = [
            ("all", rows[:count]),
            *(("class", rows[label[rows] == class_label][:count]) for class_label in classes),
        ]
        for scope, ranked in scopes:
            for rank, index in enumerate(ranked.tolist(), start=1):
                yield {"kind": kind, "scope": scope, "rank": rank, **table.slice(index, 1).to_pylist()[0]}


def _layer_rows(
    cell: Cell, examples: Sequence[Row], near: Sequence[pa.Table], pictures: BoxedPictures, neighbour_count: int
) -> list[Row]:
    """Return the RETRIEVAL rows of the selected images at the cell's layer."""
    ids = pa.array(sorted({row["id"] for row in examples}), pa.string())
    votes = {row["id"]: row for row in cell.table.filter(pc.field("id").isin(ids)).to_pylist()}
    rows = nearest(near, cell, ids, neighbour_count)
    result = []
    for example in examples:
        result.append(_retrieval_row(example | votes[example["id"]], rows, pictures))
    return result


def nearest(
    tables: Sequence[pa.Table], cell: Cell, ids: pa.Array, neighbour_count: int
) -> dict[tuple[str, str], list[int]]:
    """Return the public images nearest to these images' crops after the cell's epoch, keyed by (model, id)."""
    is_in_cell = (pc.field("epoch") == cell.epoch) & (pc.field("layer") == cell.layer)
    matching_rows = pa.concat_tables(tables).filter(is_in_cell & pc.field("id").isin(ids))
    columns = (matching_rows[name].to_pylist() for name in ("model", "id", "neighbours"))
    result = {}
    for model, id_, rows in zip(*columns, strict=True):
        result[(model, id_)] = rows[:neighbour_count]
    return result


def _retrieval_row(row: Row, near: Mapping[tuple[str, str], list[int]], pictures: BoxedPictures) -> Row:
    models = {"target": row["set"], "reference": OTHER[row["set"]]}
    details: Row = {"class": pictures.names[row["label"]]}
    for role, model in models.items():
        rows = near[model, row["id"]]
        details[f"{role}_class"] = pictures.names[row[f"{role}_label"]]
        details[f"{role}_neighbours"] = [pictures.ids[index] for index in rows]
        details[f"{role}_neighbour_classes"] = [pictures.names[pictures.labels[index]] for index in rows]
    return {name: value for name, value in (row | details).items() if name in RETRIEVAL.names}


def plan(config: DejaVu, trainings: Trainings) -> Job | tuple[()]:
    if config.retrieval is None:
        return ()
    is_given = isinstance(config.encoders, Given)
    sets = SETS[:1] if is_given else SETS
    layers = config.asked_layers[:1] if is_given else config.asked_layers
    retrieval_config = Retrieving(
        config.data, config.correlation, config.retrieval.example_images, layers, config.k[0], sets
    )
    attacks = neighbours.plan(config, trainings)
    near = (neighbours.last(attacks, model) for model in MODELS)
    return Job(retrieval, retrieval_config, (inferences.plan(config, trainings), *near))


MEASURE = Measure("retrieval", RETRIEVAL, plan)
