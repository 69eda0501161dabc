"""Decision rules for canaries: a lower bound on epsilon, compared with the accountant's epsilon."""

from __future__ import annotations

from tasks.audits.membership import plain_words as plain
from tasks.audits.membership.canary_evidence import CanaryEvidence, read_canary_evidence
from tasks.audits.membership.config import Canaries, Membership
from tasks.audits.membership.thresholds import thresholds
from tasks.contract.answering import Answering
from tasks.contract.epsilon_rows import BROKEN, CONFIDENCE
from tasks.contract.rules import Case, Rules, undecided
from tasks.contract.ties import tie_rule


def has_canaries(config: Membership) -> bool:
    return isinstance(config.question, Canaries)


CASES: tuple[Case[CanaryEvidence], ...] = (
    Case(
        BROKEN,
        "the lower bound on epsilon (bets or guesses together, {confidence} % confidence) is above the epsilon that "
        "the accountant states",
        lambda evidence: evidence.exceeds_promise,
        "If a training keeps its promise, at most {wrong} of 100 audits answer “promise broken”.",
        scope="canaries and private training",
        applies=lambda config: config.training.guarantee is not None,
        steps=plain.CHECK_PRIVACY,
    ),
    Case(
        "memorised",
        "the lower bound on epsilon (bets or guesses together, {confidence} % confidence) is above 0",
        lambda evidence: bool(evidence.bound["estimate"] > 0),
        "If no canary affects the models, at most {wrong} of 100 audits answer “memorised”.",
        steps=plain.advise_privacy,
    ),
    tie_rule(explain=plain.explain_ties),
    undecided(steps=plain.advise_more_canaries),
)
LIMITS = (
    "The result is a lower limit and clears no model: an attacker with other test records, or with access to the "
    "weights of the model, may learn more. It applies to a single training, and to one record more or less."
)


def _describe_bound(_config: Membership, evidence: CanaryEvidence) -> str:
    bound = evidence.bound
    spent = evidence.spent
    sentence = (
        f"the outputs for {bound['n']:,} canaries show an epsilon of at least {bound['estimate']:.3g} "
        f"({100 * CONFIDENCE:g} % confidence; 0 if nothing is revealed)"
    )
    if spent is None:
        return f"{sentence}; training was not private"
    if evidence.exceeds_promise:
        return f"{sentence}, above the {spent['estimate']:.3g} that the accountant states"
    return f"{sentence}, which is consistent with the {spent['estimate']:.3g} that the accountant states"


CANARIES = Answering[CanaryEvidence](
    scope="canaries",
    applies=has_canaries,
    asked=lambda _config, _evidence: "How much does a model reveal about which records were in its training data?",
    rules=Rules(CASES, thresholds),
    read=read_canary_evidence,
    unread=lambda _config: "no canary was scored.",
    limits=lambda _config, _evidence: LIMITS,
    describe=_describe_bound,
    rows=lambda evidence: evidence.rows,
    explain=plain.explain_certainty,
    line=plain.draw_certainty,
    examined=plain.name_models,
)
