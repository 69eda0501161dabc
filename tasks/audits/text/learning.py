"""Have the language models learnt their texts: are held-out texts likelier under them than under the best constant?

    skill = mean over held-out texts of (log p by the model - log p by the constant) / tokens      in nats per token

The constant is a fixed distribution over tokens: their frequencies in the training texts. A token that does not occur
there counts as if it occurred once. The held-out texts are the references of secrets, or the documents that a model was
not trained on. For a given model, they are the documents that were left out, or the references of identifiers in their
context; its training texts are unknown, and the given texts are used instead.

This test does not exist for planted secrets, compared texts and returned tables: texts of one format are not a sample
of the training data, and a table has no tokens. Nor does it exist for the models of a user's program.

The test is ours. It does not change a verdict, but a verdict on models that fail it says so first
(`tasks.contract.learning`).
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
from tasks.audits.text.question import FineTuned, Planted
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
from tasks.programs.config import Program

Array = NDArray[np.float64]
Tokens = list[int]
MOST_REFERENCES = 20  # number of references used per secret or identifier
GIVEN = "given model"
BASE = "base of the given model"
LEARNING = pa.schema(
    [
        ("model", pa.string()),  # models trained by the audit, the given model, or its base
        ("log_p", pa.float64()),  # of a held-out text, in nats per token
        ("constant", pa.float64()),  # log p of the text by the constant, in nats per token
    ]
)


@dataclass(frozen=True)
class Scored:
    """The model whose scores are compared."""

    model: PairModel | DocumentModel | PairedModel | GivenLanguageModel


@dataclass(frozen=True)
class HeldOut:
    """Held-out texts of a model, their log p in nats, and the texts that the constant is fitted to."""

    texts: Sequence[str]
    log_p: Sequence[float]
    training: Sequence[str]
    model_name: str = MODELS


@task(version=2, name="text.learning")
def learning(config: Scored, inputs: Inputs) -> pa.Table:
    """Compute log p of each held-out text by the model and by the constant (LEARNING)."""
    (scores,) = inputs
    held_out = _held_out_texts(config.model, scores)
    if not held_out.texts:
        return LEARNING.empty_table()
    training, held_out_tokens = _tokenize(config.model.model, config.model.length, held_out.training, held_out.texts)
    lengths = np.array([len(tokens) for tokens in held_out_tokens])
    constant = constant_log_p(training, held_out_tokens) / lengths
    log_p = np.array(held_out.log_p) / lengths
    return make_table(LEARNING, model=held_out.model_name, log_p=log_p, constant=constant)


def _held_out_texts(model: PairModel | DocumentModel | PairedModel | GivenLanguageModel, scores: pa.Table) -> HeldOut:
    """Return the held-out texts of a model, from the table of its scores."""
    if isinstance(model, PairModel):
        secrets = draw_secrets(model)
        references = [secret.references for secret in secrets]
        training = secret_models.training_texts(model, secrets)
        return HeldOut(*_first_references(references, scores["log_p"].to_pylist()), training)
    if isinstance(model, GivenLanguageModel):
        references = [tuple(candidates[1:]) for candidates in questions(model)]
        texts = load_texts(model.data, model.examples)
        return HeldOut(*_first_references(references, scores["log_p"].to_pylist()), texts, GIVEN)
    log_p = scores["log_p"].to_numpy()
    if isinstance(model, DocumentModel):
        documents = draw_documents(model)
        rows = np.flatnonzero(~scores["member"].to_numpy())
        held_out = [documents[row].text for row in rows]
        return HeldOut(held_out, log_p[rows].tolist(), document_models.training_texts(model, documents))
    insertions = read_insertions(model)
    rows = np.flatnonzero((insertions.repetitions == 0) | (not model.inserted))
    held_out = [insertions.texts[row] for row in rows]
    return HeldOut(held_out, log_p[rows].tolist(), insertions.texts, GIVEN if model.inserted else BASE)


def _first_references(
    references_by_item: Sequence[Sequence[str]], log_p: Sequence[Sequence[float]]
) -> tuple[list[str], list[float]]:
    """Return the first references of each question, and their scores, which follow the score of the secret."""
    texts = list[str]()
    scores = list[float]()
    for references, values in zip(references_by_item, log_p, strict=True):
        texts.extend(references[:MOST_REFERENCES])
        scores.extend(values[1 : 1 + MOST_REFERENCES])
    return texts, scores


def _tokenize(
    model: LanguageModel, length: int, training: Sequence[str], held_out: Sequence[str]
) -> tuple[list[Tokens], list[Tokens]]:
    """Tokenise both sets of texts as the model does, ending each text with the end token."""
    from tasks.language_models.pretrained import load_tokenizer
    from tasks.language_models.sequence_model import append_end

    tokenizer, end = load_tokenizer(model, training)
    sets = []
    for texts in (training, held_out):
        ids = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
        sets.append([append_end(list(tokens), end, length) for tokens in ids])
    return sets[0], sets[1]


def constant_log_p(training: Sequence[Tokens], held_out: Sequence[Tokens]) -> Array:
    """Return log p of each text under the token frequencies of the training texts, shape (held_out,), in nats."""
    flat = np.concatenate([np.array(tokens, dtype=np.int64) for tokens in (*training, *held_out)])
    counts = np.bincount(np.concatenate([np.array(tokens, dtype=np.int64) for tokens in training]))
    counts = np.pad(counts, (0, int(flat.max()) + 1 - len(counts)))
    once = np.maximum(counts, np.isin(np.arange(len(counts)), flat))
    with np.errstate(divide="ignore"):
        log_share = np.log(once / once.sum())
    return np.array([log_share[tokens].sum() for tokens in held_out])


def plan(config: Text, scored_jobs: tuple[Job, ...]) -> tuple[Job, ...]:
    question = config.question
    is_programmed = isinstance(question, FineTuned) and isinstance(question.tuning, Program)
    if config.outputs is not None or isinstance(question, Planted) or is_programmed:
        return ()
    return tuple(Job(learning, Scored(job.config), (job,)) for job in scored_jobs)


def rows(tables: Tables, about: About) -> Iterator[Row]:  # noqa: ARG001 - the level is not used
    """Yield the mean over texts and models. The interval is the interval of the difference shifted by the constant."""
    for model_name, scores in group_rows(tables.rows(LEARNING), "model").items():
        constant = float(np.mean([score["constant"] for score in scores]))
        difference = statistics.mean([score["log_p"] - score["constant"] for score in scores])
        log_p = float(np.mean([score["log_p"] for score in scores]))
        yield log_p_row(log_p, constant, difference, "held-out tokens", "text", model_name)


MEASURE = Measure("learning", LEARNING, plan, rows)
