"""How the audit answers each question, and the objectives for a search over training choices."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from tasks.audits.text.config import Text
from tasks.audits.text.continuations import BEYOND, BY_CONTROL, BY_TRAINED, GREEDY, NEAR
from tasks.audits.text.documents.answer import DOCUMENT_ANSWERING, INSERTION_ANSWERING
from tasks.audits.text.documents.ranks import EFFECT as DOCUMENT_EFFECT
from tasks.audits.text.documents.ranks import LOSS, WON
from tasks.audits.text.given.answer import COMPARISON_ANSWERING
from tasks.audits.text.given.comparison import AREA, ATTACKS
from tasks.audits.text.question import Documents, Insertions, TextComparison
from tasks.audits.text.reproduced import REPRODUCTION
from tasks.audits.text.secrets.answer import IDENTIFIER_ANSWERING, PLANTED_ANSWERING, SECRET_ANSWERING
from tasks.audits.text.secrets.ranks import BEATEN
from tasks.audits.text.thresholds import thresholds
from tasks.contract.answering import AnsweringByQuestion
from tasks.contract.certificate import Certificate
from tasks.contract.epsilon_rows import BROKEN, BROKEN_MEANING
from tasks.contract.epsilon_rows import SYMBOLS as EPSILON_SYMBOLS
from tasks.contract.objectives import Objective, Objectives, row_reader
from tasks.contract.summaries import Row, first_row, index_rows, row_name
from tasks.contract.verdict import BELOW_RELEVANT_SIZE, DISTINGUISHABLE, Answer, Meaning, Verdict, select_meanings

MEANINGS: Mapping[Answer, Meaning] = {
    **select_meanings(
        ("memorised", "not detected", BELOW_RELEVANT_SIZE),
        {
            "memorised": "Anyone who can query a model trained on these texts can find out what they contain.",
        },
    ),
    BROKEN: BROKEN_MEANING,
    **REPRODUCTION,
    DISTINGUISHABLE: Meaning(
        "the model rates the texts as more probable than comparison texts, and words alone do not explain it", "accused"
    ),
}


ANSWERING = AnsweringByQuestion(
    (
        DOCUMENT_ANSWERING,
        INSERTION_ANSWERING,
        COMPARISON_ANSWERING,
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


def _area_row(_config: Text, summary: pa.Table) -> Row | None:
    return index_rows(summary).get(row_name(AREA, score=ATTACKS[0]))


def _won_row(_config: Text, summary: pa.Table) -> Row | None:
    return index_rows(summary).get(row_name(WON))


def _beaten_row(_config: Text, summary: pa.Table) -> Row | None:
    return first_row(index_rows(summary), BEATEN)


# The numbers that compare runs. These shares have an interval and a value without memorisation. The number of texts
# that are found one by one also depends on the number of references and models, and it is 0 in a small run.
AREA_EFFECT = Objective("area under the curve of the loss", "AUC", "lower", _area_row, "AUC {}")
WON_EFFECT = Objective("pairs won", "share", "lower", _won_row, "{} % of pairs won")
BEATEN_EFFECT = Objective("references outranked", "share", "lower", _beaten_row, "{} % of references outranked")


def effect(config: Text) -> Objective:
    """Return the number by which runs that answer this question are compared."""
    match config.question:
        case TextComparison():
            return AREA_EFFECT
        case Documents() | Insertions():
            return WON_EFFECT
    return BEATEN_EFFECT


# For documents only, because there the control models measure both memorisation and the utility on held-out texts.
OBJECTIVES = Objectives(
    memorization=Objective(DOCUMENT_EFFECT, "nats a token", "lower", row_reader(DOCUMENT_EFFECT, "{}")),
    utility=Objective(
        "loss of held-out documents", "nats a token", "lower", row_reader(LOSS, '{"by": "control model"}')
    ),
    allowance=0.05,
)
SYMBOLS: Mapping[str, str] = {
    **EPSILON_SYMBOLS,
    "exposure": "the number of bits by which the rank of a secret shortens a search for it",
    "references": "other candidates of the same format, which occur in no training text",
    BY_TRAINED: "a model that was trained on the secret or document",
    BY_CONTROL: "a model that was trained on the same texts without the secret or document",
    "repetitions": "the number of occurrences of a secret or document in the training texts",
    DOCUMENT_EFFECT: "the gain in log-probability of a document under models trained on it, in nats per token",
    WON: "the share of pairs of models in which the model trained on the document assigns it the higher probability",
    "loss": "the mean log-probability of the tokens of a text",
    "min-k": "the mean log-probability of the least likely 20 % of the tokens of a text",
    "zlib": "the log-probability of a text divided by its size in bits after compression by zlib",
    "blind control": "a classifier of the two sets of texts by a bag of words, without the model",
    GREEDY: "the most likely continuation equals the text",
    NEAR: "the most likely continuation differs from the text by a small share of its tokens",
    BEYOND: "the share reproduced by trained models minus the share reproduced by control models",
}
