"""The answers about documents: those of models that are trained here, and those inserted for a given model."""

from __future__ import annotations

from collections.abc import Iterator

from tasks.audits.text.blind_control import describe_area
from tasks.audits.text.config import Text
from tasks.audits.text.documents.evidence import (
    DocumentEvidence,
    InsertionEvidence,
    read_document_evidence,
    read_insertion_evidence,
)
from tasks.audits.text.documents.models import are_insertions_drawn
from tasks.audits.text.question import Continued, Documents, Insertions
from tasks.audits.text.reproduced import describe_copies, reproduction_findings
from tasks.audits.text.secrets.ranks import UNEVEN
from tasks.audits.text.thresholds import thresholds
from tasks.contract.answering import Answering, Null, keep_one_finding
from tasks.contract.certificate import STEPS, Finding, NumberLine, chances, number_per_hundred
from tasks.contract.power import single_item
from tasks.contract.rules import Case, Rules, undecided
from tasks.contract.summaries import Name, Row, name_of, p_in_words, read_setting
from tasks.contract.ties import tie_rule
from tasks.contract.verdict import BELOW_RELEVANT_SIZE, NOT_ASSESSABLE

AnyEvidence = DocumentEvidence | InsertionEvidence
UNTESTED = "no document was tested."


def _describe_reproduction(config: Text, evidence: AnyEvidence) -> Iterator[str]:
    """How many documents come out word for word."""
    assert isinstance(config.question, Continued)
    yield describe_copies(config.question, evidence.copies)


def _add_reproduction(config: Text, evidence: AnyEvidence, first: Finding) -> tuple[Finding, ...]:
    """The finding about ranks, and whether documents come out."""
    assert isinstance(config.question, Continued)
    return first, *reproduction_findings(config.question, evidence.copies)


LIMITS_OF_DOCUMENTS = (
    "The audit speaks of models that were fine-tuned here, each with half of the documents. A text that others quote, "
    "or a near copy that stays in the data, is known by the twins, too, and is not counted. A document that does not "
    "come out after its own beginning may come out after another prompt."
)
NULL_OF_DOCUMENTS = "This is a null: no model was trained on the documents that were asked about."
ASKED_OF_DOCUMENTS = (
    "Does a language model know these documents because it was trained on them, and does it write them out?"
)


def _describe_documents(config: Text, evidence: DocumentEvidence) -> str:
    """The number of documents that are found, and how often a model that was trained on one finds it likelier."""
    documents, won = evidence.found_documents, evidence.won
    return (
        f"of {documents['n']:,} documents {documents['estimate']:,.0f} are found to be likelier by models that were "
        f"trained on them (exact test, false discoveries at most {100 * config.level:g} %; that any is: "
        f"{p_in_words(documents['p_value'])}); of a model with a document and one without, the former finds it "
        f"likelier in {number_per_hundred(won['estimate'])} of 100 pairs (95 % interval {won['low']:.3f} to "
        f"{won['high']:.3f}; .5 where nothing is known)"
    )


def _name_document_rows(evidence: DocumentEvidence) -> tuple[Name, ...]:
    names = name_of(evidence.found_documents), name_of(evidence.won)
    if evidence.copies is None or evidence.copies.beyond is None:
        return names
    return *names, name_of(evidence.copies.beyond)


def _explain_documents(config: Text, evidence: DocumentEvidence) -> str:
    """How many documents are found, in words that need no statistics."""
    documents = evidence.found_documents
    null = f" {NULL_OF_DOCUMENTS}" if config.is_null else ""
    return (
        f"Some models were trained on a document and others were not. Of {documents['n']:,} documents "
        f"{documents['estimate']:,.0f} can be told by what the models say of them.{null}"
    )


DOCUMENT_RULES = Rules[DocumentEvidence](
    (
        Case(
            "memorised",
            "at least one document is memorised: the p-value of the exact test that its effect is at most {nats} nats, "
            "adjusted for the number of documents, is at most {level} %",
            lambda evidence: evidence.is_memorised,
            "Of 100 audits of models on which no document has an effect, at most {level} are called so; among the "
            "documents that are found, at most {level} % are expected to be false.",
            steps=STEPS["accused"],
        ),
        tie_rule(),
        Case(
            BELOW_RELEVANT_SIZE,
            "at least one document is found by the test of an effect of 0, the 95 % interval of the share of pairs of "
            f"models that it wins ends below {{beaten}} %, and {single_item('document')}",
            lambda evidence: evidence.is_found and evidence.share_is_negligible and evidence.resolution.finds_one,
        ),
        Case(
            "not detected",
            "the 95 % interval of the share of pairs of models in which the one that was trained on a document finds "
            f"it likelier ends below {{beaten}} %, no document is found, and {single_item('document')}",
            lambda evidence: evidence.share_is_negligible and not evidence.is_found and evidence.resolution.finds_one,
            steps=STEPS["cleared"],
        ),
        undecided(reasons=lambda _config, evidence: (evidence.resolution.explain(),)),
    ),
    thresholds,
)
DOCUMENT_ANSWERING = Answering[DocumentEvidence](
    asked=lambda _config, _evidence: ASKED_OF_DOCUMENTS,
    rules=DOCUMENT_RULES,
    read=read_document_evidence,
    unread=lambda _config: UNTESTED,
    limits=lambda _config, _evidence: LIMITS_OF_DOCUMENTS,
    describe=_describe_documents,
    rows=_name_document_rows,
    remarks=_describe_reproduction,
    explain=_explain_documents,
    line=lambda config, evidence: chances(evidence.found_documents["p_value"], config.level),
    findings=_add_reproduction,
    null=Null(lambda config: config.is_null, lambda _config: NULL_OF_DOCUMENTS, "told=secrets"),
    scope="documents",
    applies=lambda config: isinstance(config.question, Documents),
)

LIMITS_OF_INSERTIONS = (
    "The audit speaks of this pair of models and these documents, and holds if it was drawn by chance which documents "
    "were inserted, and if those that were left out stood nowhere in the training data. There is one model of a kind, "
    "so that the intervals, over documents, say nothing of another training. A document that does not come out after "
    "its own beginning may come out after another prompt."
)
NULL_OF_INSERTIONS = "This is a null: it was drawn by chance which documents count as inserted."
ASKED_OF_INSERTIONS = "Does a language model know these documents because they were put into its training texts?"


def _is_null_of_insertions(config: Text) -> bool:
    """Whether it was drawn which documents count as inserted, as of all embedded texts."""
    return isinstance(config.question, Insertions) and are_insertions_drawn(config.question)


def _describe_insertions(config: Text, evidence: InsertionEvidence) -> str:
    """How often inserted documents have the higher effect, by repetitions, and how many are found one by one."""
    documents = evidence.found_documents
    by_times = ", ".join(f"{describe_area(row)} of those inserted {_repetitions_of(row)}" for row in evidence.won)
    return (
        f"the model finds inserted documents likelier than its base does, beyond a document that was left out, so "
        f"often: {by_times} (.5 where nothing is known; that any of these is known, exact test: "
        f"{p_in_words(evidence.found_repetitions['p_value'])}). One by one {documents['estimate']:,.0f} of "
        f"{documents['n']:,} documents are found (false discoveries at most {100 * config.level:g} %)"
    )


def _repetitions_of(row: Row) -> str:
    times = read_setting(row)["repetitions"]
    return "once" if times == 1 else f"{times} times"


def _describe_blind_control(_config: Text, evidence: InsertionEvidence) -> str:
    """That words alone tell which documents were inserted."""
    blind = evidence.blind
    return (
        f"a bag of words, without any model, tells the documents that were inserted from those that were left out by "
        f"{describe_area(blind)} ({p_in_words(blind['p_value'])} that it was drawn which are which), so that what the "
        "models say of them shows nothing"
    )


def _name_insertion_rows(evidence: InsertionEvidence) -> tuple[Name, ...]:
    return tuple(name_of(row) for row in (evidence.found_repetitions, *evidence.won))


def _explain_insertions(config: Text, evidence: InsertionEvidence) -> str:
    """How many inserted documents are found, in words that need no statistics."""
    documents = evidence.found_documents
    null = f" {NULL_OF_INSERTIONS}" if _is_null_of_insertions(config) else ""
    return (
        f"Documents were put into the training texts of one model, and others, drawn by chance, were left out. Of "
        f"{documents['n']:,} documents that were put in {documents['estimate']:,.0f} can be told from those that were "
        f"left out by what the model says of them, beside one that was trained without them.{null}"
    )


def draw_chances(config: Text, evidence: InsertionEvidence) -> NumberLine:
    return chances(evidence.found_repetitions["p_value"], config.level)


def reasons_of_doubt(config: Text, evidence: InsertionEvidence) -> Iterator[str]:
    """How many documents come out, and why nothing can be cleared."""
    yield from _describe_reproduction(config, evidence)
    if evidence.resolution is not None:
        yield evidence.resolution.explain()


INSERTION_RULES = Rules[InsertionEvidence](
    (
        Case(
            NOT_ASSESSABLE,
            "a bag of words tells documents that were inserted from those that were left out, without any model (p at "
            "most {uneven} %)",
            lambda evidence: evidence.blind["p_value"] <= UNEVEN,
            "Of 100 audits of insertions that were drawn by chance, at most {uneven} is not assessable.",
            describe=_describe_blind_control,
            rows=lambda evidence: (name_of(evidence.blind),),
            findings=keep_one_finding,
        ),
        Case(
            "memorised",
            "the documents of at least one number of repetitions are likelier by the model than by its base, by more "
            "than {nats} nats, beyond those that were left out: the p-value of the exact test over documents, adjusted "
            "for how many such numbers there are, is at most {level} %",
            lambda evidence: evidence.is_memorised,
            "Of 100 audits of models on which no insertion has an effect, at most {level} are called so.",
            reasons=_describe_reproduction,
            steps=STEPS["accused"],
        ),
        tie_rule(findings=keep_one_finding),
        Case(
            BELOW_RELEVANT_SIZE,
            "the same test finds an effect of any size, for every number of repetitions the 95 % interval of how often "
            "an inserted document has a higher effect than one that was left out ends below {beaten} %, and "
            f"{single_item('document')}",
            lambda evidence: evidence.is_found and evidence.are_all_unknown and evidence.finds_one,
            reasons=_describe_reproduction,
        ),
        Case(
            "not detected",
            "for every number of repetitions the 95 % interval of how often an inserted document has a higher effect "
            "than one that was left out ends below {beaten} %, nothing is found, and "
            f"{single_item('document')}",
            lambda evidence: evidence.are_all_unknown and not evidence.is_found and evidence.finds_one,
            reasons=_describe_reproduction,
            steps=STEPS["cleared"],
        ),
        undecided(reasons=reasons_of_doubt),
    ),
    thresholds,
)
INSERTION_ANSWERING = Answering[InsertionEvidence](
    asked=lambda _config, _evidence: ASKED_OF_INSERTIONS,
    rules=INSERTION_RULES,
    read=read_insertion_evidence,
    unread=lambda _config: UNTESTED,
    limits=lambda _config, _evidence: LIMITS_OF_INSERTIONS,
    describe=_describe_insertions,
    rows=_name_insertion_rows,
    explain=_explain_insertions,
    line=draw_chances,
    findings=_add_reproduction,
    null=Null(_is_null_of_insertions, lambda _config: NULL_OF_INSERTIONS, "told=secrets data=records:FILE"),
    scope="insertions",
    applies=lambda config: isinstance(config.question, Insertions),
)
