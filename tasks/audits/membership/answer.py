"""The audit's answer: the evidence in its summary, the rules that decide, and both in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tasks.audits.membership.canary_answer import (
    BROKEN,
    BROKEN_MEANING,
    CANARY_RULES,
    canary_certificate,
    canary_thresholds,
    canary_verdict,
)
from tasks.audits.membership.config import Canaries, Halves, Membership
from tasks.audits.membership.given_answer import (
    GIVEN_RULES,
    given_steps,
    given_thresholds,
    given_verdict,
)
from tasks.audits.membership.given_config import GivenModel
from tasks.audits.membership.measures.attacks import AUC
from tasks.audits.membership.measures.epsilon import EXPOSURE
from tasks.audits.membership.measures.given import FOUND_GIVEN
from tasks.audits.membership.measures.records import FOUND, MEMORISED
from tasks.audits.membership.power import record_resolution
from tasks.contract import epsilon_rows
from tasks.contract.certificate import STEPS as PLAIN_STEPS
from tasks.contract.certificate import Certificate, Finding, chances, steps_of_null
from tasks.contract.objectives import Objective
from tasks.contract.power import SMALLEST, Resolution, single_item
from tasks.contract.rules import Rule, Rules, undecided
from tasks.contract.summaries import Row, first_row, index_rows, name_of, p_in_words, read_setting, select_rows
from tasks.contract.ties import NOT_JUDGED, TIED, describe_ties, tie_rule
from tasks.contract.verdict import ANSWERS, DETECTABLE, Answer, Meaning, Verdict

MEANINGS: Mapping[Answer, Meaning] = {
    **{name: ANSWERS[name] for name in ("memorised", "not seen", DETECTABLE, "undecided")},
    NOT_JUDGED: Meaning("the models' scores, or the given model, cannot be compared, so nothing follows"),
    BROKEN: BROKEN_MEANING,
}


@dataclass(frozen=True)
class Evidence:
    """What the answer rests on.

    `found` is the summary row of how many records are found, whose p-value is that of any of them having an influence,
    and `memorised` that of those whose influence is above the smallest that matters. `attack` is the row of the attack
    whose area under the curve may be largest, `resolution` whether one record could be found, and `tied` the row of how
    many scores are equal; None if it is not known.
    """

    found: Row
    memorised: Row
    attack: Row | None
    resolution: Resolution
    level: float
    negligible: float
    tied: Row | None = None

    @property
    def attacks_fail(self) -> bool:
        return self.attack is not None and bool(self.attack["high"] < 0.5 + self.negligible)


def read_evidence(question: Halves, summary: pa.Table) -> Evidence | None:
    """The evidence in a summary; None if no record was tested."""
    rows = index_rows(summary)
    found = first_row(rows, FOUND)
    if found is None:
        return None
    areas = [row for row in select_rows(rows, AUC) if row["high"] is not None]
    return Evidence(
        found,
        first_row(rows, MEMORISED) or found,
        max(areas, key=lambda row: row["high"], default=None),
        record_resolution(question, found["n"]),
        question.level,
        question.negligible,
        first_row(rows, TIED),
    )


def thresholds(config: Membership) -> Mapping[str, str]:
    """The thresholds in all rules; at their defaults in the rules for other questions."""
    question = config.question
    level = Halves.level if isinstance(question, Canaries) else question.level
    negligible = question.negligible if isinstance(question, Halves) else Halves.negligible
    return {
        "level": f"{100 * level:g}",
        "auc": f"{0.5 + negligible:g}",
        "nats": f"{SMALLEST:g}",
        **canary_thresholds(),
        **given_thresholds(),
    }


def asks_halves(config: Membership) -> bool:
    return isinstance(config.question, Halves)


HALVES = "halves of the records"
# Rules about canaries, and about a given model, see their evidence, the others that of halves.
RULES = Rules[Any](
    (
        *CANARY_RULES,
        *GIVEN_RULES,
        Rule(
            "memorised",
            "at least one record is memorised: the p-value of the exact test that its effect is at most {nats} nats, "
            "adjusted for the number of records, is at most {level} %",
            lambda evidence: evidence.memorised["p_value"] <= evidence.level,
            "Of 100 audits of models on which no record has an influence, at most {level} are called so; among the "
            "records that are found, at most {level} % are expected to be false.",
            scope=HALVES,
            applies=asks_halves,
        ),
        tie_rule(HALVES, asks_halves),
        Rule(
            DETECTABLE,
            "at least one record is found, if the test is of an effect of 0, the 95 % interval of every attack's area "
            f"under the curve ends below {{auc}}, and {single_item('record')}",
            lambda evidence: (
                evidence.attacks_fail and evidence.found["p_value"] <= evidence.level and evidence.resolution.finds_one
            ),
            scope=HALVES,
            applies=asks_halves,
        ),
        Rule(
            "not seen",
            "the 95 % interval of every attack's area under the curve ends below {auc}, no record is found, and "
            f"{single_item('record')}",
            lambda evidence: (
                evidence.attacks_fail and evidence.found["p_value"] > evidence.level and evidence.resolution.finds_one
            ),
            scope=HALVES,
            applies=asks_halves,
        ),
        undecided(),
    ),
    thresholds,
)
STATED = ("memorised", "not seen")  # answers after which the common steps follow
LIMITS = (
    "The audit speaks of models that were trained here, each on half of the records, and of what they say of a record "
    "itself. A record may help to recognise its near copies without being found. A record that is not found may still "
    "have an influence that so few models do not show. Two records of a pair have opposite halves, so that among few "
    "records one may be found because the training on its partner does harm."
)
NULL = "This is a null: no model was trained on the records that were asked about. "


def verdict(config: Membership, summary: pa.Table) -> Verdict:
    """The answer by RULES, with its evidence in words."""
    match config.question:
        case Canaries():
            return canary_verdict(config, summary, RULES)
        case GivenModel() as question:
            return given_verdict(config, question, summary, RULES)
        case Halves() as question:
            return halves_verdict(config, question, summary)


def halves_verdict(config: Membership, question: Halves, summary: pa.Table) -> Verdict:
    evidence = read_evidence(question, summary)
    if evidence is None:
        return Verdict("undecided", "Undecided: no record was tested.", LIMITS, ())
    rule = RULES.decide(config, evidence)
    sentence = f"{rule.answer.capitalize()}: {describe_evidence(evidence)}"
    rows = [evidence.found, *([evidence.attack] if evidence.attack is not None else [])]
    if rule.answer == NOT_JUDGED and evidence.tied is not None:
        sentence, rows = f"{rule.answer.capitalize()}: {describe_ties(evidence.tied)}.", [evidence.tied]
    elif rule.answer == "undecided" and not evidence.resolution.finds_one:
        sentence = f"{sentence} {evidence.resolution.explain()}"
    null = f" {NULL.strip()}" if question.unseen else ""
    return Verdict(rule.answer, sentence + null, LIMITS, tuple(name_of(row) for row in rows))


def describe_evidence(evidence: Evidence) -> str:
    """The records that were found and the strongest attack, in a sentence."""
    found = evidence.found
    words = (
        f"of {found['n']:,} records {found['estimate']:,.0f} are found to change what models say of them "
        f"(exact test, false discoveries at most {100 * evidence.level:g} %; that any does: "
        f"{p_in_words(found['p_value'])})"
    )
    if found["estimate"]:
        words += f", {evidence.memorised['estimate']:,.0f} of them by more than {SMALLEST:g} nats"
    if evidence.attack is None:
        return f"{words}."
    row = evidence.attack
    return (
        f"{words}; the strongest attack, {read_setting(row)['attack']}, tells members from others with an area under "
        f"the curve of {row['estimate']:.3f} (95 % interval {row['low']:.3f} to {row['high']:.3f} over {row['n']} "
        "targets; .5 where nothing is told)."
    )


def certificate(config: Membership, summary: pa.Table, verdict: Verdict) -> Certificate:
    """The answer for a reader without a machine-learning background."""
    match config.question:
        case Canaries():
            return canary_certificate(config, summary, verdict, RULES, MEANINGS[verdict.answer])
        case GivenModel():
            plain = PLAIN_STEPS[MEANINGS[verdict.answer].tone]
            steps = plain if verdict.answer in STATED else given_steps(verdict.answer)
            finding = Finding(verdict.answer, verdict.sentence, None)
            return RULES.certify(config, verdict, "Was the given model trained on these records?", (finding,), steps)
        case Halves() as question:
            return halves_certificate(config, question, summary, verdict)


def halves_certificate(config: Membership, question: Halves, summary: pa.Table, verdict: Verdict) -> Certificate:
    evidence = read_evidence(question, summary)
    line = None if evidence is None else chances(evidence.found["p_value"], evidence.level)
    proper = "unseen=false"
    steps = steps_of_null(verdict.answer, proper) if question.unseen else PLAIN_STEPS[MEANINGS[verdict.answer].tone]
    return RULES.certify(
        config,
        verdict,
        "Can it be told from a model whether a certain record was in its training data?",
        (Finding(verdict.answer, verdict.sentence, line),),
        steps,
    )


def effect(config: Membership, summary: pa.Table) -> Row | None:
    """The row of the records that are found; of a given model in it; of canaries that of the bound on epsilon."""
    metrics = {Halves: FOUND, Canaries: epsilon_rows.AT_LEAST, GivenModel: FOUND_GIVEN}
    return first_row(index_rows(summary), metrics[type(config.question)])


EFFECT = Objective("records found", "record", "lower", effect)
SYMBOLS: Mapping[str, str] = {
    "effect": "by how much a record's own log-odds rise when a model is trained on it, in nats",
    "mem": "by how much more often a record's label is told rightly by models that were trained on it",
    "AUC": "the chance that an attack scores a member higher than another record",
    "share of pairs won": "how often a record scores higher by the model trained on it than by its partner",
    **epsilon_rows.SYMBOLS,
    EXPOSURE: "by how much a canary's rank shortens the search for it among those left out",
    "nominal": "the false-positive rate at which the threshold was set, on other models",
}
