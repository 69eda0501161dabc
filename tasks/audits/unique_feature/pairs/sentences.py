"""The verdict's sentences on pairs of trainings, for experts: the effect, the ranks, the bets and their limits."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.pairs.evidence import LEAST, Bets, Calls, Guarantee, PairEvidence
from tasks.audits.unique_feature.population import FDR, LEVEL
from tasks.contract.power import SMALLEST
from tasks.contract.ties import describe_tied_evidence
from tasks.datasets.features import describe_feature

LIMITS = (
    "The effect compares the feature with random patches: it says that the image is remembered, and the ranks that it "
    "is this feature. This speaks of the training procedure, data and feature that were audited, at this number of "
    "trainings; not of one given model. Not detected is not safe: another feature, place or score may show more."
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


# The evidence as one sentence, without its end


def describe_pairs(config: UniqueFeature, evidence: PairEvidence) -> str:
    """The effect and the ranks, after the bets if there are any."""
    words = _describe_effect(config, evidence)
    if evidence.effect is not None or evidence.calls is not None:
        words = f"{words}. {_describe_calls(evidence.calls)}"
    return _begin_with_bets(config, evidence, words)


def describe_accusation(config: UniqueFeature, evidence: PairEvidence) -> str:
    """The evidence of an answer that accuses, which ranks without an effect can give."""
    if evidence.effect is not None:
        return describe_pairs(config, evidence)
    return _begin_with_bets(config, evidence, _describe_calls(evidence.calls))


def describe_tied_pairs(config: UniqueFeature, evidence: PairEvidence) -> str:
    return _begin_with_bets(config, evidence, describe_tied_evidence(config, evidence))


def _begin_with_bets(config: UniqueFeature, evidence: PairEvidence, words: str) -> str:
    """The words after the bets of a run that ends once it is decided, or of a later look at a fixed number of pairs."""
    later_bets = evidence.deciding_bets or evidence.total_bets
    if evidence.bets is not None:
        bets = describe_bets(config, evidence.bets)
    elif evidence.look > 1 and later_bets is not None:
        bets = f"bets on all ranks grew {later_bets['estimate']:.4g}-fold, {1 / LEVEL:g} accuse"
    else:
        return words
    return f"{bets}. {words[0].upper()}{words[1:]}"


def describe_bets(config: UniqueFeature, bets: Bets) -> str:
    """The growth of the bets, and the number of pairs, of those planned, that it took."""
    threshold = f"{1 / bets.level:.4g} = 1 / {bets.level:g}"
    reduced = f"whose effects are reduced by {SMALLEST:g} nats"
    so_far = f"{bets.n} of at most {count_canaries(config)} pairs of trainings"
    if bets.accuse:
        return (
            f"bets on the ranks of drawn features, {reduced}, grew {bets.largest:.4g}-fold over {so_far}, at least "
            f"{threshold}, which decided it"
        )
    any_size = f"; not reduced, {bets.detected:.4g}-fold" if bets.detect else ""
    return (
        f"bets on the ranks of drawn features, {reduced}, grew at most {bets.largest:.4g}-fold over {so_far}, less "
        f"than {threshold}{any_size}"
    )


def count_canaries(config: UniqueFeature) -> int:
    return 0 if config.pairs is None else config.pairs.canaries


# Its parts


def _describe_effect(config: UniqueFeature, evidence: PairEvidence) -> str:
    """The effect of the image, and what it decides alone."""
    effect = evidence.effect
    if effect is None:
        return "no pair of trainings has been scored"
    n, low, high = effect["n"], effect["low"], effect["high"]
    feature = describe_feature(config.asked_feature)
    carried = f"a feature drawn from the family of {feature}" if config.draws_features else feature
    probed = "that feature" if config.draws_features else feature
    change = (
        f"a single training image with {'another one' if config.is_null else carried} changes log P(its label | "
        f"{probed}) - log P(its label | a random patch), on images the networks never saw, by "
        f"{effect['estimate']:.4g} nats"
    )
    if not evidence.has_interval:
        alone = "one training seed" if effect["unit"] == "training seed" else "one pair of trainings"
        return f"{change}; {alone} has no interval: train at least {LEAST} canaries, each with its own seed"
    factor = f"a factor of {math.exp(effect['estimate']):.3g} in probability"
    over = f"95 % interval {low:.4g} to {high:.4g} over {describe_sample(effect)}"
    words = f"{change} ({over}; {factor}; 0 where nothing is memorised)"
    if evidence.bets is not None and evidence.bets.accuse:
        return words
    if n < LEAST:
        return f"{words}; so few decide nothing: train at least {LEAST} canaries"
    if evidence.effect_is_above_zero and low <= SMALLEST < high:
        return f"{words}; it may be less than {SMALLEST:g} nats, the smallest effect that matters: train more canaries"
    if evidence.effect_is_above:
        return words
    if high >= SMALLEST:
        return f"{words}; as much as {high:.4g} nats cannot be excluded: train more canaries"
    if not evidence.effect_is_excluded:
        return f"{words}; an effect of {SMALLEST:g} nats might not have shown: train more canaries"
    return f"{words}; more than {high:.4g} nats is unlikely"


def _describe_calls(calls: Calls | None) -> str:
    """The number of canaries that are called by their ranks, and what the ranks decide alone."""
    if calls is None:
        return (
            "No canary is ranked, as its feature has too few others of its kind, so that one remembered canary among "
            "many would not show: lower family.count, or choose another family"
        )
    n, population = calls.n, calls.population
    ranked = f"rank among {population.describe()}"
    if not population.are_all_glyphs:
        ranked = f"paired rank among {population.size - 1} others"
    counted = f"{calls.called} of {n} {unit_name('canary', n)} {'is' if calls.called == 1 else 'are'}"
    size = ""
    if calls.called and calls.memorised is not None:
        size = f", {calls.memorised} of them by more than {SMALLEST:g} nats"
    words = f"{counted} found one by one{size} ({ranked}, false discovery rate {100 * FDR:.0f} %)"
    share = calls.beyond
    if share is not None and share["estimate"] is not None:
        words += f"; {100 * share['estimate']:.0f} % of all are found beyond chance at p of {calls.level:.2g}"
        if share["low"] is not None:
            words += f" (95 % interval {100 * share['low']:.0f} % to {100 * share['high']:.0f} %)"
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
    """The limits of ranks if the feature was chosen."""
    if calls is not None and not config.draws_features:
        yield CHOSEN_GLYPH_LIMITS if calls.population.are_all_glyphs else CHOSEN_LIMITS


def describe_stop(bets: Bets | None) -> Iterator[str]:
    """The limits of intervals if the bets ended the run."""
    if bets is not None and bets.accuse:
        yield STOPPED_LIMITS


def describe_sample(row: Mapping[str, Any]) -> str:
    """The sample of a row: `12 pairs of trainings`."""
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
    canary, twin = (f"{accused} of {n}" for accused, n in evidence.published)
    return (
        f"The published t-test, which takes probe images for the sample, calls {canary} canary models memorised, and "
        f"{twin} of their twins, which never saw the feature."
    )


def describe_guarantee(guarantee: Guarantee | None) -> Iterator[str]:
    """The bound of differential privacy on the drawn features that one model finds, and the number it found."""
    if guarantee is not None:
        yield (
            f"Training was ({guarantee.epsilon:g}, {guarantee.delta:g})-differentially private in each training image, "
            f"by which one model finds at most {100 * guarantee.allowed:.3g} % of drawn features at "
            f"{100 * guarantee.level:g} %; it found {guarantee.found} of {guarantee.n}. Nothing bounds what pairs "
            "show: they share noise."
        )
