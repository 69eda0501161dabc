"""The verdict on pairs of training runs for readers without a machine-learning background."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.pairs.bets import BETS
from tasks.audits.unique_feature.pairs.canary_verdicts import BEYOND, CALLED
from tasks.audits.unique_feature.pairs.evidence import SURELY, PairEvidence
from tasks.audits.unique_feature.pairs.sentences import count_canaries, describe_sample
from tasks.contract.certificate import Boundary, NumberLine, advise_retraining
from tasks.contract.examined_models import describe_trained
from tasks.contract.factors import describe_change
from tasks.contract.power import SMALLEST
from tasks.contract.summaries import blank_weak_interval
from tasks.datasets.features import describe_feature

FACTOR = "probability of the label, compared with models that never saw the feature (times as likely)"
RELEVANT_INCREASE = f"{100 * math.expm1(SMALLEST):.2g} %"
LARGEST = 100.0  # nats; larger effects are drawn at this place

REMOVE_FEATURE = (
    advise_retraining(first="remove such features from the training data, to vary the training images at random"),
    "Audit the deployed model itself, by its file or its outputs (`given.models=model.pt`).",
)
OTHER_FEATURES = ("Audit the other features and positions that concern you, with your own network and data.",)
NOTHING_THAT_MATTERS = (
    f"No action follows for this feature: an increase of {RELEVANT_INCREASE} or more would have been detected.",
)
CHECK_NETWORK = ("Check the network: its outputs are constant or rounded.",)

# Conclusions after the numbers

CLEARED = f"An increase of {RELEVANT_INCREASE} or more would have been detected."
BELOW_RELEVANT = f"An effect exists, but an increase of {RELEVANT_INCREASE} or more is ruled out."
SURPRISING = (
    "Together, however, the models stand out: chance alone would produce such a result in at most "
    f"{1000 * SURELY:g} of 1,000 audits."
)


def advise_more_canaries(config: UniqueFeature, evidence: PairEvidence | None) -> tuple[str, ...]:
    """Advise more canaries, and larger families if they can be larger."""
    canaries = max(40, 2 * count_canaries(config))
    alternatives = max(1000, 2 * config.family.count)
    calls = None if evidence is None else evidence.calls
    family = f", or compare the feature with at least {alternatives:,} others"
    settings = f"canaries={canaries} or family.count={alternatives}"
    if calls is not None and calls.population.are_all_glyphs:
        family = ""
        settings = f"canaries={canaries}"
    return (
        f"Train at least {canaries} pairs of models{family}, and audit again; stored trainings are reused "
        f"(`{settings}`).",
    )


def name_models(config: UniqueFeature) -> str:
    """Name the models that were examined: pairs that the audit trained."""
    pairs = config.pairs
    if pairs is None:
        return ""
    ends_early = config.scored_pairs is not None and config.scored_pairs.stopping_level > 0
    feature = "another feature" if config.is_null else "the feature"
    return describe_trained(
        pairs.canaries * pairs.seeds,
        f"; in each pair, one model saw {feature}, in a single training image",
        in_pairs=True,
        at_most=ends_early,
    )


def ask_question(config: UniqueFeature) -> str:
    return f"Does a model trained in this way memorise {_name_asked_feature(config)} from a single training image?"


def _name_asked_feature(config: UniqueFeature) -> str:
    if config.draws_features:
        return "a randomly drawn feature"
    return describe_feature(config.asked_feature)


def explain(config: UniqueFeature, evidence: PairEvidence, conclusion: str = "") -> str:
    """Explain the evidence without statistical terms, with a conclusion."""
    sentences = (
        _explain_bets(evidence, count_canaries(config)),
        _explain_effect(config, evidence),
        _explain_calls(evidence),
        conclusion,
        _explain_null(config),
    )
    return " ".join(filter(None, sentences))


def _explain_bets(evidence: PairEvidence, planned_pairs: int) -> str:
    bets = evidence.bets
    if bets is None:
        return ""
    limit = f"{1 / bets.level:.4g}"
    pairs = f"{bets.n} of at most {planned_pairs} pairs of trainings"
    if bets.accuse:
        return (
            f"The evidence for memorisation grew {bets.largest:.4g}-fold within {pairs}. If nothing is memorised, at "
            f"most {100 * bets.level:g} of 100 audits ever reach the limit of {limit}, which was fixed in advance."
        )
    return (
        f"The evidence for memorisation grew at most {bets.largest:.4g}-fold within {pairs}, less than the limit of "
        f"{limit}, which was fixed in advance."
    )


def _explain_effect(config: UniqueFeature, evidence: PairEvidence) -> str:
    if evidence.effect is None:
        return "No effect could be measured yet."
    effect = blank_weak_interval(evidence.effect)
    change = describe_change(effect["estimate"], effect["low"], effect["high"])
    interval = "no interval"
    if change.interval:
        interval = f"95 % interval: {change.interval}"
    audited = _name_asked_feature(config)
    carried = "another feature" if config.is_null else audited
    evaluated = "that feature" if config.draws_features else audited
    return (
        f"Models that saw {carried} in a single training image rate that image’s label as {change.words} when a new "
        f"image shows {evaluated} ({interval}, {describe_sample(effect)}; {change.none} would mean no memory). The "
        "comparison models were trained identically, but without that feature."
    )


def _explain_calls(evidence: PairEvidence) -> str:
    calls = evidence.calls
    if calls is None:
        return ""
    return f"Individually, {calls.count} of the {calls.n} models can be distinguished from their comparison models."


def _explain_null(config: UniqueFeature) -> str:
    if not config.is_null:
        return ""
    return f"This run is a control experiment: no model saw {_name_asked_feature(config)}, so there is nothing to find."


# The number that decides, on a line


def _draw_effect(evidence: PairEvidence) -> NumberLine | None:
    """Draw the factor on the label's probability on a logarithmic line. Returns None if there is no estimate."""
    if evidence.effect is None or evidence.effect["estimate"] is None:
        return None
    effect = blank_weak_interval(evidence.effect)
    relevant = Boundary(
        _drawn_factor(SMALLEST), "smallest relevant increase; memorised if the whole interval lies above it"
    )
    low = high = None
    if effect["low"] is not None:
        low = _drawn_factor(effect["low"])
        high = _drawn_factor(effect["high"])
    return NumberLine(
        FACTOR,
        _drawn_factor(effect["estimate"]),
        low,
        high,
        null=1.0,
        null_words="no memory",
        boundaries=(relevant,),
        logarithmic=True,
    )


def _drawn_factor(nats: float) -> float:
    return math.exp(max(-LARGEST, min(LARGEST, nats)))


def _draw_called(evidence: PairEvidence) -> NumberLine | None:
    """Draw the number of canaries that are found."""
    if evidence.calls is None:
        return None
    title = f"models, of {evidence.calls.n}, that can be distinguished from their comparison models"
    one = Boundary(1.0, "memorised if there is at least one")
    return NumberLine(title, float(evidence.calls.count), null=0.0, boundaries=(one,))


def _draw_small_ranks(evidence: PairEvidence) -> NumberLine | None:
    """Draw the number of audits in which chance makes as many canaries stand out."""
    if evidence.calls is None or evidence.calls.deciding_p is None:
        return None
    return NumberLine(
        "audits, of 1,000, in which chance alone would produce such a result",
        1000 * evidence.calls.deciding_p,
        null=1000.0,
        null_words="all of them",
        boundaries=(Boundary(1000 * SURELY, "memorised from here downwards"),),
        logarithmic=True,
    )


def _draw_bets(evidence: PairEvidence) -> NumberLine | None:
    """Draw the growth of the bets."""
    if evidence.bets is None:
        return None
    limit = Boundary(1 / evidence.bets.level, "limit fixed in advance; memorised from here upwards")
    return NumberLine(
        "growth of the evidence for memorisation (times its initial value)",
        evidence.bets.largest,
        null=1.0,
        null_words="average growth if nothing is memorised",
        boundaries=(limit,),
        logarithmic=True,
    )


LINES: Mapping[str, Callable[[PairEvidence], NumberLine | None]] = {
    CALLED: _draw_called,
    BEYOND: _draw_small_ranks,
    BETS: _draw_bets,
}


def draw_metric(evidence: PairEvidence, metric: str) -> NumberLine | None:
    """Draw the row of this metric on a number line, or the effect if the row has no line."""
    draw = LINES.get(metric, _draw_effect)
    return draw(evidence) or _draw_effect(evidence)
