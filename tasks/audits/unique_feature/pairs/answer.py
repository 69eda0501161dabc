"""The answer of pairs of trainings: the rules that decide, and the verdict in words.

It rests on rows that were chosen beforehand: the canary's effect on M_w over the probe images, and the canaries that
are called one by one by their ranks, among all glyphs of their ink where `ranks` is measured, else among the members of
their family. In a run that ends once it is decided the bets on these ranks alone accuse, since an interval and a count
are for a number of pairs that was fixed beforehand; the effect clears at the planned number. M, its published test and
the training images are supporting evidence and do not enter the decision.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.pairs.bets import BETS
from tasks.audits.unique_feature.pairs.canary_scores import EFFECT
from tasks.audits.unique_feature.pairs.canary_verdicts import BEYOND, CALLED, MEMORISED_BETS
from tasks.audits.unique_feature.pairs.evidence import LEAST, SURELY, Bets, Calls, Guarantee, PairEvidence
from tasks.audits.unique_feature.population import FDR, LEVEL
from tasks.contract.looks import Look
from tasks.contract.power import SMALLEST
from tasks.contract.rules import Rule
from tasks.contract.ties import CONDITION, NOT_JUDGED, are_tied, describe_ties
from tasks.contract.verdict import DETECTABLE, Answer, Verdict
from tasks.datasets.features import describe_feature

ONE_SIDE = 0.025  # of a 95 % interval


def pair_rule(
    answer: Answer, when: str, holds: Callable[[PairEvidence], bool], error: str = "", stops: bool | None = None
) -> Rule[PairEvidence]:
    """A rule of pairs; with `stops` only of runs that end once they are decided, or of those that do not."""

    def applies(config: Any) -> bool:
        return config.single_models is None and stops in (None, stopping_level(config) > 0)

    ends = {None: "", True: " until decided", False: " of a fixed number"}[stops]
    return Rule(answer, when, holds, error, scope=f"pairs of trainings{ends}", applies=applies)


BY_EFFECT = pair_rule(
    "memorised",
    "the 95 % interval of the effect lies above {smallest} nats (one side of a t-test over at least {pairs} pairs, p "
    "at most {one_side})",
    lambda evidence: evidence.fixed_rules_decide and evidence.effect_is_above,
    stops=False,
)
BY_CALLS = pair_rule(
    "memorised",
    "a canary is called by its rank, its effect reduced by {smallest} nats (of exact ranks: above that), at a "
    "false discovery rate of {fdr} % over canaries that share no training seed",
    lambda evidence: evidence.fixed_rules_decide and evidence.calls is not None and evidence.calls.accuses,
    stops=False,
)
BY_SMALL_RANKS = pair_rule(
    "memorised",
    "the number of such ranks with p of at most {level} % would occur by chance in at most {surely} of 1,000 audits",
    lambda evidence: evidence.fixed_rules_decide and evidence.calls is not None and evidence.calls.are_surely_small,
    "Of 100 audits of a procedure that keeps nothing, at most {alarms} say memorised by any of these three conditions, "
    "if the feature was drawn at random; for a feature that somebody chose, this holds to the extent that it resembles "
    "the others.",
    stops=False,
)
BY_LATER_BETS = pair_rule(
    "memorised",
    "this is a later look with ranks to bet on, at which the rules above do not count, and the product of the bets on "
    "effects reduced by {smallest} nats is at least {later_bets}",
    lambda evidence: evidence.later_bets_accuse,
    "Later looks at the same pairs add at most {later_alarms}.",
    stops=False,
)
BY_BETS = pair_rule(
    "memorised",
    "the product of the bets on the ranks of drawn features, whose effects are reduced by {smallest} nats, after any "
    "pair in the order of the plan, is at least {bets}; the run ends there",
    lambda evidence: evidence.bets is not None and evidence.bets.accuse,
    "Of 100 audits of a procedure that keeps nothing, at most {bet_alarms} say memorised, however often they looked.",
    stops=True,
)
BY_TIES = pair_rule(NOT_JUDGED, CONDITION, lambda evidence: are_tied(evidence.tied))
BY_NEGLIGIBLE = pair_rule(
    DETECTABLE,
    "one of these holds unreduced, and {smallest} nats are excluded as below",
    lambda evidence: evidence.is_detected and evidence.effect_is_excluded,
)
RULES = (
    BY_EFFECT,
    BY_CALLS,
    BY_SMALL_RANKS,
    BY_LATER_BETS,
    BY_BETS,
    BY_TIES,
    BY_NEGLIGIBLE,
    pair_rule(
        "not seen",
        "the interval of the effect, over at least {pairs} pairs, lies below {smallest} nats and reaches less to "
        "either side, no more ranks are small than chance brings at {level} %, and "
        "one remembered canary could have been called (of at most (m + 1) / {per_call} canaries, each ranked among m "
        "others)",
        lambda evidence: (
            evidence.effect_is_excluded
            and evidence.calls is not None
            and evidence.calls.are_by_chance
            and evidence.finds_one
        ),
        "Of 100 audits of a procedure with an effect of {smallest} nats, at most 2 or 3 say not seen.",
    ),
)
# The metric of the row that a rule decides by, where that is not the effect.
DECIDING = ((BY_CALLS, CALLED), (BY_SMALL_RANKS, BEYOND), (BY_LATER_BETS, MEMORISED_BETS), (BY_BETS, BETS))
FIRST_LOOK_ALARMS = math.ceil(100 * (ONE_SIDE + FDR + SURELY))  # of 100 audits, at most
THRESHOLDS: Mapping[str, str] = {
    "pairs": f"{LEAST}",
    "one_side": f"{ONE_SIDE:g}",
    "fdr": f"{100 * FDR:g}",
    "level": f"{100 * LEVEL:g}",
    "surely": f"{1000 * SURELY:g}",
    "alarms": f"{FIRST_LOOK_ALARMS}",
    "later_bets": f"{1 / LEVEL:g}",
    "later_alarms": f"{100 * LEVEL:g}",
    "smallest": f"{SMALLEST:g}",
    "per_call": f"{1 / FDR:g}",
}


def summed_error(config: UniqueFeature, look: Look) -> float | None:
    """Of 100 audits of a procedure that keeps nothing, how many say memorised at one of the looks so far, at most.

    Bets on one sequence of pairs err at one level however often somebody looks; other seeds begin another sequence.
    None for models that are asked alone, where every look adds its error.
    """
    if config.single_models is not None:
        return None
    if level := stopping_level(config):
        return 100 * level * look.streams
    return FIRST_LOOK_ALARMS + 100 * LEVEL * min(look.streams, look.number - 1)


def stopping_level(config: UniqueFeature) -> float:
    """The error rate of a run that ends once it is decided; 0 for a run that goes to its end."""
    return 0.0 if config.scored_pairs is None else config.scored_pairs.stopping_level


def bet_thresholds(config: UniqueFeature) -> Mapping[str, str]:
    level = stopping_level(config) or LEVEL
    return {"bets": f"{1 / level:.4g}", "bet_alarms": f"{100 * level:g}"}


LIMITS = (
    "The effect compares the feature with random patches: it says that the image is remembered, and the ranks that it "
    "is this feature. This speaks of the training procedure, data and feature that were audited, at this number of "
    "trainings; not of one given model. Not seen is not safe: another feature, place or score may show more."
)
STOPPED_LIMITS = (
    "The run ended when it was decided, so the intervals and shares describe the pairs that were trained and prove "
    "nothing beyond the bets."
)
CHOSEN_LIMITS = (
    "The feature was chosen, not drawn from its family, so its ranks are as good as its likeness to the others: of "
    "canaries that carried another glyph the letter A was called in 5 of 30 at 5 %."
)
CHOSEN_GLYPH_LIMITS = (
    "The feature was chosen, not drawn from all glyphs, so its ranks are as good as its likeness to them: of canaries "
    "that carried drawn glyphs the 26 letters were called in 5.9 % of 1,664 questions at 5 %, and in 0.2 % at 0.1 %."
)


def pair_verdict(config: UniqueFeature, rule: Rule[PairEvidence], evidence: PairEvidence) -> Verdict:
    """The answer of this rule, with its evidence in words."""
    effect, ranks = describe_effect(config, evidence), describe_calls(evidence.calls)
    if rule is BY_TIES and evidence.tied is not None:
        words = describe_ties(evidence.tied)
    elif evidence.effect is None and rule.answer == "memorised":
        words = ranks
    elif evidence.effect is None and evidence.calls is None:
        words = effect
    else:
        words = f"{effect}. {ranks}"
    later_bets = evidence.deciding_bets or evidence.total_bets
    if evidence.look > 1 and evidence.bets is None and later_bets is not None:
        total = later_bets["estimate"]
        words = f"bets on all ranks grew {total:.4g}-fold, {1 / LEVEL:g} accuse. {words[0].upper()}{words[1:]}"
    if evidence.bets is not None:
        words = f"{describe_bets(config, evidence.bets)}. {words[0].upper()}{words[1:]}"
    asked = describe_feature(config.asked_feature)
    null = f" The canaries carried another feature than {asked}: this is a null." if config.is_null else ""
    return Verdict(
        rule.answer,
        f"{rule.answer.capitalize()}: {words}.{null}",
        " ".join(
            [
                *describe_guarantee(evidence.guarantee),
                *describe_choice(config, evidence.calls),
                *([STOPPED_LIMITS] if rule is BY_BETS else []),
                LIMITS,
            ]
        ),
        deciding_names(rule, evidence),
        describe_published_test(evidence),
    )


def deciding_names(rule: Rule[PairEvidence], evidence: PairEvidence) -> tuple[tuple[str, str], ...]:
    """The rows that the answer rests on, the one that decided first."""
    first = next((metric for each, metric in DECIDING if each is rule), EFFECT[0])
    return tuple(sorted(evidence.names, key=lambda name: name[0] != first))


def describe_bets(config: UniqueFeature, bets: Bets) -> str:
    """What the bets say, and after how many pairs of the planned."""
    needed = f"{1 / bets.level:.4g} = 1 / {bets.level:g}"
    reduced = f"whose effects are reduced by {SMALLEST:g} nats"
    so_far = f"{bets.n} of at most {count_canaries(config)} pairs of trainings"
    if bets.accuse:
        return (
            f"bets on the ranks of drawn features, {reduced}, grew {bets.largest:.4g}-fold over {so_far}, at least "
            f"{needed}, which decided it"
        )
    told = f"bets on the ranks of drawn features, {reduced}, grew at most {bets.largest:.4g}-fold over {so_far}, less "
    any_size = f"; not reduced, {bets.detected:.4g}-fold" if bets.detect else ""
    return f"{told}than {needed}{any_size}"


def count_canaries(config: UniqueFeature) -> int:
    return 0 if config.pairs is None else config.pairs.canaries


def describe_effect(config: UniqueFeature, evidence: PairEvidence) -> str:
    """The effect of the image, and what it says by itself."""
    effect = evidence.effect
    if effect is None:
        return "no pair of trainings has been scored"
    n, low, high = effect["n"], effect["low"], effect["high"]
    asked = describe_feature(config.asked_feature)
    carried = f"a feature drawn from the family of {asked}" if config.draws_features else asked
    shown = "that feature" if config.draws_features else asked
    moved = (
        f"a single training image with {'another one' if config.is_null else carried} changes log P(its label | "
        f"{shown}) - log P(its label | a random patch), on images the networks never saw, by "
        f"{effect['estimate']:.4g} nats"
    )
    if not evidence.has_interval:
        alone = "one training seed" if effect["unit"] == "training seed" else "one pair of trainings"
        return f"{moved}; {alone} has no interval: train at least {LEAST} canaries, each with its own seed"
    factor = f"a factor of {math.exp(effect['estimate']):.3g} in probability"
    over = f"95 % interval {low:.4g} to {high:.4g} over {describe_sample(effect)}"
    told = f"{moved} ({over}; {factor}; 0 where nothing is memorised)"
    if evidence.bets is not None and evidence.bets.accuse:
        return told
    if n < LEAST:
        return f"{told}; so few decide nothing: train at least {LEAST} canaries"
    if evidence.effect_is_above_zero and low <= SMALLEST < high:
        return f"{told}; it may be less than {SMALLEST:g} nats, the smallest effect that matters: train more canaries"
    if evidence.effect_is_above:
        return told
    if high >= SMALLEST:
        return f"{told}; as much as {high:.4g} nats cannot be excluded: train more canaries"
    if not evidence.effect_is_excluded:
        return f"{told}; an effect of {SMALLEST:g} nats might not have shown: train more canaries"
    return f"{told}; more than {high:.4g} nats is unlikely"


def describe_calls(calls: Calls | None) -> str:
    """How many canaries are called by their ranks, and what these say by themselves."""
    if calls is None:
        return (
            "No canary is ranked, as its feature has too few others of its kind, so that one remembered canary among "
            "many would not show: lower family.count, or choose another family"
        )
    n, population = calls.n, calls.population
    ranked = f"rank among {population.describe()}"
    if not population.are_all_glyphs:
        ranked = f"paired rank among {population.size - 1} others"
    who = f"{calls.called} of {n} {unit_name('canary', n)} {'is' if calls.called == 1 else 'are'}"
    size = ""
    if calls.called and calls.memorised is not None:
        size = f", {calls.memorised} of them by more than {SMALLEST:g} nats"
    words = f"{who} found one by one{size} ({ranked}, false discovery rate {100 * FDR:.0f} %)"
    beyond = calls.beyond
    if beyond is not None and beyond["estimate"] is not None:
        words += f"; {100 * beyond['estimate']:.0f} % of all are found beyond chance at p of {calls.level:.2g}"
        if beyond["low"] is not None:
            words += f" (95 % interval {100 * beyond['low']:.0f} % to {100 * beyond['high']:.0f} %)"
    if calls.share_seeds:
        return f"{words}; canaries share training seeds, so that their ranks decide nothing"
    if calls.called:
        return words
    fewest = population.fewest_called(n)
    if fewest > n:
        words += "; none could have been called"
    elif fewest > 1:
        words += f"; fewer than {fewest} could not have been called"
    if calls.beyond_p is not None and calls.beyond_p <= LEVEL:
        advice = "" if calls.are_surely_small else ": train more canaries"
        return f"{words}; chance brings so many small ranks in {calls.beyond_p:.2g} of runs{advice}"
    if not calls.resolution.finds_one and not population.are_all_glyphs:
        words += f": rank each among more others (family.count={math.ceil(n / FDR - 1e-9) - 1})"
    return words


def describe_choice(config: UniqueFeature, calls: Calls | None) -> Iterator[str]:
    """What ranks rest on where the feature was chosen."""
    if calls is not None and not config.draws_features:
        yield CHOSEN_GLYPH_LIMITS if calls.population.are_all_glyphs else CHOSEN_LIMITS


def describe_sample(row: Mapping[str, Any]) -> str:
    """The sample of a row in words: `12 pairs of trainings`."""
    return f"{row['n']} {unit_name(row['unit'], row['n'])}"


def unit_name(unit: str, n: int) -> str:
    """The unit in the singular or plural, for `n` of them."""
    if n == 1:
        return unit
    return "pairs of trainings" if unit == "pair of trainings" else "canaries" if unit == "canary" else f"{unit}s"


def describe_published_test(evidence: PairEvidence) -> str:
    """The result of the published test, for canary models and for their twins; empty unless both are known."""
    if len(evidence.published) < 2:
        return ""
    canary, twin = (f"{called} of {n}" for called, n in evidence.published)
    return (
        f"The published t-test, which takes probe images for the sample, calls {canary} canary models memorised, and "
        f"{twin} of their twins, which never saw the feature."
    )


def describe_guarantee(guarantee: Guarantee | None) -> Iterator[str]:
    """What differential privacy allows one model to show of drawn features, and what it did."""
    if guarantee is not None:
        yield (
            f"Training was ({guarantee.epsilon:g}, {guarantee.delta:g})-differentially private in each training image, "
            f"by which one model finds at most {100 * guarantee.allowed:.3g} % of drawn features at "
            f"{100 * guarantee.level:g} %; it found {guarantee.found} of {guarantee.n}. Nothing bounds what pairs "
            "show: they share noise."
        )
