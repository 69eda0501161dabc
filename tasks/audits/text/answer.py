"""The audit's answer: the rules of all questions, and the choice of what describes the answer to each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tasks.audits.text.config import Text
from tasks.audits.text.continuations import BEYOND
from tasks.audits.text.documents.answer import (
    DOCUMENT_RULES,
    INSERTION_RULES,
    document_findings,
    document_verdict,
    insertion_findings,
    insertion_verdict,
)
from tasks.audits.text.documents.ranks import EFFECT as DOCUMENT_EFFECT
from tasks.audits.text.documents.ranks import LOSS, WON
from tasks.audits.text.given.answer import DISTINGUISHED, OTHER_TEXT_RULES, other_text_verdict
from tasks.audits.text.given.other_texts import AREA, ATTACKS
from tasks.audits.text.given.returned import MOST_SAME
from tasks.audits.text.question import (
    Documents,
    Identifiers,
    Insertions,
    OtherTexts,
    Planted,
    Question,
    Secrets,
)
from tasks.audits.text.reproduced import (
    REPRODUCTION,
)
from tasks.audits.text.secrets.answer import BROKEN, RANK_RULES, rank_findings, rank_verdict
from tasks.audits.text.secrets.evidence import SURELY
from tasks.audits.text.secrets.ranks import (
    BEATEN,
    UNEVEN,
)
from tasks.contract.certificate import STEPS as PLAIN_STEPS
from tasks.contract.certificate import Certificate, Finding, steps_of_null
from tasks.contract.epsilon_rows import CONFIDENCE
from tasks.contract.epsilon_rows import SYMBOLS as EPSILON_SYMBOLS
from tasks.contract.objectives import Objective, Objectives, row_reader
from tasks.contract.power import SMALLEST
from tasks.contract.rules import Rules, undecided
from tasks.contract.summaries import Row, first_row, index_rows, row_name
from tasks.contract.ties import NOT_JUDGED
from tasks.contract.verdict import ANSWERS, DETECTABLE, Answer, Meaning, Verdict

MEANINGS: Mapping[Answer, Meaning] = {
    **{name: ANSWERS[name] for name in ("memorised", "not seen", DETECTABLE, "undecided")},
    NOT_JUDGED: Meaning("what was found, or what the model's owner returned, does not allow an answer"),
    BROKEN: Meaning("the training is less private than its accountant says", "accused"),
    **REPRODUCTION,
    DISTINGUISHED: Meaning("the model finds the texts likelier than others, which words alone do not tell", "accused"),
}


def thresholds(config: Text) -> Mapping[str, str]:
    return {
        "level": f"{100 * config.level:g}",
        "uneven": f"{100 * UNEVEN:g}",
        "surely": f"{100 * SURELY:g}",
        "same": f"{100 * MOST_SAME:g}",
        "confidence": f"{100 * CONFIDENCE:g}",
        "broken": f"{100 * (1 - CONFIDENCE):.0f}",
        "beaten": f"{100 * (0.5 + config.negligible):g}",
        "nats": f"{SMALLEST:g}",
        "both": f"{100 * (config.level + SURELY):g}",
    }


# Rules about documents see their evidence, the others that of ranks.
RULES = Rules[Any]((*DOCUMENT_RULES, *INSERTION_RULES, *OTHER_TEXT_RULES, *RANK_RULES, undecided()), thresholds)


def verdict(config: Text, summary: pa.Table) -> Verdict:
    """The answer by RULES, with its evidence in words."""
    match config.question:
        case Documents() as question:
            return document_verdict(config, question, summary, RULES)
        case Insertions() as question:
            return insertion_verdict(config, question, summary, RULES)
        case OtherTexts():
            return other_text_verdict(config, summary, RULES)
        case Secrets() | Planted() | Identifiers() as question:
            return rank_verdict(config, question, summary, RULES)


def certificate(config: Text, summary: pa.Table, verdict: Verdict) -> Certificate:
    """The answer for a reader without a machine-learning background."""
    steps = steps_of_null(verdict.answer, "told=secrets") if config.is_null else None
    return RULES.certify(
        config,
        verdict,
        describe_question(config.question),
        findings(config, summary, verdict),
        steps or PLAIN_STEPS[MEANINGS[verdict.answer].tone],
    )


def findings(config: Text, summary: pa.Table, verdict: Verdict) -> tuple[Finding, ...]:
    """The findings of the certificate, the answer's first."""
    match config.question:
        case Documents() as question:
            return document_findings(config, question, summary, verdict)
        case Insertions() as question:
            return insertion_findings(config, question, summary, verdict)
        case OtherTexts():
            return (Finding(verdict.answer, verdict.sentence),)
        case Secrets() | Planted() | Identifiers() as question:
            return rank_findings(config, question, summary, verdict)


def describe_question(question: Question) -> str:
    """The question, for a reader without a machine-learning background."""
    match question:
        case Documents():
            return (
                "Does a language model know these documents because it was trained on them, and does it write them out?"
            )
        case Insertions():
            return "Does a language model know these documents because they were put into its training texts?"
        case OtherTexts():
            return "Does a language model find these texts likelier than others on which it was not trained?"
        case Identifiers():
            return "Does a language model know identifiers that stand in these texts?"
        case Secrets() | Planted():
            return "Does a language model give away secrets that stood in its training texts?"


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
