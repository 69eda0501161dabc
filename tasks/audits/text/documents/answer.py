"""The answers about texts themselves.

Of documents: which are known once they were trained on. Of documents that were inserted into the training data of one
of two given models: whether it knows them beyond those that were left out. Of texts beside others of another time or
source: a warning, where words alone do not tell them apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tasks.audits.text.blind_control import BLIND, describe_area
from tasks.audits.text.config import Text
from tasks.audits.text.continuations import TOLD
from tasks.audits.text.documents.insertions import MEMORISED as INSERTIONS_MEMORISED
from tasks.audits.text.documents.insertions import SHOWN
from tasks.audits.text.documents.models import are_insertions_drawn
from tasks.audits.text.documents.ranks import FOUND, LOSS, MEMORISED, WON
from tasks.audits.text.power import document_resolution, insertion_resolution
from tasks.audits.text.question import Documents, Insertions
from tasks.audits.text.reproduced import Copies, describe_copies, read_copies, reproduction_findings
from tasks.audits.text.secrets.ranks import UNEVEN
from tasks.contract.certificate import Finding, chances, number_per_hundred
from tasks.contract.power import Resolution, single_item
from tasks.contract.rules import Rule, Rules
from tasks.contract.summaries import (
    Row,
    first_row,
    index_rows,
    name_of,
    p_in_words,
    read_setting,
    row_name,
    select_rows,
)
from tasks.contract.ties import NOT_JUDGED, TIED, describe_ties, tie_rule
from tasks.contract.verdict import DETECTABLE, Verdict


@dataclass(frozen=True)
class DocumentEvidence:
    """What the answer rests on.

    `found` is the summary row of how many documents are found, whose p-value is that of any having an effect, and `won`
    that of the share of pairs of models in which the one that was trained on a document finds it likelier. `copies` are
    how many come out word for word; None where no document is long enough. `memorised` is the row of those that are
    found with an effect reduced by the smallest that matters, `tied` that of equal scores, and `resolution` says
    whether one document could be found.
    """

    found: Row
    won: Row
    copies: Copies | None
    memorised: Row
    tied: Row | None
    resolution: Resolution
    level: float
    negligible: float

    @property
    def is_found(self) -> bool:
        return bool(self.found["p_value"] <= self.level)

    @property
    def share_is_negligible(self) -> bool:
        return self.won["high"] is not None and bool(self.won["high"] < 0.5 + self.negligible)


def asks_documents(config: Text) -> bool:
    return isinstance(config.question, Documents)


DOCUMENT_RULES: tuple[Rule[DocumentEvidence], ...] = (
    Rule(
        "memorised",
        "at least one document is memorised: the p-value of the exact test that its effect is at most {nats} nats, "
        "adjusted for the number of documents, is at most {level} %",
        lambda evidence: bool(evidence.memorised["p_value"] <= evidence.level),
        "Of 100 audits of models on which no document has an effect, at most {level} are called so; among the "
        "documents that are found, at most {level} % are expected to be false.",
        scope="documents",
        applies=asks_documents,
    ),
    tie_rule("documents", asks_documents),
    Rule(
        DETECTABLE,
        "at least one document is found by the test of an effect of 0, the 95 % interval of the share of pairs of "
        f"models that it wins ends below {{beaten}} %, and {single_item('document')}",
        lambda evidence: evidence.is_found and evidence.share_is_negligible and evidence.resolution.finds_one,
        scope="documents",
        applies=asks_documents,
    ),
    Rule(
        "not seen",
        "the 95 % interval of the share of pairs of models in which the one that was trained on a document finds it "
        f"likelier ends below {{beaten}} %, no document is found, and {single_item('document')}",
        lambda evidence: evidence.share_is_negligible and not evidence.is_found and evidence.resolution.finds_one,
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


def read_document_evidence(config: Text, question: Documents, summary: pa.Table) -> DocumentEvidence | None:
    """The evidence in a summary; None where no document was tested."""
    rows = index_rows(summary)
    found, won = first_row(rows, FOUND), rows.get(row_name(WON))
    if found is None or won is None:
        return None
    return DocumentEvidence(
        found,
        won,
        read_copies(rows),
        first_row(rows, MEMORISED) or found,
        first_row(rows, TIED),
        document_resolution(question.models, config.level, found["n"]),
        config.level,
        config.negligible,
    )


def document_verdict(config: Text, question: Documents, summary: pa.Table, rules: Rules[DocumentEvidence]) -> Verdict:
    """The answer by the rules, with its evidence in words."""
    evidence = read_document_evidence(config, question, summary)
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
    if answer == NOT_JUDGED and evidence.tied is not None:
        words = f"{answer.capitalize()}: {describe_ties(evidence.tied)}."
    if answer == "undecided":
        words = f"{words} {evidence.resolution.explain()}".rstrip()
    sentences = [words, describe_copies(question, evidence.copies), null_note(config)]
    sentence = " ".join(sentences).replace("  ", " ").strip()
    beyond = None if evidence.copies is None else evidence.copies.beyond
    rows = (found, won, *([beyond] if beyond is not None else []))
    return Verdict(answer, sentence, LIMITS_OF_DOCUMENTS, tuple(name_of(each) for each in rows))


def null_note(config: Text) -> str:
    return NULL_OF_DOCUMENTS.strip() if config.is_null else ""


def document_findings(config: Text, question: Documents, summary: pa.Table, verdict: Verdict) -> tuple[Finding, ...]:
    """The answer for somebody who knows no machine learning, and whether the documents come out."""
    evidence = read_document_evidence(config, question, summary)
    if evidence is None:
        return (Finding(verdict.answer, verdict.sentence),)
    found = evidence.found
    known = (
        f"Some models were trained on a document and others were not. Of {found['n']:,} documents "
        f"{found['estimate']:,.0f} can be told by what the models say of them. {null_note(config)}"
    ).strip()
    first = Finding(verdict.answer, known, chances(found["p_value"], config.level))
    return first, *reproduction_findings(question, evidence.copies)


@dataclass(frozen=True)
class InsertionEvidence:
    """What the answer rests on.

    `shown` is the summary row of how many numbers of repetitions are told from documents that were left out, whose
    p-value is that of any being known, and `blind` that of the blind control. `won` has, for each number of
    repetitions, the row of how often a document has a higher effect than one that was left out. `found` is the row of
    single documents, and `copies` are how many come out word for word; None where no document is long enough.
    """

    shown: Row
    won: tuple[Row, ...]
    blind: Row
    found: Row
    copies: Copies | None
    level: float
    negligible: float
    memorised: Row | None = None
    tied: Row | None = None
    resolution: Resolution | None = None

    @property
    def finds_one(self) -> bool:
        return self.resolution is not None and self.resolution.finds_one

    @property
    def is_found(self) -> bool:
        return bool(self.shown["p_value"] <= self.level)

    @property
    def is_memorised(self) -> bool:
        return self.memorised is not None and bool(self.memorised["p_value"] <= self.level)

    @property
    def are_all_unknown(self) -> bool:
        return all(each["high"] < 0.5 + self.negligible for each in self.won)


def asks_insertions(config: Text) -> bool:
    return isinstance(config.question, Insertions)


INSERTION_RULES: tuple[Rule[InsertionEvidence], ...] = (
    Rule(
        NOT_JUDGED,
        "a bag of words tells documents that were inserted from those that were left out, without any model (p at most "
        "{uneven} %)",
        lambda evidence: evidence.blind["p_value"] <= UNEVEN,
        "Of 100 audits of insertions that were drawn by chance, at most {uneven} is not judged.",
        scope="insertions",
        applies=asks_insertions,
    ),
    Rule(
        "memorised",
        "the documents of at least one number of repetitions are likelier by the model than by its base, by more than "
        "{nats} nats, beyond those that were left out: the p-value of the exact test over documents, adjusted for how "
        "many such numbers there are, is at most {level} %",
        lambda evidence: evidence.is_memorised,
        "Of 100 audits of models on which no insertion has an effect, at most {level} are called so.",
        scope="insertions",
        applies=asks_insertions,
    ),
    tie_rule("insertions", asks_insertions),
    Rule(
        DETECTABLE,
        "the same test finds an effect of any size, for every number of repetitions the 95 % interval of how often an "
        "inserted document has a higher effect than one that was left out ends below {beaten} %, and "
        f"{single_item('document')}",
        lambda evidence: evidence.is_found and evidence.are_all_unknown and evidence.finds_one,
        scope="insertions",
        applies=asks_insertions,
    ),
    Rule(
        "not seen",
        "for every number of repetitions the 95 % interval of how often an inserted document has a higher effect than "
        "one that was left out ends below {beaten} %, nothing is found, and "
        f"{single_item('document')}",
        lambda evidence: evidence.are_all_unknown and not evidence.is_found and evidence.finds_one,
        scope="insertions",
        applies=asks_insertions,
    ),
)
LIMITS_OF_INSERTIONS = (
    "The audit speaks of this pair of models and these documents, and holds if it was drawn by chance which documents "
    "were inserted, and if those that were left out stood nowhere in the training data. There is one model of a kind, "
    "so that the intervals, over documents, say nothing of another training. A document that does not come out after "
    "its own beginning may come out after another prompt."
)
NULL_OF_INSERTIONS = "This is a null: it was drawn by chance which documents count as inserted. "


def read_insertion_evidence(config: Text, summary: pa.Table) -> InsertionEvidence | None:
    """The evidence in a summary; None where a part of it is missing."""
    rows = index_rows(summary)
    shown, blind, found = (first_row(rows, metric) for metric in (SHOWN, BLIND, FOUND))
    won = tuple(each for each in select_rows(rows, WON) if each != rows.get(row_name(WON)))
    if shown is None or blind is None or found is None:
        return None
    left_out = rows.get(row_name(LOSS, repetitions=0, by=TOLD))
    return InsertionEvidence(
        shown,
        won,
        blind,
        found,
        read_copies(rows),
        config.level,
        config.negligible,
        first_row(rows, INSERTIONS_MEMORISED),
        first_row(rows, TIED),
        None if left_out is None else insertion_resolution(config.level, found["n"], left_out["n"]),
    )


def insertion_verdict(
    config: Text, question: Insertions, summary: pa.Table, rules: Rules[InsertionEvidence]
) -> Verdict:
    """The answer by the rules, with its evidence in words."""
    evidence = read_insertion_evidence(config, summary)
    if evidence is None:
        return Verdict("undecided", "Undecided: no document was tested.", LIMITS_OF_INSERTIONS, ())
    answer = rules.decide(config, evidence).answer
    if answer == NOT_JUDGED and evidence.blind["p_value"] <= UNEVEN:
        words = describe_blind_control(evidence.blind)
    elif answer == NOT_JUDGED and evidence.tied is not None:
        words = f"{describe_ties(evidence.tied)}."
    else:
        words = f"{describe_insertions(config, evidence)} {describe_copies(question, evidence.copies)}"
    if answer == "undecided" and evidence.resolution is not None:
        words = f"{words} {evidence.resolution.explain()}"
    null = NULL_OF_INSERTIONS if are_insertions_drawn(question) else ""
    sentence = f"{answer.capitalize()}: {words} {null}".replace("  ", " ").strip()
    rested = (evidence.blind,) if answer == NOT_JUDGED else (evidence.shown, *evidence.won)
    return Verdict(answer, sentence, LIMITS_OF_INSERTIONS, tuple(name_of(each) for each in rested))


def describe_insertions(config: Text, evidence: InsertionEvidence) -> str:
    """How often inserted documents have the higher effect, by repetitions, and how many are found one by one."""
    by_times = ", ".join(f"{describe_area(each)} of those inserted {repetitions_of(each)}" for each in evidence.won)
    return (
        f"the model finds inserted documents likelier than its base does, beyond a document that was left out, so "
        f"often: {by_times} (.5 where nothing is known; that any of these is known, exact test: "
        f"{p_in_words(evidence.shown['p_value'])}). One by one {evidence.found['estimate']:,.0f} of "
        f"{evidence.found['n']:,} documents are found (false discoveries at most {100 * config.level:g} %)."
    )


def repetitions_of(row: Row) -> str:
    times = read_setting(row)["repetitions"]
    return "once" if times == 1 else f"{times} times"


def describe_blind_control(blind: Row) -> str:
    return (
        f"a bag of words, without any model, tells the documents that were inserted from those that were left out by "
        f"{describe_area(blind)} ({p_in_words(blind['p_value'])} that it was drawn which are which), so that what the "
        "models say of them shows nothing."
    )


def insertion_findings(config: Text, question: Insertions, summary: pa.Table, verdict: Verdict) -> tuple[Finding, ...]:
    """The answer for somebody who knows no machine learning, and whether the documents come out."""
    evidence = read_insertion_evidence(config, summary)
    if evidence is None or verdict.answer == NOT_JUDGED:
        return (Finding(verdict.answer, verdict.sentence),)
    known = (
        f"Documents were put into the training texts of one model, and others, drawn by chance, were left out. Of "
        f"{evidence.found['n']:,} documents that were put in {evidence.found['estimate']:,.0f} can be told from those "
        f"that were left out by what the model says of them, beside one that was trained without them. "
        f"{NULL_OF_INSERTIONS if are_insertions_drawn(question) else ''}"
    ).strip()
    first = Finding(verdict.answer, known, chances(evidence.shown["p_value"], config.level))
    return first, *reproduction_findings(question, evidence.copies)
