"""The answer where canaries are in or out by a coin: epsilon from below, beside what the accountant says was spent."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tasks.audits.membership.config import Canaries, Membership
from tasks.audits.membership.thresholds import thresholds
from tasks.contract.answering import Answering
from tasks.contract.certificate import STEPS, line_of
from tasks.contract.epsilon_rows import AT_LEAST, CONFIDENCE, SPENT
from tasks.contract.rules import Case, Rules, undecided
from tasks.contract.summaries import Name, Row, first_row, index_rows, name_of
from tasks.contract.ties import most_tied, tie_rule
from tasks.contract.verdict import Answer, Meaning

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


CASES: tuple[Case[CanaryEvidence], ...] = (
    Case(
        BROKEN,
        "the lower bound on epsilon, by bets or guesses together at a confidence of {confidence} %, lies above the "
        "epsilon that the accountant says was spent",
        lambda evidence: evidence.exceeds_promise,
        "Of 100 audits of trainings that are as private as promised, at most {wrong} are called so.",
        scope="canaries and private training",
        applies=lambda config: config.training.guarantee is not None,
        steps=STEPS["accused"],
    ),
    Case(
        "memorised",
        "the lower bound on epsilon, by bets or guesses together at a confidence of {confidence} %, lies above 0",
        lambda evidence: bool(evidence.bound["estimate"] > 0),
        "Of 100 audits of trainings on which no canary has an influence, at most {wrong} are called so.",
        steps=STEPS["accused"],
    ),
    tie_rule(),
    undecided(),
)
LIMITS = (
    "A lower bound says how much this attack shows, and clears nobody: an attack that knows the weights, or other "
    "canaries, may show more. Epsilon is about each training by itself and one record more or less."
)


def read(_config: Membership, summary: pa.Table) -> CanaryEvidence | None:
    """The evidence in a summary; None where no canary was asked about."""
    rows = index_rows(summary)
    bound = first_row(rows, AT_LEAST)  # the bets' comes first
    return None if bound is None else CanaryEvidence(bound, first_row(rows, SPENT), most_tied(rows))


def rows_of(evidence: CanaryEvidence) -> tuple[Name, ...]:
    return tuple(name_of(row) for row in (evidence.bound, evidence.spent) if row is not None)


def _describe_bound(_config: Membership, evidence: CanaryEvidence) -> str:
    """The bound and the accountant's epsilon in a sentence."""
    bound, spent = evidence.bound, evidence.spent
    words = (
        f"what the training says of {bound['n']:,} canaries shows that its epsilon is at least "
        f"{bound['estimate']:.3g} (confidence {100 * CONFIDENCE:g} %; 0 where nothing is told)"
    )
    if spent is None:
        return f"{words}; it was not private"
    if evidence.exceeds_promise:
        return f"{words}, which is more than the {spent['estimate']:.3g} that its accountant says: a broken promise"
    return f"{words}, which its accountant's {spent['estimate']:.3g} allows"


CANARIES = Answering[CanaryEvidence](
    scope="canaries",
    applies=has_canaries,
    asked=lambda _config, _evidence: "How much does a model reveal at least of which records it was trained on?",
    rules=Rules(CASES, thresholds),
    read=read,
    unread=lambda _config: "no canary was asked about.",
    limits=lambda _config, _evidence: LIMITS,
    describe=_describe_bound,
    rows=rows_of,
    line=lambda _config, evidence: line_of(evidence.bound),
)
