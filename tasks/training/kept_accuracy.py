"""The validation accuracy of trained classifiers, for audits whose other tables do not contain it.

Such an audit plans `accuracy_jobs` and yields `accuracy_rows`, so that its answer can begin with a warning if the
classifiers perform at chance level (`tasks.contract.learning`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from tasks.contract.job import Inputs, Job, NoSettings, task
from tasks.contract.learning import accuracy_row
from tasks.contract.measure import Tables
from tasks.contract.schemas import make_table
from tasks.contract.summaries import Row
from tasks.numerics import statistics

KEPT_ACCURACY = pa.schema(
    [
        ("seed", pa.int64()),  # seed of the training
        ("validation_accuracy", pa.float64()),  # at the epoch the weights are from; null if not measured
    ]
)


@task(version=1, name="training.kept_accuracy")
def kept_accuracy(config: NoSettings, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - no settings
    """Read the validation accuracy from the input, the table of a trained classifier (KEPT_ACCURACY)."""
    (training,) = inputs
    (end,) = training.select(["seed", "best_epoch", "history"]).to_pylist()
    accuracies = []
    for epoch in end["history"]:
        if epoch["epoch"] == end["best_epoch"]:
            accuracies.append(epoch["validation_accuracy"])
    measured = [value for value in accuracies if value is not None and not np.isnan(value)]
    return make_table(KEPT_ACCURACY, seed=end["seed"], validation_accuracy=measured[-1] if measured else None)


def accuracy_jobs(trainings: Iterable[Job]) -> tuple[Job, ...]:
    """Plan one job per training."""
    return tuple(Job(kept_accuracy, NoSettings(), (training,)) for training in trainings)


def accuracy_rows(tables: Tables, chance: float | None) -> Iterator[Row]:
    """Yield the summary row for the mean accuracy, if any accuracy was measured."""
    values = [accuracy["validation_accuracy"] for accuracy in tables.rows(KEPT_ACCURACY)]
    measured = [value for value in values if value is not None]
    if measured:
        mean = statistics.within_shares(statistics.mean(measured))
        yield accuracy_row(mean, "validation images", chance, "training")
