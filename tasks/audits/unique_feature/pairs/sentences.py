"""The verdict's sentences on pairs of training runs, for experts: the effect, the ranks, the bets and their limits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.pairs.evidence import LEAST, Bets, Calls, Guarantee, PairEvidence
from tasks.audits.unique_feature.population import FDR, LEVEL
from tasks.contract.conditions import Condition, ensure, require
from tasks.contract.factors import describe_change
from tasks.contract.power import SMALLEST
from tasks.contract.ties import describe_tied_evidence
from tasks.contract.verdict import BELOW_RELEVANT_SIZE
from tasks.datasets.features import describe_feature

LIMITS = (
    "The changed probability shows that the image was memorised. Only the individual comparisons show that the feature "
    "itself was memorised. The answer describes this training procedure, data set and feature, not one particular "
    "model. Not detected does not mean safe: another feature, position or score may reveal more."
)
STOPPED_LIMITS = (
    "The run ended when the evidence decided, so its intervals and shares describe the pairs that were trained and "
    "prove nothing further."
)
CHOSEN_LIMITS = (
    "In a control experiment with other signs, the test wrongly reported the letter A in 5 of 30 cases instead of the "
    "expected 1 or 2."
)
RESEMBLANCE = require(
    "the feature resembles the features that it is compared with; this matters because a person chose it, and an "
    "unusual feature may stand out without having been memorised",
    "the auditor",
    "memorised",
    BELOW_RELEVANT_SIZE,
)
CHOSEN_GLYPH_LIMITS = (
    "In a control experiment with drawn signs, the test wrongly reported one of the 26 letters in 5.9 % of 1,664 cases "
    "instead of the expected 5 %."
)
RESEMBLANCE_OF_GLYPH = require(
    "the feature resembles the other signs; this matters because a person chose it, and an unusual feature may stand "
    "out without having been memorised",
    "the auditor",
    "memorised",
    BELOW_RELEVANT_SIZE,
)
DRAWN = ensure("the features were drawn at random from the features that they are compared with")


# The evidence as one sentence, without its ending


def describe_pairs(config: UniqueFeature, evidence: PairEvidence) -> str:
    """Describe the effect and the ranks, after the bets if there are any."""
    words = _describe_effect(config, evidence)
    if evidence.effect is not None or evidence.calls is not None:
        words = f"{words}. {_describe_calls(evidence.calls)}"
    return _begin_with_bets(config, evidence, words)


def describe_accusation(config: UniqueFeature, evidence: PairEvidence) -> str:
    """Describe the evidence of an answer that accuses, which may be based on ranks without an effect."""
    if evidence.effect is not None:
        return describe_pairs(config, evidence)
    return _begin_with_bets(config, evidence, _describe_calls(evidence.calls))


def describe_tied_pairs(config: UniqueFeature, evidence: PairEvidence) -> str:
    return _begin_with_bets(config, evidence, describe_tied_evidence(config, evidence))


def _begin_with_bets(config: UniqueFeature, evidence: PairEvidence, words: str) -> str:
    """Put the bets before these words, for a run that ends once it is decided or a later look at a fixed number of
    pairs.
    """
    later_bets = evidence.deciding_bets or evidence.total_bets
    if evidence.bets is not None:
        bets = describe_bets(config, evidence.bets)
    elif evidence.look > 1 and later_bets is not None:
        bets = f"bets on all ranks grew {later_bets['estimate']:.4g}-fold; {1 / LEVEL:g} decides"
    else:
        return words
    return f"{bets}. {words[0].upper()}{words[1:]}"


def describe_bets(config: UniqueFeature, bets: Bets) -> str:
    """Describe the growth of the bets, and how many of the planned pairs it took."""
    threshold = f"{1 / bets.level:.4g} = 1 / {bets.level:g}"
    subject = f"bets on ranks of drawn features (effects reduced by {SMALLEST:g} nats)"
    pairs = f"{bets.n} of at most {count_canaries(config)} pairs of trainings"
    if bets.accuse:
        return f"{subject} grew {bets.largest:.4g}-fold over {pairs}; {threshold} decides"
    full_effects = ""
    if bets.detect:
        full_effects = f"; with effects not reduced, {bets.detected:.4g}-fold"
    return f"{subject} grew at most {bets.largest:.4g}-fold over {pairs}, less than {threshold}{full_effects}"


def count_canaries(config: UniqueFeature) -> int:
    return 0 if config.pairs is None else config.pairs.canaries


# The parts of that sentence


def _describe_effect(config: UniqueFeature, evidence: PairEvidence) -> str:
    """Describe the effect of the image, and the reason if it decides nothing alone."""
    effect = evidence.effect
    if effect is None:
        return "no pair of trainings has been scored"
    n = effect["n"]
    low = effect["low"]
    high = effect["high"]
    change = _describe_factor(config, effect["estimate"])
    if not evidence.has_interval:
        unit = "pair of trainings"
        if effect["unit"] == "training seed":
            unit = "training seed"
        return (
            f"{change} (effect {effect['estimate']:.4g} nats); one {unit} has no interval: train at least {LEAST} "
            "canaries, each with its own seed"
        )
    words = (
        f"{change} (effect {effect['estimate']:.4g} nats, 95 % interval {low:.4g} to {high:.4g}, "
        f"{describe_sample(effect)}; 0 means no memory)"
    )
    if evidence.bets is not None and evidence.bets.accuse:
        return words
    if n < LEAST:
        return f"{words}; an answer needs at least {LEAST} pairs: train more canaries"
    if evidence.effect_is_above_zero and low <= SMALLEST < high:
        return f"{words}; it may be below {SMALLEST:g} nats, the smallest relevant effect: train more canaries"
    if evidence.effect_is_above:
        return words
    if high >= SMALLEST:
        return f"{words}; effects of up to {high:.4g} nats cannot be excluded: train more canaries"
    if not evidence.effect_is_excluded:
        return f"{words}; an effect of {SMALLEST:g} nats might have been missed: train more canaries"
    return f"{words}; effects above {high:.4g} nats are unlikely"


def _describe_factor(config: UniqueFeature, nats: float) -> str:
    """Describe the effect as a change of the probability of the image’s label."""
    feature = describe_feature(config.asked_feature)
    carried = feature
    evaluated = feature
    if config.draws_features:
        carried = f"a feature drawn from the family of {feature}"
        evaluated = "that feature"
    if config.is_null:
        carried = "another feature"
    change = describe_change(nats, word="likely")
    return (
        f"a single training image with {carried} makes its label {change.words} on unseen images with "
        f"{evaluated}, compared with a random patch"
    )


def _describe_calls(calls: Calls | None) -> str:
    """Describe how many canaries are found by their ranks, and the reason if the ranks decide nothing alone."""
    if calls is None:
        return (
            "No canary is ranked, since the feature has too few others of its kind, so one remembered canary among "
            "many could be missed: lower family.count, or choose another family"
        )
    n = calls.n
    population = calls.population
    ranked = f"paired rank among {population.size - 1} others"
    if population.are_all_glyphs:
        ranked = f"rank among {population.describe()}"
    size = ""
    if calls.count and calls.memorised is not None:
        size = f", {calls.memorised} of them above {SMALLEST:g} nats"
    verb = "is" if calls.count == 1 else "are"
    words = (
        f"{calls.count} of {n} {unit_name('canary', n)} {verb} found individually{size} ({ranked}, false discovery "
        f"rate {100 * FDR:.0f} %)"
    )
    share = calls.excess
    if share is not None and share["estimate"] is not None:
        words += f"; {100 * share['estimate']:.0f} % are found beyond chance at p of {calls.level:.2g}"
        if share["low"] is not None:
            words += f" (95 % interval {100 * share['low']:.0f} % to {100 * share['high']:.0f} %)"
    if calls.share_seeds:
        return f"{words}; the canaries share training seeds, so their ranks decide nothing"
    if calls.count:
        return words
    fewest = population.fewest_called(n)
    if fewest > n:
        words += "; none could have been called"
    elif fewest > 1:
        words += f"; fewer than {fewest} could not have been called"
    if calls.excess_p is not None and calls.excess_p <= LEVEL:
        advice = "" if calls.are_surely_small else ": train more canaries"
        return f"{words}; the p-value of that many small ranks is {calls.excess_p:.2g}{advice}"
    if not calls.resolution.finds_one and not population.are_all_glyphs:
        words += f": rank each among more others (family.count={math.ceil(n / FDR - 1e-9) - 1})"
    return words


def describe_choice(config: UniqueFeature, calls: Calls | None) -> Iterator[str]:
    """Yield the limits of ranks if the feature was chosen."""
    if calls is not None and not config.draws_features:
        yield CHOSEN_GLYPH_LIMITS if calls.population.are_all_glyphs else CHOSEN_LIMITS


def list_conditions(config: UniqueFeature, calls: Calls | None) -> Iterator[Condition]:
    """Yield the condition of ranks, which depends on whether the feature was chosen."""
    if calls is None:
        return
    if config.draws_features:
        yield DRAWN
    else:
        yield RESEMBLANCE_OF_GLYPH if calls.population.are_all_glyphs else RESEMBLANCE


def describe_stop(bets: Bets | None) -> Iterator[str]:
    """Yield the limits of intervals if the bets ended the run."""
    if bets is not None and bets.accuse:
        yield STOPPED_LIMITS


def describe_sample(row: Mapping[str, Any]) -> str:
    """Describe the sample of a row: `12 pairs of trainings`."""
    return f"{row['n']} {unit_name(row['unit'], row['n'])}"


def unit_name(unit: str, n: int) -> str:
    """Return the unit in the singular or plural, for `n` of them."""
    if n == 1:
        return unit
    if unit == "pair of trainings":
        return "pairs of trainings"
    if unit == "canary":
        return "canaries"
    return f"{unit}s"


def describe_published_test(evidence: PairEvidence) -> str:
    """Describe the result of the published test on canary models and control models.

    Returns an empty string unless both are known.
    """
    if len(evidence.published) < 2:
        return ""
    canary, twin = (f"{accused} of {n}" for accused, n in evidence.published)
    return (
        f"The published t-test treats probe images as the sample. It calls {canary} canary models memorised, and "
        f"{twin} control models, which never saw the feature."
    )


def describe_guarantee(guarantee: Guarantee | None) -> Iterator[str]:
    """Yield the bound of differential privacy on the drawn features that one model finds, and the number it found."""
    if guarantee is not None:
        yield (
            f"Training was ({guarantee.epsilon:g}, {guarantee.delta:g})-differentially private in each training image. "
            f"One model therefore finds at most {100 * guarantee.allowed:.3g} % of drawn features at a level of "
            f"{100 * guarantee.level:g} %; it found {guarantee.revealed} of {guarantee.n}. The guarantee does not "
            "bound what pairs reveal, since their models share noise."
        )
