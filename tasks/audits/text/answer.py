"""The audit's answer: that of each question, and what a search over training choices moves."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from tasks.audits.text.config import Text
from tasks.audits.text.continuations import BEYOND
from tasks.audits.text.documents.answer import DOCUMENT_ANSWERING, INSERTION_ANSWERING
from tasks.audits.text.documents.ranks import EFFECT as DOCUMENT_EFFECT
from tasks.audits.text.documents.ranks import LOSS, WON
from tasks.audits.text.given.answer import DISTINGUISHABLE, OTHER_TEXT_ANSWERING
from tasks.audits.text.given.other_texts import AREA, ATTACKS
from tasks.audits.text.question import Documents, Insertions, OtherTexts
from tasks.audits.text.reproduced import REPRODUCTION
from tasks.audits.text.secrets.answer import BROKEN, IDENTIFIER_ANSWERING, PLANTED_ANSWERING, SECRET_ANSWERING
from tasks.audits.text.secrets.ranks import BEATEN
from tasks.audits.text.thresholds import thresholds
from tasks.contract.answering import AnsweringByQuestion
from tasks.contract.certificate import Certificate
from tasks.contract.epsilon_rows import SYMBOLS as EPSILON_SYMBOLS
from tasks.contract.objectives import Objective, Objectives, row_reader
from tasks.contract.summaries import Row, first_row, index_rows, row_name
from tasks.contract.verdict import ANSWERS, BELOW_RELEVANT_SIZE, NOT_ASSESSABLE, Answer, Meaning, Verdict

MEANINGS: Mapping[Answer, Meaning] = {
    **{name: ANSWERS[name] for name in ("memorised", "not detected", BELOW_RELEVANT_SIZE, "undecided")},
    NOT_ASSESSABLE: ANSWERS[NOT_ASSESSABLE],
    BROKEN: Meaning("the training is less private than its accountant says", "accused"),
    **REPRODUCTION,
    DISTINGUISHABLE: Meaning(
        "the model finds the texts likelier than others, which words alone do not tell", "accused"
    ),
}


ANSWERING = AnsweringByQuestion(
    (
        DOCUMENT_ANSWERING,
        INSERTION_ANSWERING,
        OTHER_TEXT_ANSWERING,
        IDENTIFIER_ANSWERING,
        PLANTED_ANSWERING,
        SECRET_ANSWERING,
    ),
    thresholds,
)
RULES = ANSWERING.rules


def verdict(config: Text, summary: pa.Table) -> Verdict:
    return ANSWERING.verdict(config, summary)


def certificate(config: Text, summary: pa.Table, verdict: Verdict) -> Certificate:
    return ANSWERING.certificate(config, summary, verdict)


def effect_row(config: Text, summary: pa.Table) -> Row | None:
    """The mean share of references that a secret beats; of documents the share of pairs of models that one wins."""
    rows = index_rows(summary)
    match config.question:
        case OtherTexts():
            return rows.get(row_name(AREA, score=ATTACKS[0]))
        case Documents() | Insertions():
            return rows.get(row_name(WON))
    return first_row(rows, BEATEN)


EFFECT = Objective("references beaten, pairs won, or area under the curve", "share", "lower", effect_row)
# Of documents alone, whose twins tell both: how much is kept, and how well the model does on texts it never saw.
OBJECTIVES = Objectives(
    memorization=Objective(DOCUMENT_EFFECT, "nats a token", "lower", row_reader(DOCUMENT_EFFECT, "{}")),
    utility=Objective(
        "loss of documents that it never saw", "nats a token", "lower", row_reader(LOSS, '{"by": "twin"}')
    ),
    allowance=0.05,
)
SYMBOLS: Mapping[str, str] = {
    **EPSILON_SYMBOLS,
    "exposure": "by how many bits a secret's rank shortens the search for it among all of its space",
    "references": "other secrets of the same space, which stood nowhere",
    "told": "the model in whose training texts the secret stood",
    "twin": "the model that was trained on the same texts without the secret",
    "repetitions": "how often the secret, or the document, stood in the training texts",
    DOCUMENT_EFFECT: "how much likelier a document is by models that were trained on it, in nats a token",
    WON: "how often, of a model that was trained on a document and one that was not, the former finds it likelier",
    "loss": "mean log-probability of a text's token",
    "min-k": "mean log-probability of the 20 % of a text's tokens that are least likely",
    "zlib": "a text's log-probability by the bits into which zlib compresses it",
    "blind control": "what a bag of words tells of the two sets, without the model",
    "greedy": "the likeliest token each time gives the tokens of the document, or the secret, all of them",
    "near": "the likeliest continuation differs from these tokens by few of them",
    BEYOND: "the share reproduced by models that were trained on a text, less that by models that were not",
}
