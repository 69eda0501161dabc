"""The label that each model's neighbours vote for, and the confidence of the vote, for every image.

For each image, the target is the model of the image's own set and the reference is the other model. Rows are aligned by
image id, and an image counts only if both models were evaluated on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tasks.audits.deja_vu.accuracy import Inferences, Votes, Way, votes
from tasks.audits.deja_vu.config import DejaVu
from tasks.audits.deja_vu.measures import neighbours
from tasks.audits.deja_vu.trainings import Trainings
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure
from tasks.contract.schemas import make_table

SETS = ("A", "B")
OTHER = {"A": "B", "B": "A"}

# One row per epoch, layer, neighbour count and image, sorted by set and id.
INFERENCES = pa.schema(
    [
        ("epoch", pa.int64()),
        ("layer", pa.int32()),
        ("k", pa.int32()),
        ("set", pa.string()),
        ("id", pa.string()),
        ("label", pa.int32()),
        ("target_label", pa.int32()),  # vote under the model of the image's own set
        ("target_confidence", pa.float64()),  # negative entropy of the neighbour labels, in nats
        ("reference_label", pa.int32()),
        ("reference_confidence", pa.float64()),
    ]
)
KEYS = ("epoch", "layer")


@dataclass(frozen=True)
class Voting:
    """Neighbour counts to vote with, the decisive one first."""

    k: tuple[int, ...]


@task(version=1, name="deja_vu.inferences", gathers=True)
def inferences(config: Voting, inputs: Inputs) -> pa.Table:
    """Infer a label per image with both models (INFERENCES) from the images' neighbours (NEIGHBOURS)."""
    tables = []
    if inputs:
        tables = [*_inferences_by_cell(pa.concat_tables(inputs), config.k)]
    return pa.concat_tables(tables) if tables else INFERENCES.empty_table()


def _inferences_by_cell(neighbours: pa.Table, k: tuple[int, ...]) -> Iterator[pa.Table]:
    """Yield the inferences of each epoch, layer and neighbour count."""
    for epoch in sorted(pc.unique(neighbours["epoch"]).to_pylist()):
        at_epoch = neighbours.filter(pc.field("epoch") == epoch)
        for layer in pc.unique(at_epoch["layer"]).to_pylist():  # keeps the requested order
            at_layer = at_epoch.filter(pc.field("layer") == layer)
            for count in k:
                for name in SETS:
                    yield _set_inferences(at_layer.filter(pc.field("set") == name), name, count).select(
                        INFERENCES.names
                    )


def _set_inferences(neighbours: pa.Table, name: str, k: int) -> pa.Table:
    """Return both models' inferences for the images of one set, sorted by id."""
    target = neighbours.filter(pc.field("model") == name).sort_by("id")
    reference = neighbours.filter(pc.field("model") == OTHER[name]).sort_by("id")
    common = pc.is_in(target["id"], reference["id"])
    target = target.filter(common)
    reference = reference.filter(pc.is_in(reference["id"], target["id"]))
    classes = 1 + max(
        (pc.max(pc.list_flatten(table["neighbour_labels"])).as_py() or 0 for table in (target, reference)), default=0
    )
    by_model = {}
    for role, table in (("target", target), ("reference", reference)):
        by_model[role] = count_votes(table, k, classes)
    return make_table(
        INFERENCES,
        k=k,
        **{name: target[name] for name in (*KEYS, "set", "id", "label")},
        **{f"{role}_label": model_votes.predicted for role, model_votes in by_model.items()},
        **{f"{role}_confidence": model_votes.confidence for role, model_votes in by_model.items()},
    )


def count_votes(neighbours: pa.Table, k: int, classes: int) -> Votes:
    """Count the votes of the k nearest neighbours, or of all if there are fewer."""
    if not neighbours.num_rows:
        return Votes(np.empty(0, np.int64), np.empty(0))
    labels = neighbours["neighbour_labels"].combine_chunks()
    flat = labels.flatten().to_numpy(zero_copy_only=False)
    return votes(flat.reshape(neighbours.num_rows, -1)[:, :k], classes)


@dataclass(frozen=True, eq=False)
class Cell:
    """Inferences after one epoch, at one layer, from k neighbours."""

    epoch: int
    layer: int
    k: int
    table: pa.Table

    def way(self, name: str) -> Way:
        """Return the inferences for the images of one set, sorted by id."""
        rows = self.table.filter(pc.field("set") == name)
        labels = rows["label"].to_numpy().astype(np.int64)
        target, reference = (
            Inferences(column(rows, f"{role}_label") == labels, column(rows, f"{role}_confidence"))
            for role in ("target", "reference")
        )
        return Way(labels, target, reference, rows["id"].to_numpy(zero_copy_only=False).astype(str))


def column(rows: pa.Table, name: str) -> NDArray[np.float64]:
    return np.asarray(rows[name].to_numpy())


def cells(table: pa.Table) -> Iterator[Cell]:
    """Yield the cells of an INFERENCES table in table order."""
    names = ["epoch", "layer", "k"]
    for cell in table.group_by(names, use_threads=False).aggregate([]).to_pylist():
        epoch, layer, k = (cell[name] for name in names)
        is_in_cell = (pc.field("epoch") == epoch) & (pc.field("layer") == layer) & (pc.field("k") == k)
        yield Cell(epoch, layer, k, table.filter(is_in_cell))


def plan(config: DejaVu, trainings: Trainings) -> Job:
    return Job(inferences, Voting(config.neighbour_counts), neighbours.plan(config, trainings))


MEASURE = Measure("inferences", INFERENCES, plan)
