"""The answer on pairs of trainings for readers without a machine-learning background."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.pairs.bets import BETS
from tasks.audits.unique_feature.pairs.canary_verdicts import BEYOND, CALLED
from tasks.audits.unique_feature.pairs.evidence import SURELY, PairEvidence
from tasks.audits.unique_feature.pairs.sentences import count_canaries, describe_bets, describe_sample
from tasks.contract.certificate import Boundary, NumberLine, chances, line_of
from tasks.contract.power import SMALLEST
from tasks.contract.summaries import blank_weak_interval, p_in_words
from tasks.datasets.features import describe_feature

LARGEST = 100.0  # nats, above which a factor of probability says no more
FACTOR = "effect of the one image, in nats (0.1: its label becomes a tenth more probable)"

REMOVE_FEATURE = (
    "Take such features out of the training data before training, or train with a safeguard (fewer epochs, "
    "augmentation, differential privacy), and audit again.",
    "Ask the model in use itself, as a file or by its outputs: given.models=model.pt.",
)
OTHER_FEATURES = ("Ask for the other features and places that you fear, with the network and data that you use.",)
NOTHING_THAT_MATTERS = (f"Nothing that matters is kept of one image: an effect of {SMALLEST:g} nats would have shown.",)
CHECK_NETWORK = ("Check the network: its answers do not depend on what it is shown, or are rounded.",)


def advise_more_canaries(config: UniqueFeature, evidence: PairEvidence | None) -> tuple[str, ...]:
    """More canaries, or larger families if these can be larger."""
    more = f"Train more canaries (canaries={max(40, 2 * count_canaries(config))})"
    family = f" or rank each among more others (family.count={max(1000, 2 * config.family.count)})"
    calls = None if evidence is None else evidence.calls
    if calls is not None and calls.population.are_all_glyphs:
        family = ""
    return (f"{more}{family}: what is stored already is not trained again.",)


def ask_question(config: UniqueFeature) -> str:
    return (
        f"Does a network that is trained in this way keep {_name_asked_feature(config)}, if it occurs in one single "
        "training image?"
    )


def _name_asked_feature(config: UniqueFeature) -> str:
    return "a feature drawn by chance" if config.draws_features else describe_feature(config.asked_feature)


def explain(config: UniqueFeature, evidence: PairEvidence, chance: str = "") -> str:
    """The effect of the image without statistical terms, and the number of canaries that are called.

    `chance` is a sentence on how often chance brings as many small ranks, if these decide.
    """
    sentences = (
        _explain_bets(config, evidence),
        _explain_effect(config, evidence),
        _explain_calls(evidence),
        chance,
        _explain_null(config),
    )
    return " ".join(filter(None, sentences))


def explain_small_ranks(config: UniqueFeature, evidence: PairEvidence) -> str:
    """The explanation if the number of small ranks decides."""
    assert evidence.calls is not None
    assert evidence.calls.deciding_p is not None
    chance = f"Chance alone brings so many small ranks with {p_in_words(evidence.calls.deciding_p)}."
    return explain(config, evidence, chance)


def _explain_bets(config: UniqueFeature, evidence: PairEvidence) -> str:
    if evidence.bets is None:
        return ""
    words = describe_bets(config, evidence.bets)
    return f"{words[0].upper()}{words[1:]}; 1 is kept on average where nothing is memorised."


def _explain_effect(config: UniqueFeature, evidence: PairEvidence) -> str:
    if evidence.effect is None:
        return "No effect could be measured yet."
    effect = blank_weak_interval(evidence.effect)
    interval = "no interval"
    if effect["low"] is not None:
        low, high = format_factor(effect["low"]), format_factor(effect["high"])
        interval = f"95 % interval {low} to {high} times"
    feature = _name_asked_feature(config)
    carried, probed = ("another feature", f", when shown {feature},") if config.is_null else (feature, "")
    return (
        f"Networks that saw {carried} in one training image gave that image’s label{probed} "
        f"{format_factor(effect['estimate'])} times the probability, on images they never saw, that their twins gave "
        f"it, which had not seen it ({interval}, over {describe_sample(effect)}; 1 where nothing is memorised)."
    )


def _explain_calls(evidence: PairEvidence) -> str:
    calls = evidence.calls
    return "" if calls is None else f"One by one, {calls.called} of {calls.n} are told from their twins."


def _explain_null(config: UniqueFeature) -> str:
    if not config.is_null:
        return ""
    return (
        f"They carried another feature than {_name_asked_feature(config)}, so this is a null: nothing is to be found."
    )


def format_factor(nats: float) -> str:
    """e to the power of an effect: how many times as probable it makes the label."""
    return f"{math.exp(nats):.3g}" if nats < LARGEST else f"more than {math.exp(LARGEST):.0e}"


# The number that decides, on a line


def _draw_effect(evidence: PairEvidence) -> NumberLine | None:
    """The effect; None without an estimate."""
    smallest = Boundary(SMALLEST, "memorised if the interval lies above, not detected if below")
    return line_of(evidence.effect, FACTOR, boundaries=(smallest,))


def _draw_called(evidence: PairEvidence) -> NumberLine | None:
    """The number of canaries that are called."""
    if evidence.calls is None:
        return None
    title = f"networks, of {evidence.calls.n}, that are told from their twins"
    one = Boundary(1.0, "memorised from one on")
    return NumberLine(title, float(evidence.calls.called), null=0.0, boundaries=(one,))


def _draw_small_ranks(evidence: PairEvidence) -> NumberLine | None:
    """How often chance brings as many small ranks."""
    if evidence.calls is None or evidence.calls.deciding_p is None:
        return None
    return chances(evidence.calls.deciding_p, SURELY)


def _draw_bets(evidence: PairEvidence) -> NumberLine | None:
    """How far the bets grew."""
    if evidence.bets is None:
        return None
    accused = Boundary(1 / evidence.bets.level, "memorised from here on, however often one looks")
    return NumberLine(
        "evidence: what bets on the ranks of drawn features grew to, as many times",
        evidence.bets.largest,
        null=1.0,
        boundaries=(accused,),
        logarithmic=True,
    )


LINES: Mapping[str, Callable[[PairEvidence], NumberLine | None]] = {
    CALLED: _draw_called,
    BEYOND: _draw_small_ranks,
    BETS: _draw_bets,
}


def draw_metric(evidence: PairEvidence, metric: str) -> NumberLine | None:
    """The number line of a row of this metric; that of the effect if the row has none."""
    draw = LINES.get(metric, _draw_effect)
    return draw(evidence) or _draw_effect(evidence)
