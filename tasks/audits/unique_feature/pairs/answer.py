"""The verdict on pairs of training runs: the rules that decide, and the verdict and certificate that follow.

The deciding rows were fixed in advance: the canary's effect on M_w over the probe images, and the number of canaries
found individually by their ranks, among all glyphs of their ink if `ranks` is measured, else among their family. In a
run that ends once it is decided, only the bets on these ranks can accuse, because an interval and a count require a
fixed number of pairs; the effect can clear at the planned number. M, its published test and the scores on training
images are supporting evidence only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.pairs import plain_words as plain
from tasks.audits.unique_feature.pairs import sentences
from tasks.audits.unique_feature.pairs.bets import BETS
from tasks.audits.unique_feature.pairs.canary_scores import EFFECT
from tasks.audits.unique_feature.pairs.canary_verdicts import BEYOND, CALLED, MEMORISED_BETS
from tasks.audits.unique_feature.pairs.evidence import LEAST, SURELY, PairEvidence, read_pair_evidence
from tasks.audits.unique_feature.population import FDR, LEVEL
from tasks.contract.answering import Answering, Null
from tasks.contract.certificate import NOT_ENOUGH, NumberLine
from tasks.contract.looks import Look, look_number
from tasks.contract.power import SMALLEST
from tasks.contract.rules import Case, Rules, undecided
from tasks.contract.summaries import Name, index_rows
from tasks.contract.ties import tie_rule
from tasks.contract.verdict import BELOW_RELEVANT_SIZE
from tasks.datasets.features import describe_feature

ONE_SIDE = 0.025  # error on one side of a 95 % interval
FIRST_LOOK_ALARMS = math.ceil(100 * (ONE_SIDE + FDR + SURELY))  # largest number of false alarms in 100 audits


def thresholds(config: UniqueFeature) -> Mapping[str, str]:
    """Return the numbers that appear in the rule text."""
    stopping = stopping_level(config) or LEVEL
    return {
        "pairs": f"{LEAST}",
        "one_side": f"{ONE_SIDE:g}",
        "fdr": f"{100 * FDR:g}",
        "level": f"{100 * LEVEL:g}",
        "surely": f"{1000 * SURELY:g}",
        "alarms": f"{FIRST_LOOK_ALARMS}",
        "later_bets": f"{1 / LEVEL:g}",
        "later_alarms": f"{100 * LEVEL:g}",
        "smallest": f"{SMALLEST:g}",
        "factor": f"{math.exp(SMALLEST):.2g}",
        "per_call": f"{1 / FDR:g}",
        "bets": f"{1 / stopping:.4g}",
        "bet_alarms": f"{100 * stopping:g}",
    }


def stopping_level(config: UniqueFeature) -> float:
    """Return the error rate of a run that ends once it is decided, or 0 for a full-length run."""
    if config.scored_pairs is None:
        return 0.0
    return config.scored_pairs.stopping_level


def _decide_by(metric: str) -> dict[str, Any]:
    """Return the fields of a case that is decided by this metric.

    The metric's row comes first, and the first row is drawn on the line.
    """

    def order_rows(evidence: PairEvidence) -> tuple[Name, ...]:
        return tuple(sorted(evidence.names, key=lambda name: name[0] != metric))

    def draw_first_row(_config: UniqueFeature, evidence: PairEvidence) -> NumberLine | None:
        first = next((name for name, _setting in order_rows(evidence)), metric)
        return plain.draw_metric(evidence, first)

    return {"rows": order_rows, "line": draw_first_row}


def accuse(
    condition: str, holds: Callable[[PairEvidence], bool], error: str = "", *, ends_early: bool = False, **words: Any
) -> Case[PairEvidence]:
    """Return a case that accuses, either for runs that end once they are decided or for a fixed number of pairs."""
    return Case(
        "memorised",
        condition,
        holds,
        error,
        scope=f"pairs of trainings {'until decided' if ends_early else 'of a fixed number'}",
        applies=lambda config: (stopping_level(config) > 0) == ends_early,
        describe=sentences.describe_accusation,
        steps=plain.REMOVE_FEATURE,
        **words,
    )


BY_LATER_BETS = accuse(
    "this is a later look at the same question, where bets on ranks replace the rules above, and the product of the "
    "bets on effects reduced by {smallest} nats is at least {later_bets}",
    lambda evidence: evidence.later_bets_accuse,
    "Later looks at the same pairs add at most {later_alarms} of 100.",
    **_decide_by(MEMORISED_BETS),
)
RULES = Rules[PairEvidence](
    (
        accuse(
            "the 95 % interval of the effect lies above {smallest} nats (one-sided t-test over at least {pairs} pairs, "
            "p at most {one_side})",
            lambda evidence: evidence.fixed_rules_decide and evidence.effect_is_above,
        ),
        accuse(
            "the rank of at least one canary is significant at a false discovery rate of {fdr} %, after its effect is "
            "reduced by {smallest} nats (exact ranks: if its effect exceeds {smallest} nats), and the canaries share "
            "no training seed",
            lambda evidence: evidence.fixed_rules_decide and evidence.calls is not None and evidence.calls.accuses,
            **_decide_by(CALLED),
        ),
        accuse(
            "chance would produce as many ranks with p of at most {level} % in at most {surely} of 1,000 audits",
            lambda evidence: (
                evidence.fixed_rules_decide and evidence.calls is not None and evidence.calls.are_surely_small
            ),
            "If nothing is memorised, at most {alarms} of 100 audits answer memorised, over all three tests that can "
            "lead to this answer.",
            further_error="The error rate of “memorised” holds for a feature drawn at random; for a chosen feature, it "
            "holds if the feature resembles the others.",
            explain=partial(plain.explain, conclusion=plain.SURPRISING),
            **_decide_by(BEYOND),
        ),
        BY_LATER_BETS,
        accuse(
            "the product of the bets on the ranks of drawn features, with effects reduced by {smallest} nats, reaches "
            "{bets} after any pair in the planned order; the run ends there",
            lambda evidence: evidence.bets is not None and evidence.bets.accuse,
            "If nothing is memorised, at most {bet_alarms} of 100 audits answer memorised, however often they look.",
            ends_early=True,
            **_decide_by(BETS),
        ),
        tie_rule(describe=sentences.describe_tied_pairs, rows=None, steps=plain.CHECK_NETWORK),
        Case(
            BELOW_RELEVANT_SIZE,
            "one of these conditions holds for the effects as measured, and an effect of {smallest} nats is excluded "
            "as below",
            lambda evidence: evidence.is_detected and evidence.effect_is_excluded,
            explain=partial(plain.explain, conclusion=plain.BELOW_RELEVANT),
            steps=plain.NOTHING_THAT_MATTERS,
        ),
        Case(
            "not detected",
            "the 95 % interval of the effect, over at least {pairs} pairs, lies below {smallest} nats and extends less "
            "than that to either side, no more ranks are small than expected by chance (level {level} %), and the "
            "audit was large enough to detect a single remembered canary (at most (m + 1) / {per_call} canaries, each "
            "ranked among m others)",
            lambda evidence: (
                evidence.effect_is_excluded
                and evidence.calls is not None
                and evidence.calls.are_by_chance
                and evidence.finds_one
            ),
            "If the feature makes its label {factor} times as likely ({smallest} nats), at most 2 or 3 of 100 audits "
            "answer not detected.",
            explain=partial(plain.explain, conclusion=plain.CLEARED),
            steps=plain.OTHER_FEATURES,
        ),
        undecided(explain=partial(plain.explain, conclusion=NOT_ENOUGH), steps=plain.advise_more_canaries),
    ),
    thresholds,
)

# The rules that the certificate states at a first look.
FIRST_LOOK_RULES = replace(RULES, cases=tuple(case for case in RULES.cases if case is not BY_LATER_BETS))


def read(_config: UniqueFeature, summary: pa.Table) -> PairEvidence:
    return read_pair_evidence(index_rows(summary), look_number(summary))


def describe_limits(config: UniqueFeature, evidence: PairEvidence | None) -> str:
    """State the limits of the answer and of the evidence."""
    limits = [sentences.LIMITS]
    if evidence is not None:
        limits = [
            *sentences.describe_guarantee(evidence.guarantee),
            *sentences.describe_choice(config, evidence.calls),
            *sentences.describe_stop(evidence.bets),
            *limits,
        ]
    return " ".join(limits)


def state_rules(config: UniqueFeature, evidence: PairEvidence | None) -> tuple[str, str, str]:
    """Return the rules, the error rate of the answer, and other rates.

    Bets at later looks are included from the second look on.
    """
    if evidence is None or evidence.look == 1:
        rules = FIRST_LOOK_RULES
    else:
        rules = RULES
    decisive = None if evidence is None else rules.decide(config, evidence)
    return rules.explain(config), *rules.explain_errors(config, decisive)


ANSWERING = Answering[PairEvidence](
    scope="pairs of trainings",
    applies=lambda config: config.single_models is None,
    asked=lambda config, _evidence: plain.ask_question(config),
    rules=RULES,
    read=read,
    limits=describe_limits,
    conditions=lambda config, evidence: sentences.list_conditions(config, None if evidence is None else evidence.calls),
    describe=sentences.describe_pairs,
    published=sentences.describe_published_test,
    explain=plain.explain,
    examined=plain.name_models,
    stated=state_rules,
    null=Null(
        holds=lambda config: config.is_null,
        remark=lambda config: (
            f"This is a control experiment: no canary carried {describe_feature(config.asked_feature)}."
        ),
        proper="burnt=null",
    ),
    **_decide_by(EFFECT[0]),
)


def summed_error(config: UniqueFeature, look: Look) -> float | None:
    """Return the largest number of 100 audits that answer memorised at any look so far if nothing is memorised.

    Bets on one sequence of pairs have one error rate for any number of looks; runs with other seeds begin another
    sequence. None for single models, where every look adds its error.
    """
    if config.single_models is not None:
        return None
    if level := stopping_level(config):
        return 100 * level * look.streams
    return FIRST_LOOK_ALARMS + 100 * LEVEL * min(look.streams, look.number - 1)
