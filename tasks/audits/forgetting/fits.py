"""How well each training learnt what it was trained on.

A model that has not learnt its own data says little of them: the paper asks for adequate training accuracy.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tasks.audits.forgetting.trainings import Model
from tasks.job import Inputs, task

ADEQUATE = 0.95  # training accuracy, below which a result warns
FITS = pa.schema(
    [
        ("model", pa.string()),  # query, calibration, target
        ("target", pa.int32()),  # its number; null for the others
        ("replicate", pa.int32()),
        ("seed", pa.int64()),
        ("examples", pa.int64()),  # images trained on
        ("epochs", pa.int32()),
        ("train_loss", pa.float64()),  # of the last epoch, in nats
        ("train_accuracy", pa.float64()),  # in evaluation mode, on all images trained on
        ("validation_accuracy", pa.float64()),  # on test images of the query set's data
    ]
)


@dataclass(frozen=True)
class Fit:
    """Whose training it was."""

    model: Model


@task(version=1, name="forgetting.fit")
def fit(config: Fit, inputs: Inputs) -> pa.Table:
    """The one row of FITS of a training's table."""
    (trained,) = inputs
    (found,) = trained.select(["seed", "examples", "epochs", "history", "train_accuracy"]).to_pylist()
    last = found["history"][-1]
    row = {
        "model": config.model.kind,
        "target": config.model.target,
        "replicate": config.model.replicate,
        "train_loss": last["train_loss"],
        "validation_accuracy": last["validation_accuracy"],
    }
    return pa.Table.from_pylist([row | {name: found[name] for name in FITS.names if name not in row}], FITS)
