"""Training accuracy: how well each model learnt its training data.

    train accuracy = share of the training images that the model classifies correctly, in evaluation mode

A model that has not learnt its data reveals little about them: Liu & Tsaftaris 2020, "Have you forgotten?", ask for
adequate training accuracy. The result warns below ADEQUATE.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from tasks.audits.forgetting.config import About
from tasks.audits.forgetting.data_sets import DataSets
from tasks.audits.forgetting.scoring import Scoring
from tasks.audits.forgetting.trainings import ModelId
from tasks.contract.job import Inputs, Job, task
from tasks.contract.learning import accuracy_row
from tasks.contract.measure import Measure, Tables
from tasks.contract.schemas import make_table
from tasks.contract.summaries import Row, alone, row
from tasks.numerics import statistics

ADEQUATE = 0.95  # the result warns below this training accuracy
FITS = pa.schema(
    [
        ("model", pa.string()),  # query, calibration, partial, target
        ("target", pa.int32()),  # index of the target, or of a partial model's share; null for the others
        ("replicate", pa.int32()),
        ("seed", pa.int64()),
        ("examples", pa.int64()),  # number of training images
        ("epochs", pa.int32()),
        ("train_loss", pa.float64()),  # after the last epoch, in nats
        ("train_accuracy", pa.float64()),  # in evaluation mode, on all training images
        ("validation_accuracy", pa.float64()),  # on test images of the query set's data set
    ]
)


@dataclass(frozen=True)
class Fit:
    """The model whose training is summarised."""

    model: ModelId


@task(version=1, name="forgetting.fit")
def fit(config: Fit, inputs: Inputs) -> pa.Table:
    """Build the FITS row of a training from its table."""
    (training,) = inputs
    (end,) = training.select(["seed", "examples", "epochs", "history", "train_accuracy"]).to_pylist()
    last = end["history"][-1]
    return make_table(
        FITS,
        model=config.model.kind,
        target=config.model.target,
        replicate=config.model.replicate,
        train_loss=last["train_loss"],
        validation_accuracy=last["validation_accuracy"],
        **{name: end[name] for name in ("seed", "examples", "epochs", "train_accuracy")},
    )


def plan(_data: DataSets, scoring: Scoring) -> tuple[Job, ...]:
    return tuple(Job(fit, Fit(model), (job,)) for model, job in scoring.trainings.items())


def rows(tables: Tables, about: About) -> Iterator[Row]:
    """Yield the training accuracy per kind of model, and the lowest of all, which may trigger a warning."""
    fits = tables.rows(FITS)
    for kind in ("query", "calibration", "partial", "target"):
        accuracies = [fitted["train_accuracy"] for fitted in fits if fitted["model"] == kind]
        if accuracies:
            yield row("train accuracy", {"models": kind}, statistics.mean(accuracies), "training")
    if fits:
        lowest = min(fitted["train_accuracy"] for fitted in fits)
        yield row("lowest train accuracy", {}, alone(lowest, len(fits)), "training")
        accuracy = statistics.within_shares(statistics.mean([fitted["train_accuracy"] for fitted in fits]))
        yield accuracy_row(accuracy, "images trained on", about.chance, "training")


MEASURE = Measure("fits", FITS, plan, rows)
