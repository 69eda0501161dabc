"""The audit's answer: the rules that decide it, and its verdict and certificate in words.

Where pairs were trained, the effect of the canaries and their ranks decide (`pairs`); where models are asked
alone, the rank of the feature among its family or beside references does (`panels`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.given_models import Given, ModelFiles
from tasks.audits.unique_feature.measures.family import PUSH
from tasks.audits.unique_feature.pairs import answer as pair_answer
from tasks.audits.unique_feature.pairs.answer import BY_SMALL_RANKS, count_canaries, deciding_names, describe_sample
from tasks.audits.unique_feature.pairs.bets import BETS
from tasks.audits.unique_feature.pairs.canary_scores import EFFECT as EFFECT_ROW
from tasks.audits.unique_feature.pairs.canary_verdicts import BEYOND, CALLED
from tasks.audits.unique_feature.pairs.evidence import SURELY, PairEvidence, read_pair_evidence
from tasks.audits.unique_feature.questions import Panel
from tasks.audits.unique_feature.single_models import answer as panel_answer
from tasks.audits.unique_feature.single_models.answer import LOOK_ALIKES, PARTLY
from tasks.audits.unique_feature.single_models.evidence import Rank, read_panel_evidence
from tasks.contract.certificate import Boundary, Certificate, Finding, NumberLine, chances, line_of, steps_of_null
from tasks.contract.looks import look_number
from tasks.contract.objectives import Objective, Objectives, row_reader
from tasks.contract.power import SMALLEST
from tasks.contract.rules import Rule, Rules, undecided
from tasks.contract.summaries import Row, blank_weak_interval, first_row, index_rows, p_in_words, row_name
from tasks.contract.ties import NOT_JUDGED
from tasks.contract.verdict import ANSWERS, DETECTABLE, Answer, Meaning, Verdict
from tasks.datasets.features import Feature, Picture, Words, describe_feature

MEANINGS: Mapping[Answer, Meaning] = {
    **{answer: ANSWERS[answer] for answer in ("memorised", "not seen", DETECTABLE, "undecided")},
    PARTLY: Meaning("the model knows this feature or one that shares a part with it; the evidence does not tell which"),
    NOT_JUDGED: Meaning("what was sent back, or what the models say, does not allow an answer"),
}


def thresholds(config: UniqueFeature) -> Mapping[str, str]:
    return {**pair_answer.THRESHOLDS, **pair_answer.bet_thresholds(config), **panel_answer.thresholds(config)}


RULES = Rules[Any]((*pair_answer.RULES, *panel_answer.RULES, undecided()), thresholds)

# As a certificate of a first look states them.
FIRST_LOOK_RULES = Rules[Any](tuple(rule for rule in RULES.cases if rule is not pair_answer.BY_LATER_BETS), thresholds)


def verdict(config: UniqueFeature, summary: pa.Table) -> Verdict:
    """The answer by RULES, with its evidence in words."""
    rows = index_rows(summary)
    if config.single_models is None:
        pairs = read_pair_evidence(rows, look_number(summary))
        return pair_answer.pair_verdict(config, RULES.decide(config, pairs), pairs)
    panel = read_panel_evidence(config, rows)
    if panel is None:
        return Verdict("undecided", "Undecided: no model has been asked yet.", panel_answer.LIMITS, ())
    return panel_answer.panel_verdict(config, RULES.decide(config, panel), panel)


SYMBOLS: Mapping[str, str] = {
    "M": "how much more a model’s answer changes with the feature than with a random patch in its place, in nats; the "
    "paper’s score, which decides nothing here",
    "M_w": "how much more probable the label of the canary is with the feature than with a random patch: the "
    "difference of two logarithms, in nats",
    "effect": "the score of a model that saw the feature in one image, minus that of its twin, which did not",
    "canary": "a training image with the feature, and the model that was trained with it",
    "twin": "the model of the same seed that was trained without the feature",
    "evidence": "what a stake grows to that is bet on the ranks of drawn features, pair after pair; where nothing is "
    "memorised it stays at 1 on average, whenever one looks",
    "P_u": "the probability of the canary’s label with the feature in the image",
    "P_r": "the probability of the canary’s label with a random patch in the image",
    "push": "how much more the feature raises the log odds of a label than the others of its family do, in nats",
    "family": "other features of the same kind, ink and place, none of which was trained on",
    "look-alike": "a feature that differs from the one asked about in one part alone: a word of a name, a half of a "
    "glyph or a picture",
    "rank": "the place of the feature among its family, 1 for the one that the model answers to most",
    "KL": "the Kullback–Leibler divergence, how far two answers of a model are apart, in nats",
    "probe": "images that no model was trained on, with which the models are asked",
    "Welch": "a t-test for samples of different spread",
    "welch": "a t-test for samples of different spread",
}


def certificate(config: UniqueFeature, summary: pa.Table, verdict: Verdict) -> Certificate:
    """The answer for somebody who knows no machine learning."""
    rows = index_rows(summary)
    if config.single_models is not None:
        panel = read_panel_evidence(config, rows)
        question, steps = panel_question(config), panel_steps(config, verdict.answer)
        finding = Finding(verdict.answer, "No model has been asked yet.")
        if panel is not None:
            rank = panel.deciding_rank
            place, line = describe_place(config, verdict.answer, rank), panel_line(config, rank)
            finding = Finding(verdict.answer, place, line, "" if config.given is None else config.given.describe)
    else:
        pairs = read_pair_evidence(rows, look_number(summary))
        rule = RULES.decide(config, pairs)
        question, steps = pair_question(config), pair_steps(config, verdict.answer, pairs)
        finding = Finding(verdict.answer, describe_pairs(config, rule, pairs), pair_line(rule, pairs))
    rules = FIRST_LOOK_RULES if look_number(summary) == 1 else RULES
    return rules.certify(config, verdict, question, (finding,), steps)


# The certificate of pairs of trainings

LARGEST = 100.0  # nats, above which a factor of probability says no more
FACTOR = "effect of the one image, in nats (0.1: its label becomes a tenth more probable)"


def pair_question(config: UniqueFeature) -> str:
    return (
        f"Does a network that is trained in this way keep {asked_feature(config)}, if it occurs in one single training "
        "image?"
    )


def asked_feature(config: UniqueFeature) -> str:
    return "a feature drawn by chance" if config.draws_features else describe_feature(config.asked_feature)


def describe_pairs(config: UniqueFeature, rule: Rule[PairEvidence], evidence: PairEvidence) -> str:
    """The effect of the image in words that need no statistics, and which canaries are called."""
    what, calls = asked_feature(config), evidence.calls
    told = ["No effect could be measured yet."]
    if evidence.effect is not None:
        effect = blank_weak_interval(evidence.effect)
        between = f"no interval, over {describe_sample(effect)}"
        if effect["low"] is not None:
            low, high = probability_factor(effect["low"]), probability_factor(effect["high"])
            between = f"95 % interval {low} to {high} times, over {describe_sample(effect)}"
        seen, shown = ("another feature", f", when shown {what},") if config.is_null else (what, "")
        told = [
            f"Networks that saw {seen} in one training image gave that image’s label{shown} "
            f"{probability_factor(effect['estimate'])} times the probability, on images they never saw, that their "
            f"twins gave it, which had not seen it ({between}; 1 where nothing is memorised)."
        ]
    if evidence.bets is not None:
        words = pair_answer.describe_bets(config, evidence.bets)
        told.insert(0, f"{words[0].upper()}{words[1:]}; 1 is kept on average where nothing is memorised.")
    if calls is not None:
        told.append(f"One by one, {calls.called} of {calls.n} are told from their twins.")
        if rule is BY_SMALL_RANKS and calls.deciding_p is not None:
            told.append(f"Chance alone brings so many small ranks with {p_in_words(calls.deciding_p)}.")
    if config.is_null:
        told.append(f"They carried another feature than {what}, so this is a null: nothing is to be found.")
    return " ".join(told)


def pair_line(rule: Rule[PairEvidence], evidence: PairEvidence) -> NumberLine | None:
    """What decided, on a line."""
    calls, decided = evidence.calls, next((metric for metric, _ in deciding_names(rule, evidence)), "")
    if decided == CALLED and calls is not None:
        what = f"networks, of {calls.n}, that are told from their twins"
        return NumberLine(what, float(calls.called), null=0.0, boundaries=(Boundary(1.0, "memorised from one on"),))
    if decided == BEYOND and calls is not None and calls.deciding_p is not None:
        return chances(calls.deciding_p, SURELY)
    if decided == BETS and evidence.bets is not None:
        bets = evidence.bets
        from_here = Boundary(1 / bets.level, "memorised from here on, however often one looks")
        return NumberLine(
            "evidence: what bets on the ranks of drawn features grew to, as many times",
            bets.largest,
            null=1.0,
            boundaries=(from_here,),
            logarithmic=True,
        )
    smallest = Boundary(SMALLEST, "memorised if the interval lies above, not seen if below")
    return line_of(evidence.effect, FACTOR, boundaries=(smallest,))


def probability_factor(nats: float) -> str:
    """e to the power of an effect, as many times as it makes the label more probable."""
    return f"{math.exp(nats):.3g}" if nats < LARGEST else f"more than {math.exp(LARGEST):.0e}"


def pair_steps(config: UniqueFeature, answer: Answer, evidence: PairEvidence) -> tuple[str, ...]:
    """What to do next."""
    if config.is_null:
        return steps_of_null(answer, "burnt=null")
    if answer == "memorised":
        return (
            "Take such features out of the training data before training, or train with a safeguard (fewer epochs, "
            "augmentation, differential privacy), and audit again.",
            "Ask the model in use itself, as a file or by its outputs: given.models=model.pt.",
        )
    if answer == "not seen":
        return ("Ask for the other features and places that you fear, with the network and data that you use.",)
    if answer == DETECTABLE:
        return (f"Nothing that matters is kept of one image: an effect of {SMALLEST:g} nats would have shown.",)
    if answer == NOT_JUDGED:
        return ("Check the network: its answers do not depend on what it is shown, or are rounded.",)
    more = f"Train more canaries (canaries={max(40, 2 * count_canaries(config))})"
    others = f" or rank each among more others (family.count={max(1000, 2 * config.family.count)})"
    if evidence.calls is not None and evidence.calls.population.are_all_glyphs:
        others = ""
    return (f"{more}{others}: what is stored already is not trained again.",)


# The certificate of models that are asked alone


def panel_question(config: UniqueFeature) -> str:
    who = "Does a model know" if config.given is not None else "Do models trained on these data know"
    return f"{who} {describe_feature(config.asked_feature)} from the training data?"


def describe_place(config: UniqueFeature, answer: Answer, rank: Rank) -> str:
    """The place of the feature in words that need no statistics."""
    size, place = rank.population.size, rank.place
    who = "the model" if rank.models == 1 else f"{rank.models} models together"
    others = f"{size - place:,} of the {size - 1:,} others" if place > 1 else f"all {size - 1:,} others"
    among = f"{size:,} {family_noun(config.asked_feature)}"
    asked = f"Beside {rank.references} clean models, and among {among}" if rank.references else f"Asked about {among}"
    chance = 1000 * rank.p
    number = f"about {chance:.0f}" if chance >= 1 else "fewer than 1"
    after = {
        "not seen": " A push that matters would have shown.",
        PARTLY: " But one that shares a part with it would do the same, and it is not told from those.",
        "undecided": " A memory may be there all the same and not show.",
        NOT_JUDGED: " But what was sent back, or what the model says, does not allow an answer.",
    }.get(answer, "")
    return (
        f"{asked}, {who} singled out this one more than {others}; of 1,000 models that never saw it {number} would "
        f"stand so far in front.{after}"
    )


def family_noun(feature: Feature) -> str:
    """What the members of the feature's family are."""
    return "names" if isinstance(feature, Words) else "pictures" if isinstance(feature, Picture) else "signs"


def panel_line(config: UniqueFeature, rank: Rank) -> NumberLine:
    """The place on a line, and from which one on the feature is called."""
    size, last = rank.population.size, rank.population.last_called
    return NumberLine(
        f"place of {describe_feature(config.asked_feature)} among {size:,}, 1 for the one that is singled out most",
        rank.place,
        null=(size + 1) / 2,
        null_words="the middle: its place on average, where nothing is memorised",
        usual=(last + 1, size) if last else None,
        boundaries=(Boundary(last, f"memorised, at least in part, at place {last:,} and before"),) if last else (),
        logarithmic=True,
    )


def panel_steps(config: UniqueFeature, answer: Answer) -> tuple[str, ...]:
    """What to do next."""
    if answer == "memorised":
        return (
            "Treat it as disclosed to whoever can use the model, and tell those who answer for the data.",
            "Remove or mask it in the training data, train anew, and ask the new model in the same way.",
        )
    if answer == "not seen":
        return (
            "Keep this page with the files that it names.",
            "Ask in the same way for every other feature and place that you fear, and again when the model changes.",
        )
    if answer == PARTLY:
        asked = f"Ask about its look-alikes, too: family.look_alikes={LOOK_ALIKES}."
        return (
            *(() if config.family.look_alikes else (asked,)),
            "Ask the owner to search the training data for this feature and for those that share a part with it.",
        )
    if answer == NOT_JUDGED:
        return (
            "Ask the owner how the pictures were prepared, and for a table of what the model says of each of them, "
            "unrounded and in single precision; audit that.",
        )
    return (
        "Ask several models of the same data together, such as the folds of a cross-validation: "
        f"{more_models(config)}.",
        "If you have the data and the training procedure, train pairs: that finds more.",
    )


def more_models(config: UniqueFeature) -> str:
    """The setting that evaluates several models."""
    match config.single_models:
        case Given(source=ModelFiles()):
            return "given.models=fold0.pt,fold1.pt,fold2.pt"
        case Given():
            return "given.outputs=fold0.csv,fold1.csv,fold2.csv"
        case Panel(seeds=seeds):
            return f"seeds={3 * seeds}"
    raise AssertionError("pairs are compared, not asked alone")


# What a search over training choices moves, and the number by which runs are compared


def effect(config: UniqueFeature, summary: pa.Table) -> Row | None:
    """The row of the effect on M_w of pairs of trainings; of models that are asked alone that of their push."""
    rows = index_rows(summary)
    return rows.get(EFFECT_ROW) if config.single_models is None else first_row(rows, PUSH)


OBJECTIVES = Objectives(
    memorization=Objective("M_w effect", "nats", "lower", row_reader(*EFFECT_ROW)),
    utility=Objective(
        "validation accuracy", "share", "higher", row_reader(*row_name("validation accuracy", model="canary"))
    ),
    allowance=0.01,
)
EFFECT = Objective("effect of the feature", "nats", "lower", effect)
