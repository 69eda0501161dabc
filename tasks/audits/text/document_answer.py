"""The answers about texts themselves.

Of documents: which are known once they were trained on, and which come out word for word. Of texts beside others of
another time or source: a warning, where words alone do not tell them apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from tasks.audits.text.config import Text
from tasks.audits.text.measures.documents import BEYOND, DRAWS, FOUND, GREEDY, SHARE, TOLD, TWIN, WON
from tasks.audits.text.measures.other_texts import AREA, ATTACKS, BLIND
from tasks.contract.certificate import Finding, chances, number_per_hundred
from tasks.contract.rules import Rule, Rules
from tasks.contract.summaries import Row, first_row, index_rows, name_of, p_in_words, row_name
from tasks.contract.verdict import Answer, Meaning, Verdict
from tasks.external.split_audit import BLIND_LEVEL
from tasks.numerics.exact_test import smallest_p_value

REPRODUCED, NOT_REPRODUCED = "reproduced", "not reproduced"
DISTINGUISHED: Answer = "told apart"
REPRODUCTION: Mapping[Answer, Meaning] = {
    REPRODUCED: Meaning("models write documents word for word because they were trained on them", "accused"),
    NOT_REPRODUCED: Meaning("documents do not come out word for word more often than by models that never saw them"),
}
RESOLUTION = 100  # a single document's smallest p-value must be so many times smaller than the level


@dataclass(frozen=True)
class DocumentEvidence:
    """What the answer rests on.

    `found` is the summary row of how many documents are found, whose p-value is that of any having an effect, and `won`
    that of the share of pairs of models in which the one that was trained on a document finds it likelier. The others
    are the rows of how many come out word for word; None where no document is long enough.
    """

    found: Row
    won: Row
    told: Row | None
    twin: Row | None
    beyond: Row | None
    smallest: float
    level: float
    negligible: float

    @property
    def is_fine_enough(self) -> bool:
        return RESOLUTION * self.smallest <= self.level


def asks_documents(config: Text) -> bool:
    return config.documents > 0


DOCUMENT_RULES: tuple[Rule[DocumentEvidence], ...] = (
    Rule(
        "memorised",
        "at least one document is found: its p-value in the exact test, adjusted for the number of documents, is at "
        "most {level} %",
        lambda evidence: evidence.found["p_value"] <= evidence.level,
        "Of 100 audits of models on which no document has an effect, at most {level} are called so; among the "
        "documents that are found, at most {level} % are expected to be false.",
        scope="documents",
        applies=asks_documents,
    ),
    Rule(
        "not seen",
        "the 95 % interval of the share of pairs of models in which the one that was trained on a document finds it "
        "likelier ends below {beaten} %, and there are enough models for a document's p-value to be {smallest} or less",
        lambda evidence: (
            evidence.is_fine_enough
            and evidence.won["high"] is not None
            and evidence.won["high"] < 0.5 + evidence.negligible
        ),
        scope="documents",
        applies=asks_documents,
    ),
)
LIMITS_OF_DOCUMENTS = (
    "The audit speaks of models that were fine-tuned here, each with half of the documents. A text that others quote, "
    "or a near copy that stays in the data, is known by the twins, too, and is not counted. A document that does not "
    "come out after its own beginning may come out after another prompt."
)
NULL_OF_DOCUMENTS = "This is a null: no model was trained on the documents that were asked about. "


def document_thresholds(config: Text) -> Mapping[str, str]:
    return {"smallest": f"{config.level / RESOLUTION:g}"}


def read_document_evidence(config: Text, summary: pa.Table) -> DocumentEvidence | None:
    """The evidence in a summary; None where no document was tested."""
    rows = index_rows(summary)
    found, won = first_row(rows, FOUND), rows.get(row_name(WON))
    if found is None or won is None:
        return None
    told, twin = (rows.get(row_name(SHARE, way=GREEDY, by=by)) for by in (TOLD, TWIN))
    beyond = rows.get(row_name(BEYOND, way=GREEDY))
    smallest = smallest_p_value(config.models, DRAWS)
    return DocumentEvidence(found, won, told, twin, beyond, smallest, config.level, config.negligible)


def document_verdict(config: Text, summary: pa.Table, rules: Rules[DocumentEvidence]) -> Verdict:
    """The answer by the rules, with its evidence in words."""
    evidence = read_document_evidence(config, summary)
    if evidence is None or evidence.won["low"] is None:
        return Verdict("undecided", "Undecided: no document was tested.", LIMITS_OF_DOCUMENTS, ())
    answer = rules.decide(config, evidence).answer
    found, won = evidence.found, evidence.won
    words = (
        f"{answer.capitalize()}: of {found['n']:,} documents {found['estimate']:,.0f} are found to be likelier by "
        f"models that were trained on them (exact test, false discoveries at most {100 * config.level:g} %; that any "
        f"is: {p_in_words(found['p_value'])}); of a model with a document and one without, the former finds it "
        f"likelier in {number_per_hundred(won['estimate'])} of 100 pairs (95 % interval {won['low']:.3f} to "
        f"{won['high']:.3f}; .5 where nothing is known)."
    )
    sentence = " ".join([words, describe_reproduction(config, evidence), null_note(config)]).replace("  ", " ").strip()
    rows = (found, won, *([evidence.beyond] if evidence.beyond is not None else []))
    return Verdict(answer, sentence, LIMITS_OF_DOCUMENTS, tuple(name_of(each) for each in rows))


def null_note(config: Text) -> str:
    return NULL_OF_DOCUMENTS.strip() if config.is_null else ""


def describe_reproduction(config: Text, evidence: DocumentEvidence) -> str:
    """How much comes out word for word, beside models that never saw it; empty where no document is long enough."""
    told, twin, beyond = evidence.told, evidence.twin, evidence.beyond
    if told is None or twin is None or beyond is None or beyond["low"] is None:
        return ""
    return (
        f"Given the first {config.prefix} tokens of a document, a model that was trained on it writes the next "
        f"{config.suffix} word for word in {number_per_hundred(told['estimate'])} of 100 cases, and one that never saw "
        f"it in {number_per_hundred(twin['estimate'])} (difference {beyond['estimate']:.3f}, 95 % interval "
        f"{beyond['low']:.3f} to {beyond['high']:.3f})."
    )


def document_findings(config: Text, summary: pa.Table, verdict: Verdict) -> tuple[Finding, ...]:
    """The answer for somebody who knows no machine learning, and whether the documents come out."""
    evidence = read_document_evidence(config, summary)
    if evidence is None:
        return (Finding(verdict.answer, verdict.sentence),)
    found = evidence.found
    known = (
        f"Some models were trained on a document and others were not. Of {found['n']:,} documents "
        f"{found['estimate']:,.0f} can be told by what the models say of them. {null_note(config)}"
    ).strip()
    findings = [Finding(verdict.answer, known, chances(found["p_value"], config.level))]
    told = describe_reproduction(config, evidence)
    if told and evidence.beyond is not None:
        answer = REPRODUCED if evidence.beyond["low"] > 0 else NOT_REPRODUCED
        findings.append(Finding(answer, told, target="reproduction"))
    return tuple(findings)


@dataclass(frozen=True)
class OtherTextEvidence:
    """The summary rows of the areas under the curve of the loss, and of the blind control."""

    loss: Row
    blind: Row


def asks_other_texts(config: Text) -> bool:
    return config.others is not None


OTHER_TEXT_RULES: tuple[Rule[OtherTextEvidence], ...] = (
    Rule(
        "not judged",
        f"a bag of words tells the texts from the others without the model (p at most {100 * BLIND_LEVEL:g} %)",
        lambda evidence: evidence.blind["p_value"] <= BLIND_LEVEL,
        scope="texts beside others",
        applies=asks_other_texts,
    ),
    Rule(
        DISTINGUISHED,
        "the 95 % interval of the area under the curve of the model's loss lies above .5, and above that of the bag of "
        "words",
        lambda evidence: evidence.loss["low"] > max(0.5, evidence.blind["high"]),
        scope="texts beside others",
        applies=asks_other_texts,
    ),
)
LIMITS_OF_OTHERS = (
    "This is a warning and no evidence. The two sets were not drawn alike by the audit, and a language model may see "
    "what a bag of words does not: evidence takes texts that were left out of the training by chance (documents), "
    "secrets that were drawn, or identifiers that are random. Nobody is cleared by it."
)


def other_text_verdict(config: Text, summary: pa.Table, rules: Rules[OtherTextEvidence]) -> Verdict:
    """The answer by the rules, with its evidence in words."""
    found = index_rows(summary)
    names = {name: row_name(AREA, score=name) for name in (*ATTACKS, BLIND)}
    areas = {name: found[key] for name, key in names.items() if key in found}
    if not areas:
        return Verdict("undecided", "Undecided: no text was asked about.", LIMITS_OF_OTHERS, ())
    loss, blind = areas[ATTACKS[0]], areas[BLIND]
    answer = rules.decide(config, OtherTextEvidence(loss, blind)).answer
    scores = ", ".join(f"{name} {describe_area(areas[name])}" for name in ATTACKS)
    sentence = (
        f"{answer.capitalize()}: of a text and one of the others the model's scores are higher for the former so "
        f"often: {scores} (.5 where nothing is told); a bag of words, without the model, tells them apart by "
        f"{describe_area(blind)}, {p_in_words(blind['p_value'])} that both were drawn alike."
    )
    return Verdict(answer, sentence, LIMITS_OF_OTHERS, (name_of(loss), name_of(blind)))


def describe_area(row: Row) -> str:
    return f"{row['estimate']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"
