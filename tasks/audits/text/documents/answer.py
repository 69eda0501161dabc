"""Verdicts about documents in the training data of the audit's models, or inserted into that of a given model."""

from __future__ import annotations

from collections.abc import Iterator

from tasks.audits.text.config import Text
from tasks.audits.text.documents.evidence import (
    DocumentEvidence,
    InsertionEvidence,
    read_document_evidence,
    read_insertion_evidence,
)
from tasks.audits.text.documents.models import are_insertions_drawn
from tasks.audits.text.plain_words import (
    clearing_boundary,
    collect_evidence,
    disclose,
    explain_doubt,
    interval_per_hundred,
    name_given_model,
    share_line,
    shorten_model,
)
from tasks.audits.text.question import Continued, Documents, Insertions
from tasks.audits.text.reproduced import describe_copies, reproduction_findings
from tasks.audits.text.secrets.ranks import UNEVEN
from tasks.audits.text.thresholds import thresholds
from tasks.contract.answering import Answering, Null, keep_one_finding
from tasks.contract.certificate import (
    STEPS,
    Finding,
    NumberLine,
    advise_retraining,
    number_per_hundred,
)
from tasks.contract.conditions import Condition, confirm, ensure, require
from tasks.contract.examined_models import describe_trained
from tasks.contract.power import Resolution, single_item
from tasks.contract.rules import Case, Rules, undecided
from tasks.contract.summaries import Name, Row, area_with_interval, names_of, p_in_words, read_setting
from tasks.contract.ties import tie_rule
from tasks.contract.verdict import BELOW_RELEVANT_SIZE, NOT_ASSESSABLE

AnyEvidence = DocumentEvidence | InsertionEvidence
UNTESTED = "no document was tested."


def _describe_reproduction(config: Text, evidence: AnyEvidence) -> Iterator[str]:
    assert isinstance(config.question, Continued)
    yield describe_copies(config.question, evidence.copies)


def _add_reproduction(config: Text, evidence: AnyEvidence, first: Finding) -> tuple[Finding, ...]:
    assert isinstance(config.question, Continued)
    return first, *reproduction_findings(config.question, evidence.copies)


def _advise(resolution: Resolution | None, default: str) -> tuple[str, ...]:
    if resolution is not None and not resolution.finds_one:
        return collect_evidence(resolution.advice)
    return collect_evidence(default)


LIMITS_OF_DOCUMENTS = (
    "The answer describes models that the audit trained, each on half of the documents. A text that other documents "
    "quote, or a near copy that remains in the data, is also known to the models that were not trained on it, and is "
    "not counted. A document that is not reproduced from its beginning may be reproduced from another prompt."
)
DRAWN_DOCUMENTS = ensure("chance decided which models were trained on which documents")
NULL_OF_DOCUMENTS = "This is a control run: no model was trained on the tested documents."
QUESTION_OF_DOCUMENTS = (
    "Does a language model know these documents because it was trained on them, and does it reproduce them?"
)
FOUND_DOCUMENTS = disclose(
    "the tested documents",
    advise_retraining("deduplicate=true, privacy.epsilon=4", "remove copies of documents"),
)


def _describe_documents(config: Text, evidence: DocumentEvidence) -> str:
    documents = evidence.found_documents
    won = evidence.won
    return (
        f"{documents['estimate']:,.0f} of {documents['n']:,} documents are likelier under models trained on them "
        f"(exact test, false discovery rate {100 * config.level:g} %, smallest adjusted "
        f"{p_in_words(documents['p_value'])}); the model trained on a document assigns it the higher probability in "
        f"{number_per_hundred(won['estimate'])} of 100 pairs of models (95 % interval {won['low']:.3f} to "
        f"{won['high']:.3f}, 0.5 without memory)"
    )


def _name_document_rows(evidence: DocumentEvidence) -> tuple[Name, ...]:
    difference = None if evidence.copies is None else evidence.copies.difference
    return names_of(evidence.found_documents, evidence.won, difference)


def _explain_documents(_config: Text, evidence: DocumentEvidence) -> str:
    documents = evidence.found_documents
    won = evidence.won
    return (
        f"{documents['estimate']:,.0f} of {documents['n']:,} documents can be recognised from the models. Each was in "
        "the training data of half of the models, selected at random. Of a model that was trained on a document "
        "and one that was not, the former rates the document as more probable in "
        f"{number_per_hundred(won['estimate'])} % of the comparisons{interval_per_hundred(won)}; without memory, "
        "it would be 50 %."
    )


def _explain_undecided_documents(config: Text, evidence: DocumentEvidence) -> str:
    return f"{_explain_documents(config, evidence)} {explain_doubt(evidence.resolution.finds_one, 'document')}"


def _name_trained_models(config: Text) -> str:
    assert isinstance(config.question, Documents)
    more = "" if config.is_null else ", each on a random half of the documents"
    return describe_trained(config.question.models, more)


def _name_given_models(config: Text) -> str:
    question = config.question
    assert isinstance(question, Insertions)
    return (
        f"{name_given_model(question.reading)} For comparison, it examined the model {shorten_model(question.base)}, "
        "which was trained without the inserted documents."
    )


def _advise_more_documents(config: Text, evidence: DocumentEvidence | None) -> tuple[str, ...]:
    question = config.question
    assert isinstance(question, Documents)
    documents = 2 * question.documents
    models = 2 * question.models
    default = (
        f"test at least {documents} documents, or train at least {models} models (`documents={documents}` or "
        f"`models={models}`)"
    )
    return _advise(None if evidence is None else evidence.resolution, default)


def _draw_pairs(config: Text, evidence: DocumentEvidence) -> NumberLine | None:
    label = "comparisons of two models in which the one trained on a document rates it as more probable, in %"
    return share_line(evidence.won, label, "if the models remember nothing", clearing_boundary(config.negligible))


DOCUMENT_RULES = Rules[DocumentEvidence](
    (
        Case(
            "memorised",
            "at least one document is memorised: the p-value of the exact test that its effect is at most {nats} nats, "
            "adjusted for the number of documents, is at most {level} %",
            lambda evidence: evidence.is_memorised,
            "Of 100 audits of models on which no document has an effect, at most {level} answer “memorised”.",
            steps=FOUND_DOCUMENTS,
            further_error="Among the documents that are found, at most {level} of 100 are false on average.",
        ),
        tie_rule(),
        Case(
            BELOW_RELEVANT_SIZE,
            "the test of an effect of 0 finds at least one document, the 95 % interval of the share of pairs of models "
            f"that it wins ends below {{beaten}} %, and {single_item('document')}",
            lambda evidence: evidence.is_found and evidence.share_is_negligible and evidence.resolution.finds_one,
        ),
        Case(
            "not detected",
            "the 95 % interval of the share of pairs of models in which the model trained on a document assigns it the "
            f"higher probability ends below {{beaten}} %, no document is found, and {single_item('document')}",
            lambda evidence: evidence.share_is_negligible and not evidence.is_found and evidence.resolution.finds_one,
            steps=STEPS["cleared"],
        ),
        undecided(
            reasons=lambda _config, evidence: (evidence.resolution.explain(),),
            steps=_advise_more_documents,
            explain=_explain_undecided_documents,
        ),
    ),
    thresholds,
)
DOCUMENT_ANSWERING = Answering[DocumentEvidence](
    asked=lambda _config, _evidence: QUESTION_OF_DOCUMENTS,
    rules=DOCUMENT_RULES,
    read=read_document_evidence,
    unread=lambda _config: UNTESTED,
    limits=lambda _config, _evidence: LIMITS_OF_DOCUMENTS,
    conditions=lambda _config, _evidence: (DRAWN_DOCUMENTS,),
    describe=_describe_documents,
    rows=_name_document_rows,
    remarks=_describe_reproduction,
    explain=_explain_documents,
    line=_draw_pairs,
    findings=_add_reproduction,
    null=Null(
        lambda config: config.is_null, lambda _config: NULL_OF_DOCUMENTS, "is_null=false", f"{NULL_OF_DOCUMENTS} "
    ),
    examined=_name_trained_models,
    scope="documents",
    applies=lambda config: isinstance(config.question, Documents),
)

LIMITS_OF_INSERTIONS = (
    "The answer describes this pair of models and these documents. There is only one model of each kind, so another "
    "training may differ. A document that is not reproduced from its beginning may be reproduced from another prompt."
)
RANDOM_INSERTIONS = require(
    "the inserted documents were selected at random, and the documents that were left out are nowhere in the training "
    "data",
    "the owner of the model",
)


def _list_conditions_of_insertions(_config: Text, evidence: InsertionEvidence | None) -> Iterator[Condition]:
    if evidence is not None:
        yield confirm(
            "the words of the inserted documents alone do not distinguish them from the documents that were left out",
            evidence.blind["p_value"] > UNEVEN,
        )
    yield RANDOM_INSERTIONS


NULL_OF_INSERTIONS = "This is a control run: a random draw decided which documents count as inserted."
QUESTION_OF_INSERTIONS = (
    "Does a language model know these documents because they were inserted into its training texts?"
)
FOUND_INSERTIONS = disclose(
    "documents that occur this often in the training texts",
    "Remove repeated documents from the training texts, retrain the model, and audit again.",
)


def _is_null_of_insertions(config: Text) -> bool:
    """Return whether a random draw decides which documents count as inserted, as for all embedded texts."""
    return isinstance(config.question, Insertions) and are_insertions_drawn(config.question)


def _describe_insertions(config: Text, evidence: InsertionEvidence) -> str:
    documents = evidence.found_documents
    by_times = ", ".join(f"{area_with_interval(row)} for those inserted {_repetitions_of(row)}" for row in evidence.won)
    return (
        f"{documents['estimate']:,.0f} of {documents['n']:,} inserted documents are found (false discovery rate "
        f"{100 * config.level:g} %); an inserted document has a larger effect than one that was left out with "
        f"probability {by_times} (95 % intervals, 0.5 without memory; exact test of all repetitions, "
        f"{p_in_words(evidence.found_repetitions['p_value'])})"
    )


def _repetitions_of(row: Row) -> str:
    times = read_setting(row)["repetitions"]
    return "once" if times == 1 else f"{times} times"


def _describe_blind_control(_config: Text, evidence: InsertionEvidence) -> str:
    blind = evidence.blind
    return (
        f"a bag of words, without any model, distinguishes the inserted documents from those left out with an area "
        f"under the curve of {area_with_interval(blind)} ({p_in_words(blind['p_value'])} if the insertions were "
        "random), so the scores of the models carry no information"
    )


def _explain_blind_control(_config: Text, _evidence: InsertionEvidence) -> str:
    return (
        "The words of the inserted documents differ from those of the other documents. They were therefore not "
        "selected at random, and a comparison of the models shows nothing."
    )


def _name_insertion_rows(evidence: InsertionEvidence) -> tuple[Name, ...]:
    return names_of(evidence.found_repetitions, *evidence.won)


def _explain_insertions(_config: Text, evidence: InsertionEvidence) -> str:
    documents = evidence.found_documents
    comparison = ""
    if evidence.won:
        most_repeated = evidence.won[-1]
        comparison = (
            " Compared with a model trained without insertions, a document inserted "
            f"{_repetitions_of(most_repeated)} gains more probability than one that was left out in "
            f"{number_per_hundred(most_repeated['estimate'])} % of the comparisons"
            f"{interval_per_hundred(most_repeated)}. Without memory, it would be 50 %."
        )
    return (
        f"{documents['estimate']:,.0f} of {documents['n']:,} inserted documents can be recognised individually from "
        f"the model.{comparison}"
    )


def _draw_comparisons(config: Text, evidence: InsertionEvidence) -> NumberLine | None:
    """Draw the share for the documents that were inserted most often."""
    if not evidence.won:
        return None
    most_repeated = evidence.won[-1]
    label = (
        f"comparisons in which a document inserted {_repetitions_of(most_repeated)} gains more probability than one "
        "that was left out, in %"
    )
    return share_line(most_repeated, label, "if the model remembers nothing", clearing_boundary(config.negligible))


def _explain_undecided_insertions(config: Text, evidence: InsertionEvidence) -> str:
    return f"{_explain_insertions(config, evidence)} {explain_doubt(evidence.finds_one, 'document')}"


def list_doubts(config: Text, evidence: InsertionEvidence) -> Iterator[str]:
    """Yield the share of documents that is reproduced, and the reason why the audit cannot clear."""
    yield from _describe_reproduction(config, evidence)
    if evidence.resolution is not None:
        yield evidence.resolution.explain()


INSERTION_RULES = Rules[InsertionEvidence](
    (
        Case(
            NOT_ASSESSABLE,
            "a bag of words distinguishes inserted documents from those left out, without any model (p at most "
            "{uneven} %)",
            lambda evidence: evidence.blind["p_value"] <= UNEVEN,
            "Of 100 audits of random insertions, at most {uneven} is not assessable.",
            describe=_describe_blind_control,
            explain=_explain_blind_control,
            rows=lambda evidence: names_of(evidence.blind),
            findings=keep_one_finding,
        ),
        Case(
            "memorised",
            "for at least one number of repetitions, the effect of inserted documents exceeds that of documents left "
            "out by more than {nats} nats: the p-value of the exact test over documents, adjusted for the number of "
            "these tests, is at most {level} %",
            lambda evidence: evidence.is_memorised,
            "Of 100 audits of models on which insertions have no effect, at most {level} answer “memorised”.",
            reasons=_describe_reproduction,
            steps=FOUND_INSERTIONS,
        ),
        tie_rule(findings=keep_one_finding),
        Case(
            BELOW_RELEVANT_SIZE,
            "the same test finds an effect of any size, for every number of repetitions the 95 % interval of the "
            "probability that an inserted document has a larger effect than one left out ends below {beaten} %, and "
            f"{single_item('document')}",
            lambda evidence: evidence.is_found and evidence.are_all_unknown and evidence.finds_one,
            reasons=_describe_reproduction,
        ),
        Case(
            "not detected",
            "for every number of repetitions the 95 % interval of the probability that an inserted document has a "
            "larger effect than one left out ends below {beaten} %, no effect is found, and "
            f"{single_item('document')}",
            lambda evidence: evidence.are_all_unknown and not evidence.is_found and evidence.finds_one,
            reasons=_describe_reproduction,
            steps=STEPS["cleared"],
        ),
        undecided(
            reasons=list_doubts,
            steps=lambda _config, evidence: _advise(
                None if evidence is None else evidence.resolution, "test at least twice the number of documents"
            ),
            explain=_explain_undecided_insertions,
        ),
    ),
    thresholds,
)
INSERTION_ANSWERING = Answering[InsertionEvidence](
    asked=lambda _config, _evidence: QUESTION_OF_INSERTIONS,
    rules=INSERTION_RULES,
    read=read_insertion_evidence,
    unread=lambda _config: UNTESTED,
    limits=lambda _config, _evidence: LIMITS_OF_INSERTIONS,
    conditions=_list_conditions_of_insertions,
    describe=_describe_insertions,
    rows=_name_insertion_rows,
    explain=_explain_insertions,
    line=_draw_comparisons,
    findings=_add_reproduction,
    null=Null(
        _is_null_of_insertions,
        lambda _config: NULL_OF_INSERTIONS,
        "is_null=false data=records:FILE",
        f"{NULL_OF_INSERTIONS} ",
    ),
    examined=_name_given_models,
    scope="insertions",
    applies=lambda config: isinstance(config.question, Insertions),
)
