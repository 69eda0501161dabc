"""Have the language models learnt their texts: is a held-out text likelier by them than by the best constant?

    skill = mean over held-out texts of (log p by the model - log p by the constant) / tokens        in nats a token

The constant is a distribution of tokens that is the same whatever was read: how often each token stands in the training
texts. A token that does not stand there counts as if it stood there once. Held out are the references of secrets, which
stood nowhere, the documents that a model was not trained on, and of a model that was trained elsewhere the documents
that were left out, or the references of identifiers in their context; its training texts are not known, and the texts
at hand stand for them.

Nothing is said of planted secrets, of texts beside others and of returned tables: the texts of one format are no sample
of what the model was trained on, and a table has no tokens.

Ours; it decides nothing. An answer about models that are no better begins with it (`tasks.contract.learning`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.audits.text.config import About, Text
from tasks.audits.text.documents import models as document_models
from tasks.audits.text.documents.models import DocumentModel, PairedModel, draw_documents, read_insertions
from tasks.audits.text.given.model import GivenLanguageModel, questions
from tasks.audits.text.question import Planted
from tasks.audits.text.secrets import models as secret_models
from tasks.audits.text.secrets.models import PairModel
from tasks.audits.text.secrets.space import draw_secrets
from tasks.contract.grouping import group_rows
from tasks.contract.job import Inputs, Job, task
from tasks.contract.learning import MODELS, log_p_row
from tasks.contract.measure import Measure, Tables
from tasks.contract.schemas import make_table
from tasks.contract.summaries import Row
from tasks.datasets.catalog import load_texts
from tasks.language_models.language_model import LanguageModel
from tasks.numerics import statistics

Array = NDArray[np.float64]
Tokens = list[int]
MOST_REFERENCES = 20  # of a secret or an identifier
GIVEN, BASE = "given model", "base of the given model"
LEARNING = pa.schema(
    [
        ("of", pa.string()),  # models that are trained here, the given model, or its base
        ("log_p", pa.float64()),  # of a held-out text, in nats a token
        ("constant", pa.float64()),  # the same by the constant
    ]
)


@dataclass(frozen=True)
class Scored:
    """The model whose scores are read."""

    model: PairModel | DocumentModel | PairedModel | GivenLanguageModel


@dataclass(frozen=True)
class HeldOut:
    """Texts that a model was not trained on, with its log p in nats, and the texts that the constant is fitted to."""

    texts: Sequence[str]
    log_p: Sequence[float]
    training: Sequence[str]
    of: str = MODELS


@task(version=1, name="text.learning")
def learning(config: Scored, inputs: Inputs) -> pa.Table:
    """log p of each held-out text by the model and by the constant (LEARNING), from the model's scores."""
    (scores,) = inputs
    held_out = _held_out_texts(config.model, scores)
    if not held_out.texts:
        return LEARNING.empty_table()
    training, asked = _tokenize(config.model.model, config.model.length, held_out.training, held_out.texts)
    lengths = np.array([len(tokens) for tokens in asked])
    constant = constant_log_p(training, asked) / lengths
    log_p = np.array(held_out.log_p) / lengths
    return make_table(LEARNING, of=held_out.of, log_p=log_p, constant=constant)


def _held_out_texts(model: PairModel | DocumentModel | PairedModel | GivenLanguageModel, scores: pa.Table) -> HeldOut:
    """The held-out texts of a model with its scores, from the table of them."""
    if isinstance(model, PairModel):
        secrets = draw_secrets(model)
        others = [secret.others for secret in secrets]
        training = secret_models.training_texts(model, secrets)
        return HeldOut(*_first_references(others, scores["log_p"].to_pylist()), training)
    if isinstance(model, GivenLanguageModel):
        references = [tuple(candidates[1:]) for candidates in questions(model)]
        texts = load_texts(model.data, model.examples)
        return HeldOut(*_first_references(references, scores["log_p"].to_pylist()), texts, GIVEN)
    log_p = scores["log_p"].to_numpy()
    if isinstance(model, DocumentModel):
        documents = draw_documents(model)
        rows = np.flatnonzero(~scores["member"].to_numpy())
        asked = [documents[row].text for row in rows]
        return HeldOut(asked, log_p[rows].tolist(), document_models.training_texts(model, documents))
    insertions = read_insertions(model)
    rows = np.flatnonzero((insertions.repetitions == 0) | (not model.inserted))
    asked = [insertions.texts[row] for row in rows]
    return HeldOut(asked, log_p[rows].tolist(), insertions.texts, GIVEN if model.inserted else BASE)


def _first_references(
    others: Sequence[Sequence[str]], log_p: Sequence[Sequence[float]]
) -> tuple[list[str], list[float]]:
    """The first references of each question, and their scores, which follow that of the secret itself."""
    texts, scores = list[str](), list[float]()
    for references, values in zip(others, log_p, strict=True):
        texts.extend(references[:MOST_REFERENCES])
        scores.extend(values[1 : 1 + MOST_REFERENCES])
    return texts, scores


def _tokenize(
    model: LanguageModel, length: int, training: Sequence[str], asked: Sequence[str]
) -> tuple[list[Tokens], list[Tokens]]:
    """The tokens of both sets of texts, each with the one that ends it, as the model reads them."""
    from tasks.language_models.pretrained import load_tokenizer
    from tasks.language_models.sequence_model import append_end

    tokenizer, end = load_tokenizer(model, training)
    sets = []
    for texts in (training, asked):
        ids = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
        sets.append([append_end(list(tokens), end, length) for tokens in ids])
    return sets[0], sets[1]


def constant_log_p(training: Sequence[Tokens], asked: Sequence[Tokens]) -> Array:
    """log p of each text by the shares of its tokens in the training texts, (asked,), in nats."""
    flat = np.concatenate([np.array(tokens, dtype=np.int64) for tokens in (*training, *asked)])
    counts = np.bincount(np.concatenate([np.array(tokens, dtype=np.int64) for tokens in training]))
    counts = np.pad(counts, (0, int(flat.max()) + 1 - len(counts)))
    once = np.maximum(counts, np.isin(np.arange(len(counts)), flat))
    with np.errstate(divide="ignore"):
        log_share = np.log(once / once.sum())
    return np.array([log_share[tokens].sum() for tokens in asked])


def plan(config: Text, scored: tuple[Job, ...]) -> tuple[Job, ...]:
    if config.outputs is not None or isinstance(config.question, Planted):
        return ()
    return tuple(Job(learning, Scored(job.config), (job,)) for job in scored)


def rows(tables: Tables, about: About) -> Iterator[Row]:  # noqa: ARG001 - a loss knows no level
    """The mean of all texts and models, by whose they are; limits are the constant's plus those of the difference."""
    for of, some in group_rows(tables.rows(LEARNING), "of").items():
        constant = float(np.mean([each["constant"] for each in some]))
        difference = statistics.mean([each["log_p"] - each["constant"] for each in some])
        log_p = float(np.mean([each["log_p"] for each in some]))
        yield log_p_row(log_p, constant, difference, "held-out tokens", "text", of)


MEASURE = Measure("learning", LEARNING, plan, rows)
