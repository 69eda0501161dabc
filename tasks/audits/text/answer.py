"""The audit's answer: the evidence in its summary, the rules that decide, and both in words."""

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
from tasks.audits.text.question import (
    Documents,
    Identifiers,
    Insertions,
    OtherTexts,
    Planted,
    Question,
    RankedQuestion,
    Secrets,
)
from tasks.audits.text.reproduced import (
    REPRODUCTION,
    describe_extraction,
    extraction_finding,
)
from tasks.audits.text.secrets.evidence import MOST_SAME, SURELY, Evidence, read_evidence
from tasks.audits.text.secrets.ranks import (
    BEATEN,
    UNEVEN,
)
from tasks.contract.certificate import STEPS as PLAIN_STEPS
from tasks.contract.certificate import Certificate, Finding, chances, number_per_hundred, steps_of_null
from tasks.contract.epsilon_rows import CONFIDENCE
from tasks.contract.epsilon_rows import SYMBOLS as EPSILON_SYMBOLS
from tasks.contract.objectives import Objective, Objectives, row_reader
from tasks.contract.power import SMALLEST, single_item
from tasks.contract.rules import Rule, Rules, undecided
from tasks.contract.summaries import Row, first_row, index_rows, name_of, p_in_words, row_name
from tasks.contract.ties import NOT_JUDGED, are_tied, describe_ties, tie_rule
from tasks.contract.verdict import ANSWERS, DETECTABLE, Answer, Meaning, Verdict
from tasks.external.causes import ALTERED, TRAINING_MODE, list_causes

BROKEN: Answer = "promise broken"
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


def asks_identifiers(config: Text) -> bool:
    return isinstance(config.question, Identifiers)


def asks_ranks(config: Text) -> bool:
    return isinstance(config.question, RankedQuestion)


def asks_private_training(config: Text) -> bool:
    return isinstance(config.question, Secrets) and config.question.tuning.privacy is not None


RANKS = "secrets and identifiers"
TOGETHER: Rule[Any] = Rule(
    "memorised",
    "the p-values of all secrets together (Fisher), with effects reduced by {nats} nats, are at most {surely} %",
    lambda evidence: evidence.are_memorised_together,
    "Of 100 audits of models that were told none of the secrets, at most {both} are called memorised by either "
    "condition.",
    scope=RANKS,
    applies=asks_ranks,
)
# Rules about documents see their evidence, the others that of ranks.
RULES = Rules[Any](
    (
        *DOCUMENT_RULES,
        *INSERTION_RULES,
        *OTHER_TEXT_RULES,
        Rule(
            NOT_JUDGED,
            "those found are not drawn evenly from their space, whatever the model says (exact tests by position, "
            "neighbours and remainders, p at most {uneven} % together)",
            lambda evidence: not evidence.is_even,
            "Of 100 audits of identifiers that are drawn evenly, {uneven} are not judged.",
            scope="identifiers that stand in the texts",
            applies=asks_identifiers,
        ),
        Rule(
            BROKEN,
            "the lower bound on epsilon, by bets or guesses together at a confidence of {confidence} %, lies above the "
            "epsilon that the accountant says was spent",
            lambda evidence: evidence.exceeds_promise,
            "Of 100 audits of trainings that are as private as promised, at most {broken} are called so.",
            scope="private training",
            applies=asks_private_training,
        ),
        Rule(
            "memorised",
            "at least one secret is memorised: the p-value of its rank with its log p reduced by {nats} nats, adjusted "
            "for the number of secrets, is at most {level} %",
            lambda evidence: evidence.is_memorised,
            "Among the secrets that are found, at most {level} % are expected to be false.",
            scope=RANKS,
            applies=asks_ranks,
        ),
        TOGETHER,
        tie_rule(RANKS, asks_ranks),
        Rule(
            NOT_JUDGED,
            "the owner's table has two numbers for more than {same} % of the texts that were handed out twice",
            lambda evidence: not evidence.is_answered,
            scope="tables that an owner returned",
            applies=lambda config: config.outputs is not None,
        ),
        Rule(
            DETECTABLE,
            "one of the conditions of *memorised* holds of effects that are not reduced, the 95 % interval of the mean "
            f"share of references that a secret beats ends below {{beaten}} %, and {single_item('secret')}",
            lambda evidence: evidence.is_detected and evidence.share_is_negligible and evidence.finds_one,
            scope=RANKS,
            applies=asks_ranks,
        ),
        Rule(
            "not seen",
            "the 95 % interval of the mean share of references that a secret beats ends below {beaten} %, no secret is "
            f"found, and {single_item('secret')}",
            lambda evidence: evidence.share_is_negligible and not evidence.is_detected and evidence.finds_one,
            scope=RANKS,
            applies=asks_ranks,
        ),
        undecided(),
    ),
    thresholds,
)
LIMITS = (
    "The audit speaks of models that were fine-tuned here, of secrets in this format, repeated so often. A secret that "
    "is not found may still be known a little. It asks for probabilities: whether a secret would be said when nobody "
    "asks for it is another question."
)
LIMITS_OF_IDENTIFIERS = (
    "The audit speaks of this model and of identifiers of these formats, each where it stands first. It holds if "
    "whoever made them drew them evenly, which the control cannot prove, and if they came to the model by such texts "
    "alone. One that is not found may still be known a little."
)
LIMITS_OF_PLANTED = (
    "The audit speaks of this model, of secrets in this format, repeated so often, and holds if those that were drawn "
    "were put into its training data, and nowhere else. A secret that is not found may still be known a little."
)
LIMITS_OF_TABLES = (
    "What an owner returns is as honest as the owner: numbers that are made up for this format, or blurred alike each "
    "time, look like those of a model that knows nothing, and only an accusation holds whatever they are."
)
NULL = "This is a null: other secrets of the format stood in the texts. "
NULL_OF_IDENTIFIERS = "This is a null: others of the format were asked about in the place of those in the texts. "


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
            return rank_verdict(config, question, summary)


def rank_verdict(config: Text, question: RankedQuestion, summary: pa.Table) -> Verdict:
    """The answer about secrets and identifiers, with its evidence in words."""
    limits = limits_of(config)
    evidence = read_evidence(config, question, summary)
    if evidence is None:
        return Verdict("undecided", "Undecided: no secret was ranked.", limits, ())
    rule = RULES.decide(config, evidence)
    rows: tuple[Row, ...] = (evidence.found, evidence.beaten)
    if rule is TOGETHER:
        rows = rows[::-1]
    if rule.answer == BROKEN and evidence.bound is not None and evidence.spent is not None:
        rows = (evidence.bound, evidence.spent)
    if rule.answer == NOT_JUDGED:
        rows = tuple(each for each in unjudgeable_rows(evidence) if each is not None)
    written = "" if evidence.extraction is None else describe_extraction(evidence.extraction, evidence.things)
    words = [describe_evidence(evidence), written, describe_privacy(evidence), null_note(config)]
    if rule.answer == "undecided" and evidence.resolution is not None:
        words.append(evidence.resolution.explain())
    sentence = f"{rule.answer.capitalize()}: {' '.join(filter(None, words))}"
    return Verdict(rule.answer, sentence, limits, tuple(map(name_of, rows)))


def unjudgeable_rows(evidence: Evidence) -> tuple[Row | None, ...]:
    """The rows on which it rests that nothing is judged."""
    return (evidence.tied, evidence.differing) if evidence.is_even else (evidence.control,)


def describe_refusal(evidence: Evidence) -> str:
    """Why ranks say nothing, as the beginning of a sentence; empty if they do."""
    refusals = []
    if evidence.tied is not None and are_tied(evidence.tied):
        refusals.append(describe_ties(evidence.tied))
    if not evidence.is_answered and evidence.differing is not None:
        twice = number_per_hundred(evidence.differing["estimate"] or 0)
        refusals.append(f"the table has two numbers for {twice} of 100 texts that were handed out twice")
    if not refusals:
        return ""
    causes = f" ({TABLE_CAUSES})" if evidence.differing is not None else ""
    return f"{' and '.join(refusals)}{causes}; "


def limits_of(config: Text) -> str:
    """What the answer does not say."""
    match config.question:
        case Identifiers():
            limits = LIMITS_OF_IDENTIFIERS
        case Planted():
            limits = LIMITS_OF_PLANTED
        case _:
            limits = LIMITS
    return f"{limits} {LIMITS_OF_TABLES} {config.describe_draw()}" if config.outputs is not None else limits


def null_note(config: Text) -> str:
    """What is said of a null; empty for any other."""
    note = NULL_OF_IDENTIFIERS if isinstance(config.question, Identifiers) else NULL
    return note.strip() if config.is_null else ""


TABLE_CAUSES = list_causes(
    "its numbers were rounded", "the texts were cut short or tokenized in another way", TRAINING_MODE, ALTERED
)


def describe_evidence(evidence: Evidence) -> str:
    """The secrets that were found, and what all of them say together, in a sentence."""
    found, beaten = evidence.found, evidence.beaten
    if evidence.control is not None and not evidence.is_even:
        return (
            f"the {found['n']:,} identifiers asked about are not drawn evenly from their space, which shows without "
            f"the model ({p_in_words(evidence.control['p_value'])}), so that their ranks say nothing; name formats of "
            "identifiers that are random by nature."
        )
    things, one = evidence.things, "a secret" if evidence.control is None else "an identifier"
    size = ""
    if found["estimate"] and evidence.memorised is not None:
        size = f", {evidence.memorised['estimate']:,.0f} of them by more than {SMALLEST:g} nats"
    interval = "" if beaten["low"] is None else f", 95 % interval {beaten['low']:.3f} to {beaten['high']:.3f}"
    refusal = describe_refusal(evidence)
    return (
        f"{refusal}of {found['n']:,} {things} {found['estimate']:,.0f} are found among the likeliest of their space "
        f"(false discoveries at most {100 * evidence.level:g} %; that any is known: {p_in_words(found['p_value'])})"
        f"{size}; on average {one} beats {beaten['estimate']:.3f} of the others of its space (.5 where nothing is known"
        f"{interval}; all together: {p_in_words(beaten['p_value'])})."
    )


def describe_privacy(evidence: Evidence) -> str:
    """Epsilon from below beside what was promised, in a sentence; empty where training was not private."""
    if evidence.bound is None or evidence.spent is None:
        return ""
    return (
        f"Epsilon is at least {evidence.bound['estimate']:.3g} (confidence {100 * CONFIDENCE:g} %), and "
        f"{evidence.spent['estimate']:.3g} by the accountant."
    )


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


def rank_findings(config: Text, question: RankedQuestion, summary: pa.Table, verdict: Verdict) -> tuple[Finding, ...]:
    """The answer about secrets or identifiers, and whether they are reproduced."""
    evidence = read_evidence(config, question, summary)
    if evidence is None:
        return (Finding(verdict.answer, verdict.sentence),)
    found, beaten = evidence.found, evidence.beaten
    sentence = verdict.sentence
    if not isinstance(question, Identifiers):
        sentence = (
            f"Secrets of a known format were put into the training texts. Of {found['n']:,} of them "
            f"{found['estimate']:,.0f} can be told from others of the format by what the model says. A model "
            "that never saw a secret places it before half of the others; this one places its secrets before "
            f"{number_per_hundred(beaten['estimate'])} of 100 on average."
        )
        sentence = f"{null_note(config)} {sentence}".strip()
    first = Finding(verdict.answer, sentence, chances(found["p_value"], evidence.level))
    if evidence.extraction is None:
        return (first,)
    return first, extraction_finding(evidence.extraction, evidence.things, evidence.level)


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
