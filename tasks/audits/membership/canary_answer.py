"""The answer where canaries are in or out by a coin: epsilon from below, beside what the accountant says was spent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from tasks.audits.membership.config import Canaries, Membership
from tasks.contract.certificate import STEPS as PLAIN_STEPS
from tasks.contract.certificate import Certificate, Finding, line_of
from tasks.contract.epsilon_rows import AT_LEAST, CONFIDENCE, SPENT
from tasks.contract.rules import Rule, Rules
from tasks.contract.summaries import Row, first_row, index_rows, name_of
from tasks.contract.ties import NOT_JUDGED, describe_ties, most_tied, tie_rule
from tasks.contract.verdict import Answer, Meaning, Verdict

BROKEN: Answer = "promise broken"
BROKEN_MEANING = Meaning("the training is less private than its accountant says", "accused")


@dataclass(frozen=True)
class CanaryEvidence:
    """The summary rows of the bound by bets, of the epsilon that was spent, and of equal scores.

    `spent` is None if training was not private, `tied` if it is not known how many scores are equal.
    """

    bound: Row
    spent: Row | None
    tied: Row | None = None

    @property
    def exceeds_promise(self) -> bool:
        return self.spent is not None and bool(self.bound["estimate"] > self.spent["estimate"])


def has_canaries(config: Membership) -> bool:
    return isinstance(config.question, Canaries)


def has_private_canaries(config: Membership) -> bool:
    return has_canaries(config) and config.training.privacy is not None


CANARY_RULES: tuple[Rule[CanaryEvidence], ...] = (
    Rule(
        BROKEN,
        "the lower bound on epsilon, by bets or guesses together at a confidence of {confidence} %, lies above the "
        "epsilon that the accountant says was spent",
        lambda evidence: evidence.exceeds_promise,
        "Of 100 audits of trainings that are as private as promised, at most {wrong} are called so.",
        scope="canaries and private training",
        applies=has_private_canaries,
    ),
    Rule(
        "memorised",
        "the lower bound on epsilon, by bets or guesses together at a confidence of {confidence} %, lies above 0",
        lambda evidence: bool(evidence.bound["estimate"] > 0),
        "Of 100 audits of trainings on which no canary has an influence, at most {wrong} are called so.",
        scope="canaries",
        applies=has_canaries,
    ),
    tie_rule("canaries", has_canaries),
)
CANARY_LIMITS = (
    "A lower bound says how much this attack shows, and clears nobody: an attack that knows the weights, or other "
    "canaries, may show more. Epsilon is about each training by itself and one record more or less."
)


def canary_thresholds() -> Mapping[str, str]:
    return {"confidence": f"{100 * CONFIDENCE:g}", "wrong": f"{100 * (1 - CONFIDENCE):.0f}"}


def read_canary_evidence(summary: pa.Table) -> CanaryEvidence | None:
    """The evidence in a summary; None where no canary was asked about."""
    rows = index_rows(summary)
    bound = first_row(rows, AT_LEAST)  # the bets' comes first
    return None if bound is None else CanaryEvidence(bound, first_row(rows, SPENT), most_tied(rows))


def canary_verdict(config: Membership, summary: pa.Table, rules: Rules[CanaryEvidence]) -> Verdict:
    """The answer by the rules, with its evidence in words."""
    evidence = read_canary_evidence(summary)
    if evidence is None:
        return Verdict("undecided", "Undecided: no canary was asked about.", CANARY_LIMITS, ())
    answer = rules.decide(config, evidence).answer
    rows = [evidence.bound, *([evidence.spent] if evidence.spent is not None else [])]
    sentence = f"{answer.capitalize()}: {describe_bound(evidence)}"
    if answer == NOT_JUDGED and evidence.tied is not None:
        rows = [evidence.tied]
        sentence = f"{answer.capitalize()}: {describe_ties(evidence.tied)}."
    return Verdict(answer, sentence, CANARY_LIMITS, tuple(name_of(row) for row in rows))


def describe_bound(evidence: CanaryEvidence) -> str:
    """The bound and the accountant's epsilon in a sentence."""
    bound, spent = evidence.bound, evidence.spent
    words = (
        f"what the training says of {bound['n']:,} canaries shows that its epsilon is at least "
        f"{bound['estimate']:.3g} (confidence {100 * CONFIDENCE:g} %; 0 where nothing is told)"
    )
    if spent is None:
        return f"{words}; it was not private."
    if evidence.exceeds_promise:
        return f"{words}, which is more than the {spent['estimate']:.3g} that its accountant says: a broken promise."
    return f"{words}, which its accountant's {spent['estimate']:.3g} allows."


def canary_certificate(
    config: Membership, summary: pa.Table, verdict: Verdict, rules: Rules[CanaryEvidence], meaning: Meaning
) -> Certificate:
    """The answer for somebody who knows no machine learning."""
    evidence = read_canary_evidence(summary)
    finding = Finding(verdict.answer, verdict.sentence, line_of(evidence.bound if evidence else None))
    asked = "How much does a model reveal at least of which records it was trained on?"
    return rules.certify(config, verdict, asked, (finding,), PLAIN_STEPS[meaning.tone])
