"""What each model says of the query set: the probability of the true class, one number per image.

c of the paper, section 3: softmax confidence before any threshold, in float32, the precision at which models say it; or
as a table of outputs has it printed.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.forgetting.trainings import Model
from tasks.datasets.catalog import load
from tasks.datasets.mixtures import Part
from tasks.external.confidences import SINGLE, Confidences, read, rounded
from tasks.external.model_file import Interface, ModelFile
from tasks.files import File, FileError
from tasks.job import Inputs, task

if TYPE_CHECKING:
    from tasks.datasets.images import Labels, Pixels

CONFIDENCES = pa.schema(
    [
        ("model", pa.string()),  # query, calibration, target
        ("target", pa.int32()),  # its number; null for the others
        ("replicate", pa.int32()),
        ("row", pa.int64()),  # of the training split of the query set's data
        ("group", pa.int64()),  # such as the patient; the row where images have none
        ("label", pa.int32()),
        ("confidence", pa.float64()),
        ("resolution", pa.float64()),  # the last place that was printed, or that is compared; 0: float32
    ]
)
SET = "query"  # the name of the pictures that a model's owner is given


@dataclass(frozen=True)
class Ask:
    """One model and what it is asked about. Without `file` and `outputs` it is the one trained for the (one) input."""

    model: Model
    query: Part
    file: ModelFile | None = None
    outputs: File | None = None
    interface: Interface = Interface()
    columns: tuple[str, ...] = ()
    decimals: int = SINGLE


def batch_key(config: Ask) -> Ask:
    return replace(config, model=Model("query", None, 0), file=None, outputs=None)


@task(version=1, name="forgetting.ask", batch_key=batch_key)
def ask(config: Ask, inputs: Inputs) -> pa.Table:
    """The model's confidences (CONFIDENCES), image by image of the query set."""
    data = load(config.query.data)
    rows = config.query.rows(data)
    labels = data.train_labels[rows]
    said = confidences(config, inputs, data.train_images[rows], labels)
    n = len(rows)
    columns = {
        "model": pa.repeat(config.model.kind, n),
        "target": pa.array([config.model.target] * n, pa.int32()),
        "replicate": pa.repeat(pa.scalar(config.model.replicate, pa.int32()), n),
        "row": pa.array(rows),
        "group": pa.array(rows if data.train_groups is None else data.train_groups[rows]),
        "label": pa.array(labels.astype(np.int32)),
        "confidence": pa.array(said.values),
        "resolution": pa.repeat(max(said.resolution, compared(config.decimals)), n),
    }
    return pa.table(columns, CONFIDENCES)


def compared(decimals: int) -> float:
    """The last place that is looked at; 0 where float32 has no more."""
    return 10.0**-decimals if decimals < SINGLE else 0.0


def confidences(config: Ask, inputs: Inputs, images: Pixels, labels: Labels) -> Confidences:
    """The probability that the model gives each image's label."""
    if config.outputs is not None:
        return sent(config.outputs, config, labels)
    if config.file is not None:
        from tasks.external.loading import loaded

        shape = (images.shape[1], images.shape[2], images.shape[3])
        return of_labels(loaded(config.file, shape, config.interface).answers(images).log_p, labels, config.file.name)
    from tasks.external.answers import normalised
    from tasks.models.weights import architecture_of, weights_of
    from tasks.training.mixed import logits

    network, weights = architecture_of(inputs[0]), weights_of(inputs[0])
    return of_labels(normalised(logits(network, weights, images).astype(np.float64)), labels, network.name)


def sent(outputs: File, config: Ask, labels: Labels) -> Confidences:
    """The confidences in a table of outputs; ValueError where it does not say them of every image."""
    from tasks.external.handout import image_of

    ids = [image_of(SET, row) for row in range(len(labels))]
    return read(outputs, ids, labels, config.columns, config.interface.gives)


def check_table(config: Ask) -> None:
    """ValueError where a table of outputs cannot be used: before anything is trained to be compared with it.

    One that has gone since it was pinned passes, since what is stored of the run can still be looked at.
    """
    if config.outputs is not None:
        data = load(config.query.data)
        with suppress(FileError):
            sent(config.outputs, config, data.train_labels[config.query.rows(data)])


def of_labels(log_p: NDArray[np.float64], labels: Labels, name: str) -> Confidences:
    """The confidences in log-probabilities (n, classes); ValueError where a label is beyond the classes."""
    if labels.max() >= log_p.shape[1]:
        raise ValueError(
            f"model {name} tells {log_p.shape[1]} classes apart; a label of the query set is {labels.max()}"
        )
    return Confidences(rounded(np.exp(log_p[np.arange(len(labels)), labels]), 0.0), 0.0)
