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
    has_canaries,
)
from tasks.audits.membership.config import Membership
from tasks.audits.membership.given_answer import (
    GIVEN_RULES,
    NOT_JUDGED,
    given_steps,
    given_thresholds,
    given_verdict,
    is_given,
)
from tasks.audits.membership.measures.attacks import AUC
from tasks.audits.membership.measures.epsilon import EXPOSURE
from tasks.audits.membership.measures.given import FOUND_GIVEN
from tasks.audits.membership.measures.records import FOUND
from tasks.contract import epsilon_rows
from tasks.contract.certificate import STEPS as PLAIN_STEPS
from tasks.contract.certificate import Certificate, Finding, chances, steps_of_null
from tasks.contract.objectives import Objective
from tasks.contract.rules import Rule, Rules, undecided
from tasks.contract.summaries import Row, first_row, index_rows, name_of, p_in_words, read_setting, select_rows
from tasks.contract.verdict import ANSWERS, Answer, Meaning, Verdict
from tasks.numerics.exact_test import smallest_p_value

MEANINGS: Mapping[Answer, Meaning] = {
    **{name: ANSWERS[name] for name in ("memorised", "not seen", "undecided")},
    NOT_JUDGED: Meaning("the given model cannot be compared with those trained here, so nothing follows"),
    BROKEN: BROKEN_MEANING,
}
RESOLUTION = 100  # a single record's smallest p-value must be so many times smaller than the level


@dataclass(frozen=True)
class Evidence:
    """What the answer rests on.

    `found` is the summary row of how many records are found, whose p-value is that of any of them having an influence.
    `attack` is the row of the attack whose area under the curve may be largest. `smallest` is the smallest p-value that
    a record can have.
    """

    found: Row
    attack: Row | None
    smallest: float
    level: float
    negligible: float

    @property
    def is_fine_enough(self) -> bool:
        return RESOLUTION * self.smallest <= self.level


def read_evidence(config: Membership, summary: pa.Table) -> Evidence | None:
    """The evidence in a summary; None where no record was tested."""
    rows = index_rows(summary)
    found = first_row(rows, FOUND)
    if found is None:
        return None
    areas = [row for row in select_rows(rows, AUC) if row["high"] is not None]
    return Evidence(
        found,
        max(areas, key=lambda row: row["high"], default=None),
        smallest_p_value(config.models, config.draws),
        config.level,
        config.negligible,
    )


def thresholds(config: Membership) -> Mapping[str, str]:
    return {
        "level": f"{100 * config.level:g}",
        "auc": f"{0.5 + config.negligible:g}",
        "smallest": f"{config.level / RESOLUTION:g}",
        **canary_thresholds(),
        **given_thresholds(),
    }


def asks_halves(config: Membership) -> bool:
    return not has_canaries(config) and not is_given(config)


HALVES = "halves of the records"
# Rules about canaries, and about a given model, see their evidence, the others that of halves.
RULES = Rules[Any](
    (
        *CANARY_RULES,
        *GIVEN_RULES,
        Rule(
            "memorised",
            "at least one record is found: its p-value in the exact test, adjusted for the number of records, is at "
            "most {level} %",
            lambda evidence: evidence.found["p_value"] <= evidence.level,
            "Of 100 audits of models on which no record has an influence, at most {level} are called so; among the "
            "records that are found, at most {level} % are expected to be false.",
            scope=HALVES,
            applies=asks_halves,
        ),
        Rule(
            "not seen",
            "the 95 % interval of every attack's area under the curve ends below {auc}, and there are enough models "
            "for a record's p-value to be {smallest} or less",
            lambda evidence: (
                evidence.is_fine_enough
                and evidence.attack is not None
                and evidence.attack["high"] < 0.5 + evidence.negligible
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
    "have an influence that so few models do not show."
)
NULL = "This is a null: no model was trained on the records that were asked about. "


def verdict(config: Membership, summary: pa.Table) -> Verdict:
    """The answer by RULES, with its evidence in words."""
    if has_canaries(config):
        return canary_verdict(config, summary, RULES)
    if is_given(config):
        return given_verdict(config, summary, RULES)
    evidence = read_evidence(config, summary)
    if evidence is None:
        return Verdict("undecided", "Undecided: no record was tested.", LIMITS, ())
    rule = RULES.decide(config, evidence)
    sentence = f"{rule.answer.capitalize()}: {describe_evidence(evidence)}"
    rows = [evidence.found, *([evidence.attack] if evidence.attack is not None else [])]
    null = f" {NULL.strip()}" if config.unseen else ""
    return Verdict(rule.answer, sentence + null, LIMITS, tuple(name_of(row) for row in rows))


def describe_evidence(evidence: Evidence) -> str:
    """The records that were found and the strongest attack, in a sentence."""
    found = evidence.found
    words = (
        f"of {found['n']:,} records {found['estimate']:,.0f} are found to change what models say of them "
        f"(exact test, false discoveries at most {100 * evidence.level:g} %; that any does: "
        f"{p_in_words(found['p_value'])})"
    )
    if evidence.attack is None:
        return f"{words}."
    row = evidence.attack
    return (
        f"{words}; the strongest attack, {read_setting(row)['attack']}, tells members from others with an area under "
        f"the curve of {row['estimate']:.3f} (95 % interval {row['low']:.3f} to {row['high']:.3f} over {row['n']} "
        "targets; .5 where nothing is told)."
    )


def certificate(config: Membership, summary: pa.Table, verdict: Verdict) -> Certificate:
    """The answer for somebody who knows no machine learning."""
    if has_canaries(config):
        return canary_certificate(config, summary, verdict, RULES, MEANINGS[verdict.answer])
    if is_given(config):
        steps = PLAIN_STEPS[MEANINGS[verdict.answer].tone] if verdict.answer in STATED else given_steps(verdict.answer)
        finding = Finding(verdict.answer, verdict.sentence, None)
        return RULES.certify(config, verdict, "Was the given model trained on these records?", (finding,), steps)
    evidence = read_evidence(config, summary)
    line = None if evidence is None else chances(evidence.found["p_value"], evidence.level)
    proper = "unseen=false"
    steps = steps_of_null(verdict.answer, proper) if config.unseen else PLAIN_STEPS[MEANINGS[verdict.answer].tone]
    return RULES.certify(
        config,
        verdict,
        "Can it be told from a model whether a certain record was in its training data?",
        (Finding(verdict.answer, verdict.sentence, line),),
        steps,
    )


def effect(config: Membership, summary: pa.Table) -> Row | None:
    """The row of the records that are found; of a given model in it; of canaries that of the bound on epsilon."""
    metric = epsilon_rows.AT_LEAST if has_canaries(config) else FOUND_GIVEN if is_given(config) else FOUND
    return first_row(index_rows(summary), metric)


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
