"""The answer for somebody who knows no machine learning."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tasks.audits.unique_feature.config import UniqueFeature
from tasks.audits.unique_feature.ranks import LEVEL
from tasks.audits.unique_feature.verdict import (
    BESIDE,
    BEYOND,
    CALLED,
    ENOUGH,
    FDR,
    GLYPHS,
    HARDLY,
    LEAST,
    ROWS,
    SMALLEST,
    SURELY,
    describe_sample,
    ranked_among,
)
from tasks.certificate import (
    ELSE,
    Boundary,
    Certificate,
    Finding,
    NumberLine,
    chances,
    line_of,
    number_per_hundred,
    steps_of_null,
)
from tasks.datasets.features import Feature, Picture, Words, describe_feature
from tasks.summaries import blank_weak_interval, index_rows, p_in_words
from tasks.verdict import Verdict

Row = Mapping[str, Any]
LARGEST = 100.0  # nats, above which a factor of probability says no more
FACTOR = "effect of the one image, in nats (0.1: its label becomes a tenth more probable)"
SYMBOLS: Mapping[str, str] = {
    "M": "how much more a model’s answer changes with the feature than with a random patch in its place, in nats; the "
    "paper’s score, which decides nothing here",
    "M_w": "how much more probable the label of the canary is with the feature than with a random patch: the "
    "difference of two logarithms, in nats",
    "effect": "the score of a model that saw the feature in one image, minus that of its twin, which did not",
    "canary": "a training image with the feature, and the model that was trained with it",
    "twin": "the model of the same seed that was trained without the feature",
    "P_u": "the probability of the canary’s label with the feature in the image",
    "P_r": "the probability of the canary’s label with a random patch in the image",
    "push": "how much more the feature raises the log odds of a label than the others of its family do, in nats",
    "family": "other features of the same kind, ink and place, none of which was trained on",
    "rank": "the place of the feature among its family, 1 for the one that the model answers to most",
    "KL": "the Kullback–Leibler divergence, how far two answers of a model are apart, in nats",
    "probe": "images that no model was trained on, with which the models are asked",
    "Welch": "a t-test for samples of different spread",
    "welch": "a t-test for samples of different spread",
}


def certificate(config: UniqueFeature, summary: pa.Table, verdict: Verdict) -> Certificate:
    rows = index_rows(summary)
    if config.asks_models:
        return panel_certificate(config, rows, verdict)
    return training_certificate(config, rows, verdict)


def family_noun(feature: Feature) -> str:
    """What the members of the feature's family are."""
    return "names" if isinstance(feature, Words) else "pictures" if isinstance(feature, Picture) else "signs"


def panel_certificate(config: UniqueFeature, rows: Mapping[tuple[str, str], Row], verdict: Verdict) -> Certificate:
    """Of models that are asked alone: the feature's place among its family, or beside references."""
    what = describe_feature(config.feature)
    asked = f"Does a model know {what}" if config.given.there else f"Do models trained on these data know {what}"
    row = next((rows[name] for name in verdict.rows if name in rows), None)
    among, neither, share = "its family", "", LEVEL
    if row is None:
        finding, last = Finding(verdict.answer, "No model has been asked yet."), 0
    else:
        is_beside = row["metric"] == BESIDE
        among = f"{ranked_among(row)}, beside clean models of its kind," if is_beside else among
        neither = " nor by its rank among the family alone" if is_beside else ""
        members, place = family_size_and_rank(row)
        last = math.floor(LEVEL * members + 1e-9)
        share = last / members
        line = rank_line(what, members, place, last)
        finding = Finding(verdict.answer, describe_rank(config, row, verdict), line, config.given.describe)
    unjudged = (
        " The answer is “not judged” where it does not, and pictures that were handed out twice got two "
        "answers or none, "
        "or too few labels are named."
        if config.given.outputs
        else ""
    )
    called_so = f"at place {last:,} or before" if last else "so far in front as no place of so few is"
    return Certificate(
        asked=f"{asked} from the training data?",
        findings=(finding,),
        rule=(
            f"The answer is “memorised” where among {among} it stands {called_so} (a test on one side, p at most "
            f"{LEVEL:g}).{unjudged} The answer is “not seen” where it does not{neither}, a push as small as "
            f"the one that "
            f"matters would have been found in {100 * ENOUGH:.0f} % of cases, a larger one is unlikely (97.5 %), and "
            f"the model does not say the same of {100 * HARDLY:.0f} % of the family or more. {ELSE}"
        ),
        error=(
            f"Of 100 models that never saw it, about {number_per_hundred(share)}"
            " are called so: exactly, if it was drawn by "
            "chance from its family; of a feature that somebody chose, as nearly as it is like the others."
        ),
        beyond=verdict.limits,
        steps=panel_steps(verdict.answer, config),
    )


def family_size_and_rank(row: Row) -> tuple[int, int]:
    """Among how many the feature is ranked, itself included, and its place: 1 is in front of all others."""
    return round(2 * row["null"] - 1), round(row["estimate"])


def describe_rank(config: UniqueFeature, row: Row, verdict: Verdict) -> str:
    members, place = family_size_and_rank(row)
    who = "the model" if row["n"] == 1 else f"{row['n']} models together"
    others = f"{members - place:,} of the {members - 1:,} others" if place > 1 else f"all {members - 1:,} others"
    among = f"{members:,} {family_noun(config.feature)}"
    asked = f"Asked about {among}"
    if row["metric"] == BESIDE:
        asked = f"Beside {json.loads(row['setting'])['references']} clean models, and among {among}"
    told = f"{asked}, {who} singled out this one more than {others}"
    chance = 1000 * row["p_value"]
    number = f"about {chance:.0f}" if chance >= 1 else "fewer than 1"
    after = {
        "not seen": " A push that matters would have shown.",
        "undecided": " A memory may be there all the same and not show.",
        "not judged": " But what was sent back is not what the model that was described says of these pictures.",
    }.get(verdict.answer, "")
    return f"{told}; of 1,000 models that never saw it {number} would stand so far in front.{after}"


def rank_line(what: str, members: int, place: int, last: int) -> NumberLine:
    return NumberLine(
        f"place of {what} among {members:,}, 1 for the one that is singled out most",
        place,
        null=(members + 1) / 2,
        null_words="the middle: its place on average, where nothing is memorised",
        usual=(last + 1, members) if last else None,
        boundaries=(Boundary(last, f"memorised at place {last:,} and before"),) if last else (),
        logarithmic=True,
    )


def panel_steps(answer: str, config: UniqueFeature) -> tuple[str, ...]:
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
    if answer == "not judged":
        return (
            "Ask the owner how the pictures were prepared, and for a table of what the model says of each of them, "
            "unrounded and in single precision; audit that.",
        )
    several = (
        "given.outputs=fold0.csv,fold1.csv,fold2.csv"
        if config.given.outputs
        else "given.models=fold0.pt,fold1.pt,fold2.pt"
        if config.given.there
        else f"seeds={3 * config.seeds}"
    )
    return (
        f"Ask several models of the same data together, such as the folds of a cross-validation: {several}.",
        "If you have the data and the training procedure, train pairs: that finds more.",
    )


def training_certificate(config: UniqueFeature, rows: Mapping[tuple[str, str], Row], verdict: Verdict) -> Certificate:
    """Of pairs of trainings: the effect of the one image, or the canaries that are called one by one."""
    what = "a feature drawn by chance" if config.drawn else describe_feature(config.feature)
    unless = "" if config.drawn else ", if the feature was drawn by chance, and as nearly as it is like others if not"
    is_null = config.carried != config.feature
    told = describe_effect(what, "another feature" if is_null else what, rows, verdict)
    if is_null:
        told += f" They carried another feature than {what}, so this is a null: nothing is to be found."
    return Certificate(
        asked=f"Does a network that is trained in this way keep {what}, if it occurs in one single training image?",
        findings=(Finding(verdict.answer, told, deciding_line(rows, verdict)),),
        rule=(
            "The answer is “memorised” where the 95 % interval of the effect lies above 0 (one side of a t-test over "
            f"pairs of trainings, p at most 0.025, from {LEAST} pairs on), or a network is told from its twin by its "
            f"rank, at {100 * FDR:.0f} % false discoveries, or chance brings as many small ranks in at most "
            f"{1000 * SURELY:g} of 1,000 audits. The answer is “not seen” where none of these holds, the interval lies "
            f"below {SMALLEST:g} and is no wider than that to either side, no more ranks are small than chance brings, "
            f"and a single remembered image could have been found. {ELSE}"
        ),
        error=(
            f"Of 100 audits of a procedure that keeps nothing, at most 8 say memorised{unless}; of 100 where the "
            f"effect is {SMALLEST:g} nats, at most 2 or 3 say not seen."
        ),
        beyond=verdict.limits,
        steps=training_steps(verdict.answer, config, rows),
    )


def deciding_line(rows: Mapping[tuple[str, str], Row], verdict: Verdict) -> NumberLine | None:
    """The row on which the answer rests, on a line."""
    first = next((rows[name] for name in verdict.rows if name in rows), None)
    if first is None or first["estimate"] is None:
        return None
    if first["metric"] == CALLED:
        n = first["n"]
        one = (Boundary(1.0, "memorised from one on"),)
        return NumberLine(f"networks, of {n}, that are told from their twins", first["estimate"] * n, null=0.0,
                          boundaries=one)  # fmt: skip
    if first["metric"] == BEYOND:
        return chances(first["p_value"], SURELY)
    zero = Boundary(0.0, "memorised if the whole interval lies above")
    return line_of(first, FACTOR, boundaries=(zero, Boundary(SMALLEST, "not seen only if it lies below", clears=True)))


def describe_effect(what: str, seen: str, rows: Mapping[tuple[str, str], Row], verdict: Verdict) -> str:
    """The effect of the image with what was `seen` on what is asked about, and which canaries are called."""
    effect = rows.get(ROWS[0])
    calls = next((row for (metric, _), row in rows.items() if metric == CALLED and row["n"]), None)
    told = []
    if effect is None or effect["estimate"] is None:
        told.append("No effect could be measured yet.")
    else:
        effect = blank_weak_interval(effect)
        between = (
            f"no interval, over {describe_sample(effect)}"
            if effect["low"] is None
            else (
                f"95 % interval {probability_factor(effect['low'])} to "
                f"{probability_factor(effect['high'])} times, over {describe_sample(effect)}"
            )
        )
        shown = "" if seen == what else f", when shown {what},"
        told.append(
            f"Networks that saw {seen} in one training image gave that image’s label{shown} "
            f"{probability_factor(effect['estimate'])} times the probability, "
            "on images they never saw, that their twins gave it, "
            f"which had not seen it ({between}; 1 where nothing is memorised)."
        )
    if calls is not None:
        told.append(f"One by one, {round(calls['estimate'] * calls['n'])} of {calls['n']} are told from their twins.")
    beyond = next((row for (metric, _), row in rows.items() if metric == BEYOND), None)
    if verdict.rows and verdict.rows[0][0] == BEYOND and beyond is not None:
        told.append(f"Chance alone brings so many small ranks with {p_in_words(beyond['p_value'])}.")
    return " ".join(told)


def probability_factor(nats: float) -> str:
    """e to the power of an effect, as many times as it makes the label more probable."""
    return f"{math.exp(nats):.3g}" if nats < LARGEST else f"more than {math.exp(LARGEST):.0e}"


def training_steps(answer: str, config: UniqueFeature, rows: Mapping[tuple[str, str], Row]) -> tuple[str, ...]:
    if config.carried != config.feature:
        return steps_of_null(answer, "burnt=null")
    if answer == "memorised":
        return (
            "Take such features out of the training data before training, or train with a safeguard (fewer epochs, "
            "augmentation, differential privacy), and audit again.",
            "Ask the model in use itself, as a file or by its outputs: given.models=model.pt.",
        )
    if answer == "not seen":
        return ("Ask for the other features and places that you fear, with the network and data that you use.",)
    calls = next((row for (metric, _), row in rows.items() if metric == CALLED), None)
    among_all = calls is not None and GLYPHS in json.loads(calls["setting"])
    more = f"Train more canaries (canaries={max(40, 2 * config.canaries)})"
    others = "" if among_all else f" or rank each among more others (family.count={max(1000, 2 * config.family.count)})"
    return (f"{more}{others}: what is stored already is not trained again.",)
