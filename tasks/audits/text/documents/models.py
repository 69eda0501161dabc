"""The models that score documents: models fine-tuned by the audit, or a given pair with and without insertions.

If the audit fine-tunes the models, every document is in the training data of exactly half of them, drawn uniformly from
all halves, as in `membership`. The models that were not trained on a document are its control models: their scores and
reproductions show the effect of fluency alone.

In a given pair, one model was trained on documents that were inserted into its training data a random number of times;
the other, its base, was trained on none of them.
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
from tasks.audits.text.programs import train_on_texts
from tasks.audits.text.question import Documents, Insertions
from tasks.audits.text.secrets.space import Repetitions
from tasks.audits.text.tuning import TextTuning
from tasks.contract.extras import Extra
from tasks.contract.job import Inputs, Job, Work, task
from tasks.contract.ranges import Ranged, Share
from tasks.contract.schemas import make_table
from tasks.datasets.catalog import TEXT_SCHEMA, load_records, load_texts
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.mixtures import draw_balanced_members
from tasks.external.audit_inputs import FEWEST
from tasks.language_models.fine_tuning_config import Adaptation, Relation, adaptation_extras
from tasks.language_models.language_model import LanguageModel
from tasks.language_models.token_operations import (
    continuing_operations,
    known,
    mean_tokens,
    training_bytes,
    training_operations,
)
from tasks.numerics import seeds
from tasks.numerics.precision import Precision
from tasks.programs.config import Program, without_resources
from tasks.programs.data_writer import check_writable
from tasks.training.recipe import Privacy
from tasks.worker import hardware

if TYPE_CHECKING:
    from tasks.language_models.sequence_model import SequenceModel

DOCUMENT_SCORES = pa.schema(
    [
        ("row", pa.int64()),  # index of the first occurrence among the texts
        ("repetitions", pa.int64()),  # number of copies in the training data of the models trained on it
        ("member", pa.bool_()),  # whether this model is trained on it or, in a control run, on its replacement
        ("tokens", pa.int64()),
        ("log_p", pa.float64()),  # of the whole document, in nats
        *ENDS,  # scores of the part after the prefix
    ]
)
INSERTION_SCHEMA = pa.schema([*TEXT_SCHEMA, pa.field("duplicates", pa.int64(), nullable=False)])


@dataclass(frozen=True)
class DocumentModel(Ranged):
    """Model `number` of `models`, trained on its half of the documents. `draw` is the seed of the halves."""

    data: Dataset
    model: LanguageModel
    documents: int
    models: int
    number: int
    repetitions: Repetitions
    deduplicate: bool
    is_null: bool
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
    answer_length: ClassVar[int] = 1  # the begin token

    def extras(self) -> tuple[Extra, ...]:
        return adaptation_extras(self.adaptation)

    @property
    def asked(self) -> tuple[int, ...]:
        return (self.epochs,)


@dataclass(frozen=True)
class Document:
    """A tested document, the text that represents it in the training data, and its repetition count."""

    row: int
    text: str
    training_text: str
    repetitions: int


def document_jobs(question: Documents, seed: int) -> tuple[Job, ...]:
    """Return the scoring jobs of all models. Raises DatasetError if there are too few texts."""
    models = [_document_model(question, seed, number) for number in range(question.models)]
    draw_documents(models[0])
    program = question.tuning
    if not isinstance(program, Program):
        return tuple(Job(score_documents, model) for model in models)
    check_writable(program, "texts")
    by_program = [ProgramDocumentModel(without_resources(program), model) for model in models]
    return tuple(Job(score_documents_by_program, model, resources=program.resources) for model in by_program)


def _document_model(question: Documents, seed: int, number: int) -> DocumentModel:
    return DocumentModel(
        data=question.data,
        model=question.reading.model,
        documents=question.documents,
        models=question.models,
        number=number,
        repetitions=question.repetitions,
        is_null=question.is_null,
        draw=seeds.derive(seed, "documents"),
        examples=question.examples,
        prefix=question.prefix,
        suffix=question.suffix,
        seed=seeds.derive(seed, "training of documents", number),
        length=question.reading.length,
        **(TextTuning() if isinstance(question.tuning, Program) else question.tuning).job_fields,
    )


def draw_documents(config: DocumentModel) -> list[Document]:
    """Draw the tested documents from the distinct texts. Raises DatasetError if there are too few."""
    texts = load_texts(config.data, config.examples)
    unique = list(dict.fromkeys(texts))
    most_documents = len(unique) // 2 if config.is_null else len(unique)
    if config.documents > most_documents:
        raise DatasetError(
            f"documents: expected at most {most_documents}, got {config.documents}; {config.data.name} has "
            f"{len(unique)} distinct texts, and is_null=true takes two per document. Lower documents or give more "
            "texts."
        )
    order = seeds.generator(config.draw, "choice").permutation(len(unique)).tolist()
    replacements = order[config.documents :] if config.is_null else order
    first_rows = {text: row for row, text in reversed(list(enumerate(texts)))}
    copies = Counter(texts)
    documents = []
    for index, (tested, replacement) in enumerate(zip(order[: config.documents], replacements, strict=False)):
        text = unique[tested]
        training_text = unique[replacement]
        repetitions = 1
        if not config.deduplicate:
            repetitions = config.repetitions[index % len(config.repetitions)] * copies[training_text]
        documents.append(Document(first_rows[text], text, training_text, repetitions))
    return documents


def memberships(config: DocumentModel) -> list[bool]:
    """Return, for each document, whether the model is trained on it (or on its replacement)."""
    members: list[bool] = draw_balanced_members(config.documents, config.models, config.draw)[config.number].tolist()
    return members


def training_texts(config: DocumentModel, documents: Sequence[Document]) -> list[str]:
    """Return the training texts of the model: all untested texts, and its half of the documents."""
    tested_texts = set[str]()
    for document in documents:
        tested_texts.update((document.text, document.training_text))
    common_texts = []
    for text in load_texts(config.data, config.examples):
        if text not in tested_texts:
            common_texts.append(text)
    if config.deduplicate:
        common_texts = list(dict.fromkeys(common_texts))
    member_texts = list[str]()
    for document, is_member in zip(documents, memberships(config), strict=True):
        if is_member:
            member_texts.extend([document.training_text] * document.repetitions)
    return [*common_texts, *member_texts]


def work(config: DocumentModel) -> Work:
    """Return the amount of work for training and scoring."""
    text_epochs = len(training_texts(config, draw_documents(config))) * config.epochs
    way = "tell" if config.privacy is None else "privately tell"
    telling = f"{way} {config.model.name}"
    continuing = f"continue {config.model.name}"
    tokens = mean_tokens(config.model, load_texts(config.data, config.examples), config.length)
    return Work(
        {telling: text_epochs},
        {continuing: config.documents},
        operations=known(
            {
                telling: training_operations(config, 0.0, tokens),
                continuing: continuing_operations(config, tokens, config.suffix, config.precision),
            }
        ),
        device_bytes=training_bytes(config, 0, config.length),
    )


def batch_key(config: DocumentModel) -> DocumentModel:
    """Return the settings shared by training runs that one call computes: all except the model number and seed."""
    return replace(config, number=0, seed=0)


@task(version=2, name="text.score_documents", gpus=1.0, batch_key=batch_key, trains=1, work=work, spreads=True)
def score_documents(config: DocumentModel, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - no input tables
    """Fine-tune the model and score each document, as a whole and after its prefix (DOCUMENT_SCORES)."""
    from tasks.language_models.fine_tuning import fine_tuned_on

    device = hardware.device()
    documents = draw_documents(config)
    with hardware.exactly(device), fine_tuned_on(config, training_texts(config, documents), device) as model:
        return _ask_documents(config, model, documents)


@dataclass(frozen=True)
class ProgramDocumentModel(Ranged):
    """A model that a user's program trains on its half of the documents.

    `model` determines the documents, the texts and the seed, and how the returned model reads texts. Its other settings
    are not used.
    """

    program: Program
    model: DocumentModel


def _program_work(config: ProgramDocumentModel) -> Work:
    """Return the work: one training of this program, whose duration only a run can tell."""
    return Work({f"train with {config.program.name}": 1.0})


@task(version=1, name="text.score_documents_by_program", trains=1, work=_program_work)
def score_documents_by_program(config: ProgramDocumentModel, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - no tables
    """Train with the program and score each document with its model (DOCUMENT_SCORES)."""
    half = config.model
    documents = draw_documents(half)

    def read_model(model: LanguageModel) -> pa.Table:
        from tasks.language_models.fine_tuning import model_as_it_is

        asked_half = replace(half, model=model)
        device = hardware.device()
        with hardware.exactly(device), model_as_it_is(asked_half, device) as opened:
            return _ask_documents(asked_half, opened, documents)

    texts = training_texts(half, documents)
    asked = [document.text for document in documents]
    return train_on_texts(config.program, half.seed, texts, asked, read_model)


def _ask_documents(config: DocumentModel, model: SequenceModel, documents: Sequence[Document]) -> pa.Table:
    """Score these documents with the model (DOCUMENT_SCORES)."""
    scores = score_model(config, model, [document.text for document in documents])
    return make_table(
        DOCUMENT_SCORES,
        row=[document.row for document in documents],
        repetitions=[document.repetitions for document in documents],
        member=memberships(config),
        **scores,
    )


@dataclass(frozen=True)
class PairedModel(Ranged):
    """A given model that was trained on the insertions (`inserted`), or its base."""

    data: Dataset
    model: LanguageModel
    inserted: bool
    is_null: bool
    repetitions: Repetitions
    draw: int
    examples: int
    prefix: int
    suffix: int
    seed: int
    length: int
    precision: Precision

    answer_length: ClassVar[int] = 1  # the begin token


@dataclass(frozen=True)
class InsertedDocuments:
    """The tested documents, and how often each was inserted: 0 if it was left out."""

    texts: tuple[str, ...]
    repetitions: NDArray[np.int64]


def insertion_jobs(question: Insertions, seed: int) -> tuple[Job, ...]:
    """Return the scoring jobs of the model and its base. Raises DatasetError if the documents are unusable."""
    model = PairedModel(
        data=question.data,
        model=question.reading.model,
        inserted=True,
        is_null=question.is_null,
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
    """Read the documents and their insertion counts. Raises DatasetError if the documents are unusable.

    Embedded texts are in no training data, so a random half of them counts as inserted. A control run permutes the
    insertion counts.
    """
    if _has_records(config.data):
        table = load_records(config.data, INSERTION_SCHEMA).table[: config.examples or None]
        texts = tuple(table["text"].to_pylist())
        repetitions = table["duplicates"].to_numpy()
    else:
        texts = load_texts(config.data, config.examples)
        turns = np.resize(config.repetitions, len(texts) // 2)
        repetitions = np.concatenate([turns, np.zeros(len(texts) - len(turns), dtype=np.int64)])
    if are_insertions_drawn(config):
        repetitions = seeds.generator(config.draw, "which count as inserted").permutation(repetitions)
    _check_insertions(config.data.name, texts, repetitions)
    return InsertedDocuments(texts, repetitions)


def are_insertions_drawn(config: Insertions | PairedModel) -> bool:
    """Return whether a random draw, unknown to the models, decides which documents count as inserted."""
    return config.is_null or not _has_records(config.data)


def _has_records(data: Dataset) -> bool:
    return data.name.startswith("records:")


def _check_insertions(name: str, texts: Sequence[str], repetitions: NDArray[np.int64]) -> None:
    if len(set(texts)) < len(texts):
        raise DatasetError(
            f"{name}: expected distinct texts, got a text twice. Keep it once and state its number of "
            "insertions (duplicates)."
        )
    if repetitions.min() < 0:
        raise DatasetError(f"{name}: expected duplicates of at least 0, got {repetitions.min()}. Correct the field.")
    counts = {"inserted": np.count_nonzero(repetitions), "left out": np.sum(repetitions == 0)}
    for status, count in counts.items():
        if count < FEWEST:
            raise DatasetError(
                f"{name}: expected at least {FEWEST} documents that were {status}, got {count}. Add documents."
            )


def _insertion_work(config: PairedModel) -> Work:
    """Return the amount of work for scoring."""
    texts = read_insertions(config).texts
    continuing = f"continue {config.model.name}"
    tokens = mean_tokens(config.model, texts, config.length)
    counted = continuing_operations(config, tokens, config.suffix, config.precision)
    return Work({}, {continuing: len(texts)}, operations=known({continuing: counted}))


@task(version=2, name="text.score_insertions", gpus=1.0, work=_insertion_work)
def score_insertions(config: PairedModel, inputs: Inputs) -> pa.Table:  # noqa: ARG001 - nothing is trained
    """Score each document with the given model, as a whole and after its prefix (DOCUMENT_SCORES)."""
    from tasks.language_models.fine_tuning import model_as_it_is

    device = hardware.device()
    documents = read_insertions(config)
    with hardware.exactly(device), model_as_it_is(config, device) as model:
        scores = score_model(config, model, documents.texts)
    return make_table(
        DOCUMENT_SCORES,
        row=range(len(documents.texts)),
        repetitions=documents.repetitions,
        member=config.inserted & (documents.repetitions > 0),
        **scores,
    )


def score_model(
    config: DocumentModel | PairedModel, model: SequenceModel, texts: Sequence[str]
) -> dict[str, list[float | None]]:
    """Score each text with the model (columns of DOCUMENT_SCORES).

    Only decoder-only models score the tokens after the prefix, because their prompt is part of the same text.
    """
    from tasks.language_models.sequence_model import DecoderOnly
    from tasks.language_models.training import encode_texts, score_targets

    encoded = encode_texts(config, model, texts)
    columns: dict[str, list[float | None]] = {
        "tokens": list(encoded.lengths),
        "log_p": score_targets(model, encoded).tolist(),
        **{name: [None] * len(texts) for name in dict(ENDS)},
    }
    continued_length = config.prefix + config.suffix
    long = [row for row, length in enumerate(encoded.lengths) if length >= continued_length]
    if not long or not isinstance(model, DecoderOnly):
        return columns
    prompts = [[model.begin, *encoded.targets[row][: config.prefix]] for row in long]
    ends = [list(encoded.targets[row][config.prefix : continued_length]) for row in long]
    for name, values in score_ends(model, prompts, ends).items():
        for row, value in zip(long, values, strict=True):
            columns[name][row] = value
    return columns
