"""The accuracy gain of a given encoder on its training images, compared with references that saw none of them.

    gain = acc of a model on A - acc of the same model on B, on its own most confident images of each

No reference was trained on A or B, so its gain is 0 up to chance unless A and B differ. If the given encoder memorises
no image, its gain is similar to theirs.

    rank p = (1 + number of references whose gain is at least the encoder's) / (1 + number of references)

This p-value accounts for the variation between trainings, provided that the given encoder was trained like the
references. With few references it cannot be small: with 19 it is 0.05 at best. A randomisation test
(`tasks.audits.deja_vu.randomisation`) tests each model's gain against 0. If the gain of the first reference is not 0, A
and B were not drawn in the same way. All of this is ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tasks.audits.deja_vu.accuracy import Inferences, accuracy
from tasks.audits.deja_vu.config import About, DejaVu
from tasks.audits.deja_vu.encoder_config import Given
from tasks.audits.deja_vu.measures import neighbours
from tasks.audits.deja_vu.measures.inferences import SETS, count_votes
from tasks.audits.deja_vu.randomisation import ROUNDING, differs
from tasks.audits.deja_vu.trainings import MODELS, Trainings
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.summaries import Estimate, Row, alone, row
from tasks.numerics import seeds

GAIN = "accuracy gain"
RANK = "rank among references"
TARGET = "target"

# One row per model, the given encoder first.
REFERENCES = pa.schema(
    [
        ("model", pa.string()),  # target, reference, reference 2, ...
        ("percent", pa.int32()),
        ("accuracy_a", pa.float64()),
        ("accuracy_b", pa.float64()),
        ("gain", pa.float64()),
        ("p_value", pa.float64()),  # two-sided, for a gain of 0
        ("images", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Comparing:
    """Decisive percentage and neighbour count, the number of permutations, and their seed."""

    confident: int
    k: int
    partings: int
    seed: int


@task(version=2, name="deja_vu.references", gathers=True)
def references(config: Comparing, inputs: Inputs) -> pa.Table:
    """Compute the gain of every model (REFERENCES) from its neighbours (NEIGHBOURS)."""
    return pa.Table.from_pylist([gain(table, config) for table in inputs if table.num_rows], REFERENCES)


def gain(neighbours: pa.Table, config: Comparing) -> dict[str, Any]:
    """Compute the row of one model after its last epoch."""
    neighbours = neighbours.filter(pc.field("epoch") == pc.max(neighbours["epoch"]))
    neighbours = neighbours.sort_by("id")  # the tie order must not depend on the sets
    labels = neighbours["label"].to_numpy().astype(np.int64)
    classes = 1 + int(max(labels.max(), pc.max(pc.list_flatten(neighbours["neighbour_labels"])).as_py()))
    votes = count_votes(neighbours, config.k, classes)
    inferences = Inferences(votes.predicted == labels, votes.confidence)
    sets = neighbours["set"].to_numpy()
    in_a, in_b = (float(accuracy(_select_inferences(inferences, sets == name), [config.confident])[0]) for name in SETS)
    rng = seeds.generator(config.seed, "partings")
    model = neighbours["model"][0].as_py()
    return {
        "model": name_of(model),
        "percent": config.confident,
        "accuracy_a": in_a,
        "accuracy_b": in_b,
        "gain": in_a - in_b,
        "p_value": differs(labels, sets == SETS[0], inferences, config.confident, config.partings, rng),
        "images": len(labels),
    }


def _select_inferences(inferences: Inferences, mask: Any) -> Inferences:
    return Inferences(inferences.correct[mask], inferences.confidence[mask])


def name_of(model: str) -> str:
    """Return the table name of a model: A (the given encoder) is target; B, B 2, ... are reference, reference 2, ..."""
    if model == MODELS[0]:
        return TARGET
    return model.replace(MODELS[1], "reference", 1)


def plan(config: DejaVu, trainings: Trainings) -> Job | tuple[()]:
    if not isinstance(config.encoders, Given):
        return ()
    seed = seeds.derive(config.seed, "references")
    comparing = Comparing(config.confident_percent, config.k[0], config.permutations, seed)
    return Job(references, comparing, neighbours.plan(config, trainings))


def rows(tables: Tables, about: About) -> Iterator[Row]:  # noqa: ARG001 - the rows are the same for all runs
    """Yield the target's rank if there are at least two references, then every model's gain."""
    models = [model for model in tables.rows(REFERENCES) if model["gain"] is not None]
    reference_gains = [model["gain"] for model in models if model["model"] != TARGET]
    target = next((model for model in models if model["model"] == TARGET), None)
    if target is not None and len(reference_gains) > 1:
        p = rank_p(target["gain"], reference_gains)
        rank = 1 + sum(gain > target["gain"] + ROUNDING for gain in reference_gains)
        yield row(RANK, {"percent": target["percent"]}, alone(float(rank), 1 + len(reference_gains)), "model", None, p)
    for model in models:
        setting = {"model": model["model"], "percent": model["percent"]}
        estimate = Estimate(model["gain"], None, None, model["images"])
        yield row(GAIN, setting, estimate, "image", 0.0, model["p_value"])


def rank_p(target: float, reference_gains: list[float]) -> float:
    """Return the probability of at least this rank if the target is exchangeable with the references."""
    return (1 + sum(gain >= target - ROUNDING for gain in reference_gains)) / (1 + len(reference_gains))


MEASURE = Measure("references", REFERENCES, plan, rows)
