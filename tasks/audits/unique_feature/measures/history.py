"""How the models of a pair were trained: one row per model and epoch."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tasks.audits.unique_feature.canary_selection import RankedImage, canary_row
from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.evaluation import MODELS
from tasks.audits.unique_feature.trainings import Trainings
from tasks.job import Inputs, Job, task
from tasks.measure import Measure

HISTORY = pa.schema(
    [
        ("canary", pa.int64()),
        ("seed", pa.int64()),
        ("model", pa.string()),
        ("epoch", pa.int32()),  # counted from 1
        ("train_loss", pa.float64()),  # mean over the epoch's batches, in nats
        ("validation_loss", pa.float64()),
        ("validation_accuracy", pa.float64()),
        ("kept", pa.bool_()),  # whether the model's weights are this epoch's
    ]
)


@dataclass(frozen=True)
class History:
    """The canary whose model and twin a history tells of."""

    canary: int | RankedImage


@task(version=1, name="unique_feature.history")
def history(config: History, inputs: Inputs) -> pa.Table:
    """The epochs of the canary's model and of its twin (the first two inputs)."""
    canary = canary_row(config.canary, inputs)
    rows = [
        {
            "canary": canary,
            "seed": trained["seed"],
            "model": model,
            "kept": epoch["epoch"] == trained["best_epoch"],
        }
        | epoch
        for model, table in zip(MODELS, inputs, strict=False)
        for trained in table.select(["seed", "best_epoch", "history"]).to_pylist()
        for epoch in trained["history"]
    ]
    return pa.Table.from_pylist(rows, HISTORY)


def history_jobs(trainings: Trainings) -> tuple[Job, ...]:
    """Every pair's history."""
    return tuple(Job(history, History(pair.canary.image), pair.inputs) for pair in trainings.pairs)


def plan(config: UniqueFeature, trainings: Trainings) -> tuple[Job, ...]:
    return history_jobs(trainings) if config.asks_for("scores") else ()


def learning_curves(table: pa.Table) -> dict[str, list[tuple[int, float]]]:
    """The losses and the accuracy after each epoch, the mean over the models that were trained as long."""
    names = ("train_loss", "validation_loss", "validation_accuracy")
    means = table.group_by("epoch").aggregate([(name, "mean") for name in names]).sort_by("epoch").to_pylist()
    return {name: [(mean["epoch"], mean[f"{name}_mean"]) for mean in means] for name in names}


MEASURE = Measure("history", HISTORY, plan, learning_curves=learning_curves)
