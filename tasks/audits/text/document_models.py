"""The models of documents: each is fine-tuned on its half of them, and asked about all.

Every document is in the training data of exactly half of the models, and which half is drawn evenly of all, as in
`membership`. So the models that were not trained on a document are its twins: what they say of it, and how much of it
they write by themselves, is what fluency alone brings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar

import pyarrow as pa

from tasks.audits.text.config import Text, tuning_fields
from tasks.audits.text.continuations import ENDS, score_ends
from tasks.audits.text.secret_space import Repetitions, Told
from tasks.contract.job import Inputs, Job, task
from tasks.contract.ranges import Ranged, Share
from tasks.datasets.catalog import load_texts
from tasks.datasets.dataset import Dataset, DatasetError
from tasks.datasets.mixtures import draw_balanced_members
from tasks.language_models.fine_tuning_config import Adaptation, Precision, Relation
from tasks.language_models.language_model import LanguageModel
from tasks.numerics import seeds
from tasks.training.recipe import Privacy
from tasks.worker import hardware
from tasks.worker.work import Work

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


def document_jobs(config: Text) -> tuple[Job, ...]:
    """What each model says of all documents; DatasetError where there are too few."""
    jobs = tuple(
        Job(
            score_documents,
            DocumentModel(
                data=config.data,
                model=config.model,
                documents=config.documents,
                models=config.models,
                number=number,
                repetitions=config.repetitions,
                told=config.told,
                draw=seeds.derive(config.seed, "documents"),
                examples=config.examples,
                prefix=config.prefix,
                suffix=config.suffix,
                seed=seeds.derive(config.seed, "training of documents", number),
                **tuning_fields(config),
            ),
        )
        for number in range(config.models)
    )
    draw_documents(jobs[0].config)
    return jobs


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
    about = {
        "row": [document.row for document in asked],
        "repetitions": [document.repetitions for document in asked],
        "member": memberships(config),
    }
    return pa.table({**about, **scores}, schema=DOCUMENT_SCORES)


def score_model(config: DocumentModel, model: SequenceModel, texts: Sequence[str]) -> dict[str, list[float | None]]:
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
