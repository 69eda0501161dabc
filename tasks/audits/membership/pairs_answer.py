"""Decision rules for pairs of models: bets on the records' differences decide after any pair."""

from __future__ import annotations

from tasks.audits.membership import plain_words as plain
from tasks.audits.membership.config import Membership, ModelPairs
from tasks.audits.membership.pairs_evidence import PairsEvidence, read_pairs_evidence
from tasks.audits.membership.thresholds import thresholds
from tasks.contract.answering import Answering, Null
from tasks.contract.conditions import ensure
from tasks.contract.looks import Look
from tasks.contract.rules import Case, Rules, undecided
from tasks.contract.ties import tie_rule

CASES: tuple[Case[PairsEvidence], ...] = (
    Case(
        "memorised",
        "the evidence of the bets, that training on some record raises its score by more than {nats} nats, reaches "
        "{evidence} after any pair in the planned order",
        lambda evidence: evidence.is_decided,
        "If nothing is memorised, at most {level} of 100 audits answer “memorised”, however many pairs they plan.",
        steps=plain.advise_removal,
        further_error="On average, at most {level} of 100 identified records are false alarms.",
    ),
    tie_rule(explain=plain.explain_ties),
    undecided(steps=plain.advise_more_pairs),
)
LIMITS = (
    "The audit describes this way of training on these data, not one particular deployed model. It can accuse but not "
    "clear: records that are not listed are not proven safe."
)
DRAWN_COINS = ensure("a coin decided for each record which model of a pair was trained on it")


def has_pairs(config: Membership) -> bool:
    return isinstance(config.question, ModelPairs)


def describe_evidence(_config: Membership, evidence: PairsEvidence) -> str:
    """Describe the largest evidence and the identified records."""
    largest = evidence.largest
    growth = f"grew {largest['estimate']:.4g}-fold"
    if not evidence.is_decided:
        growth = f"grew at most {largest['estimate']:.4g}-fold"
    sentence = (
        f"the evidence that a record is memorised {growth} within {largest['n']} pairs of models (limit "
        f"{1 / evidence.level:.4g})"
    )
    found_records = evidence.found_records
    if found_records is None:
        return sentence
    return (
        f"{sentence}; {found_records['estimate']:,.0f} of {found_records['n']:,} records can be identified as training "
        f"data (false discovery rate at most {100 * evidence.level:g} %)"
    )


def summed_error(config: Membership, look: Look) -> float | None:
    """Return the number of 100 audits that accuse at any look so far if nothing is memorised.

    Bets on one sequence of pairs have one error rate for any number of looks; runs with other seeds begin another
    sequence. None for other questions, where every look adds its error.
    """
    question = config.question
    if not isinstance(question, ModelPairs):
        return None
    return 100 * question.level * look.streams


PAIRS = Answering[PairsEvidence](
    scope="pairs of models",
    applies=has_pairs,
    asked=lambda _config, _evidence: (
        "Can someone who queries the model tell whether a record was in its training data?"
    ),
    rules=Rules(CASES, thresholds),
    read=read_pairs_evidence,
    unread=lambda _config: "no pair of models was compared.",
    limits=lambda _config, _evidence: LIMITS,
    conditions=lambda _config, _evidence: (DRAWN_COINS,),
    describe=describe_evidence,
    rows=lambda evidence: evidence.rows,
    explain=plain.explain_pairs,
    line=plain.draw_pairs,
    examined=plain.name_models,
    null=Null(
        holds=lambda config: config.question.is_null,
        remark=lambda _config: "This is a control run: no model was trained on the tested records.",
        proper="is_null=false",
        notice=plain.CONTROL_RUN,
    ),
)
