"""What does each model say of the query set? The probability of the true class, one number per image.

    c = softmax(logits)[true class]

in float32, the precision of the models, before any threshold; or as printed in a table of outputs. All other measures
of scores are computed from these numbers. c near 1: the model is sure of the image's class.

Liu & Tsaftaris 2020, "Have you forgotten?", section 3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.forgetting.config import Forgetting
from tasks.audits.forgetting.external_targets import table_confidences
from tasks.audits.forgetting.trainings import Model, Trainings
from tasks.datasets.catalog import load
from tasks.datasets.mixtures import Part
from tasks.external.confidences import SINGLE, Confidences, rounded
from tasks.external.model_file import Interface, ModelFile
from tasks.files import File
from tasks.job import Inputs, Job, task
from tasks.measure import Measure

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
    answers = confidences(config, inputs, data.train_images[rows], labels)
    n = len(rows)
    columns = {
        "model": pa.repeat(config.model.kind, n),
        "target": pa.array([config.model.target] * n, pa.int32()),
        "replicate": pa.repeat(pa.scalar(config.model.replicate, pa.int32()), n),
        "row": pa.array(rows),
        "group": pa.array(rows if data.train_groups is None else data.train_groups[rows]),
        "label": pa.array(labels.astype(np.int32)),
        "confidence": pa.array(answers.values),
        "resolution": pa.repeat(max(answers.resolution, last_place(config.decimals)), n),
    }
    return pa.table(columns, CONFIDENCES)


def last_place(decimals: int) -> float:
    """The last place that is compared; 0 where float32 has no more."""
    return 10.0**-decimals if decimals < SINGLE else 0.0


def confidences(config: Ask, inputs: Inputs, images: Pixels, labels: Labels) -> Confidences:
    """The probability that the model gives each image's label."""
    if config.outputs is not None:
        return table_confidences(config.outputs, labels, config.columns, config.interface)
    if config.file is not None:
        from tasks.external.loading import loaded

        shape = (images.shape[1], images.shape[2], images.shape[3])
        return of_labels(loaded(config.file, shape, config.interface).answers(images).log_p, labels, config.file.name)
    from tasks.external.answers import normalised
    from tasks.models.weights import architecture_of, weights_of
    from tasks.training.mixed import logits

    network, weights = architecture_of(inputs[0]), weights_of(inputs[0])
    return of_labels(normalised(logits(network, weights, images).astype(np.float64)), labels, network.name)


def of_labels(log_p: NDArray[np.float64], labels: Labels, name: str) -> Confidences:
    """The confidences in log-probabilities (n, classes); ValueError where a label is beyond the classes."""
    if labels.max() >= log_p.shape[1]:
        raise ValueError(
            f"model {name} tells {log_p.shape[1]} classes apart; a label of the query set is {labels.max()}"
        )
    return Confidences(rounded(np.exp(log_p[np.arange(len(labels)), labels]), 0.0), 0.0)


def plan(config: Forgetting, trainings: Trainings) -> tuple[Job, ...]:
    """What each model is asked, those that are trained here first; the input of the measures that compare models."""
    if not trainings.targets:
        return ()
    asked = (
        Job(ask, Ask(model, config.query, decimals=config.decimals), (job,)) for model, job in trainings.jobs.items()
    )
    return *asked, *external(config)


def external(config: Forgetting) -> Iterator[Job]:
    """What external targets are asked, each a target of its own."""
    given = config.given
    asked = partial(Ask, query=config.query, decimals=config.decimals)
    for number, file in enumerate(given.models):
        yield Job(ask, asked(Model("target", number, 0), file=file, interface=given.interface))
    gives = Interface(gives=given.interface.gives)  # what a table is read by; the rest says how a model is asked
    for number, outputs in enumerate(given.outputs, start=len(given.models)):
        yield Job(ask, asked(Model("target", number, 0), outputs=outputs, interface=gives, columns=given.columns))


MEASURE = Measure("confidences", CONFIDENCES, plan)
