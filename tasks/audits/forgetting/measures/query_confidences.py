"""Each model's confidences on the query set and the control set: the probability of the true class of each image.

    c = softmax(logits)[true class]

Confidences are in float32, the models' precision, or as printed in a table of outputs. All other score measures are
computed from them. Liu & Tsaftaris 2020, "Have you forgotten?", section 3.

This module also has the commitment: the SHA-256 of the key that an owner was promised, which identifies each sent image
as D_Q or control. Once the table is returned, the owner can compute the SHA-256 and compare it with README.txt. The
commitment exists only for tables of outputs with a control set that could not be guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.forgetting.audited import Given
from tasks.audits.forgetting.config import Scores
from tasks.audits.forgetting.data_sets import DataSets
from tasks.audits.forgetting.query_set import Probes, ProbeSet, handout_order, key_table, load_probes
from tasks.audits.forgetting.scoring import Scoring
from tasks.audits.forgetting.target import Answers, table_answers
from tasks.audits.forgetting.trainings import ModelId
from tasks.contract.job import Inputs, Job, task
from tasks.contract.measure import Measure, Tables
from tasks.contract.schemas import make_table, nan_as_null
from tasks.contract.summaries import Row, alone, row
from tasks.datasets.catalog import load
from tasks.external.blinding import Split
from tasks.external.confidences import SINGLE, Confidences, round_confidences
from tasks.external.model_file import Interface, ModelFile
from tasks.programs import row_training
from tasks.programs.returned import Scored
from tasks.worker.files import File

if TYPE_CHECKING:
    from tasks.datasets.images import Labels
    from tasks.datasets.picture_rows import Selected

CONFIDENCES = pa.schema(
    [
        ("model", pa.string()),  # query, calibration, partial, target
        ("target", pa.int32()),  # index of the target, or of a partial model's share; null for the others
        ("replicate", pa.int32()),
        ("set", pa.string()),  # query (D_Q) or control
        ("row", pa.int64()),  # row of the training split of the set's data
        ("group", pa.int64()),  # such as the patient; the row if images have no groups
        ("label", pa.int32()),
        ("confidence", pa.float64()),
        ("right", pa.bool_()),  # whether no class is more probable; null if the other classes are unknown
        ("again", pa.float64()),  # confidence on the second copy of the image; null if there is none
        ("resolution", pa.float64()),  # unit of the last decimal place printed or compared; 0: float32
        ("printed", pa.float64()),  # unit of the last decimal place printed; 0: float32
    ]
)
COMMITMENT = pa.schema(
    [
        ("pictures", pa.int64()),  # images sent, including repeats
        ("key", pa.string()),  # SHA-256 of the key in the owner's README.txt
    ]
)
HANDED_OUT = "images handed out"
DIGITS = 16  # hex digits of the key's SHA-256 in the summary


@dataclass(frozen=True)
class Ask:
    """One model and its images. Without `file` and `outputs`, the model comes from the single input."""

    model: ModelId
    probes: ProbeSet
    file: ModelFile | None = None
    outputs: File | None = None
    interface: Interface = Interface()
    columns: tuple[str, ...] = ()
    decimals: int = SINGLE


def batch_key(config: Ask) -> Ask:
    return replace(config, model=ModelId("query", None, 0), file=None, outputs=None)


@task(version=3, name="forgetting.ask", batch_key=batch_key)
def ask(config: Ask, inputs: Inputs) -> pa.Table:
    """Evaluate the model's confidences (CONFIDENCES) image by image, first D_Q, then the control set."""
    probes = load_probes(config.probes)
    answers = _model_answers(config, inputs, probes)
    values = answers.confidences
    return make_table(
        CONFIDENCES,
        model=config.model.kind,
        target=config.model.target,
        replicate=config.model.replicate,
        set=np.where(probes.is_control, "control", "query"),
        row=probes.rows,
        group=probes.groups,
        label=probes.labels,
        confidence=values.values,
        right=values.right,
        again=nan_as_null(answers.repeat_confidences),
        resolution=max(values.resolution, _comparison_resolution(config.decimals)),
        printed=values.resolution,
    )


def _comparison_resolution(decimals: int) -> float:
    """Return the unit of the last decimal place that is compared. 0 beyond float32's precision."""
    return 10.0**-decimals if decimals < SINGLE else 0.0


def _model_answers(config: Ask, inputs: Inputs, probes: Probes) -> Answers:
    """Return the model's answers on the probes. A model that is evaluated here gives repeats the same answer."""
    if config.outputs is not None:
        order = handout_order(config.probes)
        return table_answers(config.outputs, probes.labels, order, config.columns, config.interface)
    if inputs and row_training.is_programmed(inputs[0]):
        values = program_confidences(row_training.scores_of(inputs[0], probes.rows))
    else:
        values = confidences(config, inputs, probes.images, probes.labels)
    return Answers(values, np.full(len(probes.labels), np.nan))


def program_confidences(scored: Scored) -> Confidences:
    """Return the probabilities of the true class from a program's log-odds."""
    return Confidences(round_confidences(np.exp(-np.logaddexp(0.0, -scored.score)), 0.0), 0.0, scored.correct)


def confidences(config: Ask, inputs: Inputs, images: Selected, labels: Labels) -> Confidences:
    """Compute the probability that the model assigns to each image's label."""
    if config.file is not None:
        from tasks.external.loading import load_model
        from tasks.external.outputs import CLASS_ORDER, check_class_order

        if config.file.is_weights:
            classes = load(config.probes.query.data).classes
        else:
            classes = None
        log_p = load_model(config.file, images.split.shape, config.interface, classes).answers(images).log_p
        check_class_order(log_p, labels, f"model {config.file.name}", CLASS_ORDER)
        return _label_confidences(log_p, labels, config.file.name)
    from tasks.external.outputs import log_softmax
    from tasks.models.networks import architecture_of, weights_of_model
    from tasks.training.mixed import logits

    network = architecture_of(inputs[0])
    weights = weights_of_model(inputs[0])
    return _label_confidences(log_softmax(logits(network, weights, images).astype(np.float64)), labels, network.name)


def _label_confidences(log_p: NDArray[np.float64], labels: Labels, name: str) -> Confidences:
    """Select the confidences from log-probabilities (n, classes). Raises ValueError for a label beyond the classes."""
    if labels.max() >= log_p.shape[1]:
        raise ValueError(
            f"model {name} has {log_p.shape[1]} outputs; expected more than {labels.max()}, a label of the query set"
        )
    of_true = log_p[np.arange(len(labels)), labels]
    return Confidences(round_confidences(np.exp(of_true), 0.0), 0.0, np.asarray(of_true == log_p.max(axis=1)))


def plan_answers(question: Scores, data: DataSets, trainings: Mapping[ModelId, Job]) -> Iterator[Job]:
    """Plan the answers of each model, trained ones first. They are the input of the measures that compare models."""
    make_ask = partial(Ask, probes=data.probes, decimals=question.decimals)
    for model, job in trainings.items():
        yield Job(ask, make_ask(model), (job,))
    audited = question.audited
    if not isinstance(audited, Given):
        return
    for number, file in enumerate(audited.models):
        yield Job(ask, make_ask(ModelId("target", number, 0), file=file, interface=audited.interface))
    if audited.tables is None:
        return
    gives = Interface(gives=audited.interface.gives)  # the only setting that affects tables
    columns = audited.tables.columns
    for number, outputs in enumerate(audited.outputs, start=len(audited.models)):
        yield Job(ask, make_ask(ModelId("target", number, 0), outputs=outputs, interface=gives, columns=columns))


def plan(_data: DataSets, scoring: Scoring) -> tuple[Job, ...]:
    return scoring.answers


@task(version=1, name="forgetting.commitment")
def commitment(config: ProbeSet, inputs: Inputs) -> pa.Table:  # noqa: ARG001
    """Record the number of images sent and the key's SHA-256 (COMMITMENT, one row)."""
    key = key_table(config)
    return make_table(COMMITMENT, pictures=key.num_rows, key=Split(key).commitment)


def _plan_commitment(data: DataSets, scoring: Scoring) -> Job | tuple[()]:
    has_tables = isinstance(scoring.audited, Given) and scoring.audited.outputs
    if not has_tables or not data.query.is_controlled or data.query.is_guessable:
        return ()
    return Job(commitment, data.probes)


def _commitment_rows(tables: Tables, about: object) -> Iterator[Row]:  # noqa: ARG001
    for table in tables.rows(COMMITMENT):
        count = float(table["pictures"])
        yield row(HANDED_OUT, {"key": table["key"][:DIGITS]}, alone(count, table["pictures"]), "picture")


MEASURE = Measure("confidences", CONFIDENCES, plan)
COMMITMENT_MEASURE = Measure("commitment", COMMITMENT, _plan_commitment, _commitment_rows)
