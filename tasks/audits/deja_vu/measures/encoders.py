"""Accuracy of the encoders on public images, and the share of equal embeddings.

    public accuracy = share of public images whose nearest public neighbours vote for their label
    tied = share of pairs of crops, or of public images, with equal embeddings: the larger of the two

An encoder that classifies public images no better than the most frequent class has learnt nothing that neighbours could
reveal. An encoder with constant output has no nearest neighbours. Both numbers describe whole images, which the attack
does not use: a background need not reveal its object.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tasks.audits.deja_vu.config import About, DejaVu
from tasks.audits.deja_vu.measures import neighbours
from tasks.audits.deja_vu.trainings import MODELS, Trainings
from tasks.contract.job import Inputs, Job, NoSettings, task
from tasks.contract.learning import accuracy_row
from tasks.contract.measure import Measure, Tables
from tasks.contract.summaries import Row
from tasks.contract.ties import tied_row
from tasks.numerics.statistics import proportion

# One row per model, after its last epoch and at the decisive layer.
ENCODERS = pa.schema(
    [
        ("model", pa.string()),
        ("tied", pa.float64()),
        ("crops", pa.int64()),
        ("asked", pa.int64()),  # classified public images; null if there are none
        ("right", pa.int64()),
        ("commonest", pa.float64()),  # frequency of the most common label
    ]
)


@task(version=1, name="deja_vu.encoders", gathers=True)
def encoders(config: NoSettings, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - there is nothing to set
    """Collect the embedding statistics of each encoder (ENCODERS) from the NEIGHBOURS of its last snapshots."""
    rows = [_encoder_row(table) for table in inputs if table.num_rows]
    return pa.Table.from_pylist(rows, ENCODERS)


def _encoder_row(neighbours: pa.Table) -> dict[str, Any]:
    """Return the row of one model, from its last epoch and its first (decisive) layer."""
    last = neighbours.filter(pc.field("epoch") == pc.max(neighbours["epoch"]))
    first = last.filter(pc.field("layer") == last["layer"][0])
    facts = first.slice(0, 1).to_pylist()[0]
    return {
        "model": facts["model"],
        "tied": facts["tied"],
        "crops": first.num_rows,
        **{name: facts[f"public_{name}"] for name in ("asked", "right", "commonest")},
    }


def plan(config: DejaVu, trainings: Trainings) -> Job:
    last: dict[str, Job] = {}
    for job in neighbours.plan(config, trainings):
        last[job.config.model] = job
    return Job(encoders, NoSettings(), tuple(last.values()))


def rows(tables: Tables, about: About) -> Iterator[Row]:
    """Yield the share of equal embeddings of each encoder, and its accuracy on public images."""
    for encoder in tables.rows(ENCODERS):
        name = _encoder_name(encoder["model"], about.given)
        if encoder["tied"] is not None:
            yield tied_row(encoder["tied"], encoder["crops"], "image", of=name)
        if encoder["asked"]:
            accuracy = proportion(encoder["right"], encoder["asked"])
            yield accuracy_row(accuracy, "public images", encoder["commonest"], "image", model_name=name)


def _encoder_name(model: str, is_given: bool) -> str:
    """Return the name of a model in sentences. A is the given encoder, if any; the others are references."""
    if not is_given:
        return f"encoder {model}"
    if model == MODELS[0]:
        return "given encoder"
    return model.replace(MODELS[1], "reference", 1)


MEASURE = Measure("encoders", ENCODERS, plan, rows)
