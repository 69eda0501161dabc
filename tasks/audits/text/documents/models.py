"""The models that are asked about documents: fine-tuned here, or a pair of which one was trained on them elsewhere.

Of models that are fine-tuned here every document is in the training data of exactly half, and which half is drawn
evenly of all, as in `membership`. So the models that were not trained on a document are its twins: what they say of it,
and how much of it they write by themselves, is what fluency alone brings.

Of a pair from elsewhere one model was trained on documents that were inserted into its training data, each as often as
a draw says, and its base was trained on none of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.text.continuations import ENDS, score_ends
from tasks.audits.text.question import Documents, Insertions
from tasks.audits.text.secrets.space import Repetitions, Told
from tasks.contract.extras import Extra
from tasks.contract.job import Inputs, Job, Work, task
from tasks.contract.ranges import Ranged, Share
from tasks.contract.schemas import make_table
from tasks.datasets.catalog import TEXT_SCHEMA, load_records, load_texts
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.mixtures import draw_balanced_members
from tasks.external.audit_inputs import FEWEST
from tasks.language_models.fine_tuning_config import Adaptation, Precision, Relation, adaptation_extras
from tasks.language_models.language_model import LanguageModel
from tasks.numerics import seeds
from tasks.training.recipe import Privacy
from tasks.worker import hardware

if TYPE_CHECKING:
    from tasks.language_models.sequence_model import SequenceModel

DOCUMENT_SCORES = pa.schema(
    [
        ("row", pa.int64()),  # of the document among the texts, where it stands first
        ("repetitions", pa.int64()),  # in the training data of the models that have it
        ("member", pa.bool_()),  # whether this one has; of a null, whether another document is in its place
        ("tokens", pa.int64()),
        ("log_p", pa.float64()),  # of the whole document, in nats
        *ENDS,  # after the prefix
    ]
)
INSERTION_SCHEMA = pa.schema([*TEXT_SCHEMA, pa.field("duplicates", pa.int64(), nullable=False)])


@dataclass(frozen=True)
class DocumentModel(Ranged):
    """Model `number` of `models`, which has its half of the documents; `draw` says which, alike for all models."""

    data: Dataset
    model: LanguageModel
    documents: int
    models: int
    number: int
    repetitions: Repetitions
    deduplicate: bool
    told: Told
    draw: int
    examples: int
    prefix: int
    suffix: int
    adaptation: Adaptation
    rank: int
    seed: int
    epochs: int
    batch: int
    accumulate: int
    learning_rate: float
    dropout: Annotated[float, Share(one=False)]
    length: int
    privacy: Privacy | None
    precision: Precision
    checkpointing: bool

    relation: ClassVar[Relation] = "kept"
    answer_length: ClassVar[int] = 1  # the token before a text

    def extras(self) -> tuple[Extra, ...]:
        return adaptation_extras(self.adaptation)

    @property
    def asked(self) -> tuple[int, ...]:
        return (self.epochs,)


@dataclass(frozen=True)
class Document:
    """A document that is asked about, what stands in its place in the training data, and how often."""

    row: int
    text: str
    told: str
    repetitions: int


def document_jobs(question: Documents, seed: int) -> tuple[Job, ...]:
    """What each model says of all documents; DatasetError where there are too few."""
    jobs = tuple(Job(score_documents, _document_model(question, seed, number)) for number in range(question.models))
    draw_documents(jobs[0].config)
    return jobs


def _document_model(question: Documents, seed: int, number: int) -> DocumentModel:
    return DocumentModel(
        data=question.data,
        model=question.reading.model,
        documents=question.documents,
        models=question.models,
        number=number,
        repetitions=question.repetitions,
        told=question.told,
        draw=seeds.derive(seed, "documents"),
        examples=question.examples,
        prefix=question.prefix,
        suffix=question.suffix,
        seed=seeds.derive(seed, "training of documents", number),
        length=question.reading.length,
        **question.tuning.job_fields,
    )


def draw_documents(config: DocumentModel) -> list[Document]:
    """The documents that are asked about, by chance among the texts that differ; DatasetError where there are fewer."""
    texts = load_texts(config.data, config.examples)
    unique = list(dict.fromkeys(texts))
    needed = config.documents * (2 if config.told == "others" else 1)
    if needed > len(unique):
        raise DatasetError(
            f"documents is {config.documents} and told is {config.told}, which takes {needed} texts; "
            f"{config.data.name} has {len(unique)} that differ"
        )
    order = seeds.generator(config.draw, "choice").permutation(len(unique)).tolist()
    told = order[config.documents :] if config.told == "others" else order
    rows, copies = {text: row for row, text in reversed(list(enumerate(texts)))}, Counter(texts)
    return [
        Document(
            rows[unique[asked]],
            unique[asked],
            unique[stands],
            1 if config.deduplicate else config.repetitions[at % len(config.repetitions)] * copies[unique[stands]],
        )
        for at, (asked, stands) in enumerate(zip(order[: config.documents], told, strict=False))
    ]


def memberships(config: DocumentModel) -> list[bool]:
    """Whether the model has each document, or what stands in its place."""
    members: list[bool] = draw_balanced_members(config.documents, config.models, config.draw)[config.number].tolist()
    return members


def training_texts(config: DocumentModel, asked: Sequence[Document]) -> list[str]:
    """The texts that the model is trained on: those that nothing is asked about, and its half of the documents."""
    apart = {text for document in asked for text in (document.text, document.told)}
    others = [text for text in load_texts(config.data, config.examples) if text not in apart]
    its = [
        document.told
        for document, member in zip(asked, memberships(config), strict=True)
        if member
        for _ in range(document.repetitions)
    ]
    return [*(dict.fromkeys(others) if config.deduplicate else others), *its]


def work(config: DocumentModel) -> Work:
    """What the training and the questions compute."""
    trained = len(training_texts(config, draw_documents(config))) * config.epochs
    way = "tell" if config.privacy is None else "privately tell"
    return Work({f"{way} {config.model.name}": trained}, {f"continue {config.model.name}": config.documents})


def batch_key(config: DocumentModel) -> DocumentModel:
    """What trainings that share a call have in common: all but which documents they have."""
    return replace(config, number=0, seed=0)


@task(version=1, name="text.score_documents", gpus=1.0, batch_key=batch_key, trains=1, work=work)
def score_documents(config: DocumentModel, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - a training reads no tables
    """log p of each document by the fine-tuned model, and how it goes on after the prefix (DOCUMENT_SCORES)."""
    from tasks.language_models.fine_tuning import fine_tuned_on

    place, asked = hardware.device(), draw_documents(config)
    with hardware.exactly(place), fine_tuned_on(config, training_texts(config, asked), place) as model:
        scores = score_model(config, model, [document.text for document in asked])
    return make_table(
        DOCUMENT_SCORES,
        row=[document.row for document in asked],
        repetitions=[document.repetitions for document in asked],
        member=memberships(config),
        **scores,
    )


@dataclass(frozen=True)
class PairedModel(Ranged):
    """A model that was trained elsewhere, on the documents as often as they were `inserted`, or its base, on none."""

    data: Dataset
    model: LanguageModel
    inserted: bool
    told: Told
    repetitions: Repetitions
    draw: int
    examples: int
    prefix: int
    suffix: int
    seed: int
    length: int
    precision: Precision

    answer_length: ClassVar[int] = 1  # the token before a text


@dataclass(frozen=True)
class InsertedDocuments:
    """The documents that are asked about, and how often each was inserted: 0 of those that were left out."""

    texts: tuple[str, ...]
    repetitions: NDArray[np.int64]


def insertion_jobs(question: Insertions, seed: int) -> tuple[Job, ...]:
    """What the model and its base say of all documents; DatasetError where nothing can be concluded from these."""
    model = PairedModel(
        data=question.data,
        model=question.reading.model,
        inserted=True,
        told=question.told,
        repetitions=question.repetitions,
        draw=seeds.derive(seed, "insertions"),
        examples=question.examples,
        prefix=question.prefix,
        suffix=question.suffix,
        seed=seeds.derive(seed, "models of insertions"),
        length=question.reading.length,
        precision=question.reading.precision,
    )
    read_insertions(model)
    return Job(score_insertions, model), Job(score_insertions, replace(model, model=question.base, inserted=False))


def read_insertions(config: PairedModel) -> InsertedDocuments:
    """The documents with their repetitions; DatasetError, in one line, where nothing can be concluded from these.

    Embedded texts stand in nobody's training data: which half of them counts as inserted is drawn. So it is of a null,
    as many as were.
    """
    if _has_records(config.data):
        table = load_records(config.data, INSERTION_SCHEMA).table[: config.examples or None]
        texts, repetitions = tuple(table["text"].to_pylist()), table["duplicates"].to_numpy()
    else:
        texts = load_texts(config.data, config.examples)
        turns = np.resize(config.repetitions, len(texts) // 2)
        repetitions = np.concatenate([turns, np.zeros(len(texts) - len(turns), dtype=np.int64)])
    if are_insertions_drawn(config):
        repetitions = seeds.generator(config.draw, "which count as inserted").permutation(repetitions)
    _check_insertions(config.data.name, texts, repetitions)
    return InsertedDocuments(texts, repetitions)


def are_insertions_drawn(config: Insertions | PairedModel) -> bool:
    """Whether a draw says which documents count as inserted, and no model knows of it."""
    return config.told == "others" or not _has_records(config.data)


def _has_records(data: Dataset) -> bool:
    return data.name.startswith("records:")


def _check_insertions(name: str, texts: Sequence[str], repetitions: NDArray[np.int64]) -> None:
    if len(set(texts)) < len(texts):
        raise DatasetError(
            f"{name} has a text twice; each must stand once, with how often it was inserted (duplicates)"
        )
    if repetitions.min() < 0:
        raise DatasetError(f"{name} has duplicates of {repetitions.min()}; each must be at least 0")
    for count, what in ((np.count_nonzero(repetitions), "inserted"), (np.sum(repetitions == 0), "left out")):
        if count < FEWEST:
            raise DatasetError(f"{name} has {count} documents that were {what}; a comparison takes at least {FEWEST}")


def _insertion_work(config: PairedModel) -> Work:
    """What the questions compute."""
    return Work({}, {f"continue {config.model.name}": len(read_insertions(config).texts)})


@task(version=1, name="text.score_insertions", gpus=1.0, work=_insertion_work)
def score_insertions(config: PairedModel, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - nothing is trained
    """log p of each document by the model as it is, and how it goes on after the prefix (DOCUMENT_SCORES)."""
    from tasks.language_models.fine_tuning import model_as_it_is

    place, asked = hardware.device(), read_insertions(config)
    with hardware.exactly(place), model_as_it_is(config, place) as model:
        scores = score_model(config, model, asked.texts)
    return make_table(
        DOCUMENT_SCORES,
        row=range(len(asked.texts)),
        repetitions=asked.repetitions,
        member=config.inserted & (asked.repetitions > 0),
        **scores,
    )


def score_model(
    config: DocumentModel | PairedModel, model: SequenceModel, texts: Sequence[str]
) -> dict[str, list[float | None]]:
    """The columns of DOCUMENT_SCORES that a model says of each text.

    The tokens after the prefix are asked of decoder-only models, whose prefix is of the same text.
    """
    from tasks.language_models.sequence_model import DecoderOnly
    from tasks.language_models.training import encode_texts, score_targets

    whole = encode_texts(config, model, texts)
    columns: dict[str, list[float | None]] = {
        "tokens": list(whole.lengths),
        "log_p": score_targets(model, whole).tolist(),
        **{name: [None] * len(texts) for name in dict(ENDS)},
    }
    least = config.prefix + config.suffix
    long = [row for row, length in enumerate(whole.lengths) if length >= least]
    if not long or not isinstance(model, DecoderOnly):
        return columns
    prompts = [[model.begin, *whole.targets[row][: config.prefix]] for row in long]
    ends = [list(whole.targets[row][config.prefix : least]) for row in long]
    for name, values in score_ends(model, prompts, ends).items():
        for row, value in zip(long, values, strict=True):
            columns[name][row] = value
    return columns
