"""The audit's answer in words, read off its summary.

It rests on the tail: on how many observations are memorised beyond chance, by more than is negligible. What the model
fits better on average, the generalisation gap, stands beside it under its own name: it says nothing of any observation,
and alone it never makes the answer *memorised*; nor does the published score enter, which is above 0 where nothing is
memorised.

**Rule.** Memorised: observations are called at 5 % false discoveries; or, with folds, so many have p-values of at most
5 % that chance brings as many in one run of 1,000. Not seen: no observation is called; chance brings as many small
p-values in one run of 20 or more; the 95 % interval of the gap lies below `negligible`; and a single observation that
is memorised by `detectable` nats would be called in 80 % of cases, by the upper limit of the memory that is found in so
many. Undecided: the rest, and with folds every run in which no observation is called and p-values, of fewer than 9,999
permutations and not of all there are, cannot be counted together. `negligible` is one for both: p-values are that
training raises log p by no more than that.

**Error.** Where nothing is memorised by more than is negligible, observations are called in 5 % of runs at most, and
the second happens in 0.1 %.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tasks.audits.density.config import Density
from tasks.audits.density.measures.scores import BEYOND_CHANCE, FEW_SAMPLES, FOUND, LEAST_FOUND
from tasks.audits.density.tail import LEAST_DRAWS, LEVEL
from tasks.summaries import blank_weak_interval, index_rows, p_in_words
from tasks.training.recipe import Privacy
from tasks.verdict import Answer, Verdict

SIGNIFICANT = 0.05
SURELY = 0.001  # of all together: beside the 5 % of those that are called it is little
FEW = 4  # repetitions: the t interval of three is 2.2 times as wide as that of many
MEAN = json.dumps({"statistic": "mean"})
WHOLE = json.dumps({"models": "whole", "split": "train"})
MEDIAN = json.dumps({"statistic": "median"})
ROWS = (
    ("observations memorised", json.dumps({"false discoveries": LEVEL})),
    ("generalisation gap of log p", MEAN),
    ("matched-count M", MEDIAN),
    ("M", MEDIAN),
)
OF_CALLED = "matched-count M of the memorised"
EFFECTIVE = ("effective samples of log p", MEDIAN)
FEW_EFFECTIVE = ("effective samples of log p", json.dumps({"below": FEW_SAMPLES}))
ROUGH = 0.1  # of the samples
LIMITS = (
    "This speaks of the training procedure and data that were audited, at this number of trainings; not of one given "
    "model. An observation without a small p-value is not safe: fewer models show less. Images are held out one by "
    "one: where one has near copies in the data these are trained on when it is held out, and its memory cannot be "
    "seen; the measure `duplicates` finds the closest pairs."
)

SHOWN = {
    "kernel": "a density in one dimension, whose scores are known exactly",
    "duplicates": "the closest pairs of training images",
}

Row = Mapping[str, Any]


def verdict(config: Density, summary: pa.Table) -> Verdict:
    """The answer by the module's rule, and what it rests on in words."""
    rows = index_rows(summary)
    called, gap = rows.get(ROWS[0]), rows.get(ROWS[1])
    if called is None or called["estimate"] is None:
        return unscored(config, rows)
    of_metric = {metric: row for (metric, _), row in rows.items()}
    beyond, found = of_metric.get(BEYOND_CHANCE), of_metric.get(LEAST_FOUND)
    answer = answered(config, called, beyond, gap, found)
    beside = (
        *deciding(called, beyond),
        *together(called, beyond),
        *of_gap(config, gap),
        *silent(answer, config, called, beyond, gap, found),
        *lacking(rows),
        *whole(config, rows),
        *rough(config, rows),
    )
    sentence = " ".join([f"{answer.capitalize()}: {memorised(config, rows, called)}.", *beside])
    if config.privacy is not None:
        sentence += promised(config.privacy, rows)
    if config.is_null:
        sentence += " No model was trained on the images that were asked about: this is a null."
    return Verdict(answer, sentence, LIMITS, decisive(answer, rows, called), " ".join(published(rows)))


def decisive(answer: Answer, rows: Mapping[tuple[str, str], Row], called: Row) -> tuple[tuple[str, str], ...]:
    """The rows that the answer rests on, the one that decided first."""
    names = {name[0]: name for name in rows}
    of_all, found = (names.get(metric) for metric in (BEYOND_CHANCE, LEAST_FOUND))
    in_order = [ROWS[0], of_all] if called["estimate"] or answer != "memorised" else [of_all, ROWS[0]]
    return tuple(name for name in (*in_order, ROWS[1], found) if name is not None and name in rows)


def answered(config: Density, called: Row, beyond: Row | None, gap: Row | None, found: Row | None) -> Answer:
    """The answer by the module's rule."""
    by_chance = 1.0 if beyond is None or beyond["p_value"] is None else beyond["p_value"]
    if called["estimate"] > 0 or by_chance <= SURELY:
        return "memorised"
    negligible = gap is not None and gap["high"] is not None and gap["high"] < config.negligible
    unremarkable = by_chance > SIGNIFICANT and (beyond is not None or config.estimator == "loo")
    return "not seen" if negligible and powerful(config, found) and unremarkable else "undecided"


def powerful(config: Density, found: Row | None) -> bool:
    """Whether a single observation would surely be found with as much memory as the config asks."""
    return found is not None and found["high"] is not None and found["high"] <= config.detectable


def memorised(config: Density, rows: Mapping[tuple[str, str], Row], called: Row) -> str:
    """How many observations are called, and by how much they are memorised, in words."""
    count, n = round(called["estimate"] * called["n"]), called["n"]
    which = (
        f"{count:,} of {n:,} observations are"
        if count > 1
        else f"{'one' if count else 'none'} of {n:,} observations is"
    )
    words = f"{which} memorised by more than {config.negligible:g} nats at {100 * LEVEL:g} % false discoveries"
    median, highest = (rows.get((OF_CALLED, json.dumps({"statistic": name}))) for name in ("median", "highest"))
    if not count or median is None or highest is None:
        return words
    typical, most = median["estimate"], highest["estimate"]
    return f"{words} (matched-count M {typical:.4g} nats at the median of these, {most:.4g} at most)"


def deciding(called: Row, beyond: Row | None) -> list[str]:
    """Which count makes the answer *memorised*, in a sentence; none where the answer is another."""
    if called["estimate"] > 0:
        return ["This count decides the answer."]
    if beyond is not None and beyond["p_value"] is not None and beyond["p_value"] <= SURELY:
        return ["The test of all observations together decides the answer."]
    return []


def together(called: Row, beyond: Row | None) -> list[str]:
    """How many observations are memorised beyond chance, whichever these are, in sentences."""
    if beyond is None or beyond["p_value"] is None:
        return []
    n, p = called["n"], p_in_words(beyond["p_value"])
    if beyond["p_value"] > SIGNIFICANT:
        return [f"The p-values of all {n:,} observations together show no more than chance ({p})."]
    if beyond["p_value"] > SURELY:
        return [
            f"The p-values of all {n:,} observations together do not show at {100 * SURELY:g} % that any is memorised "
            f"({p})."
        ]
    least = f"The p-values of all {n:,} observations together show that at least {round(beyond['low'] * n):,} are "
    whose = (
        "That number includes those called above; the others cannot be identified."
        if called["estimate"] > 0
        else "These cannot be identified."
    )
    return [f"{least}memorised ({p}). {whose}"]


def of_gap(config: Density, gap: Row | None) -> list[str]:
    """The generalisation gap in a sentence; none where no observation has one."""
    if gap is None or gap["estimate"] is None:
        return []
    nats, (low, high) = gap["estimate"], (blank_weak_interval(gap)[end] for end in ("low", "high"))
    models = (
        f"{gap['n']} random partition{'s' if gap['n'] > 1 else ''} into {config.folds} folds"
        if config.estimator == "kfold"
        else f"{gap['n']} pair{'s' if gap['n'] > 1 else ''} of models with and without it"
    )
    few = ", wide for so few" if gap["n"] < FEW else ""
    interval = "no interval" if low is None else f"95 % interval {low:.4g} to {high:.4g}{few}"
    return [
        f"The generalisation gap, by which training on an image raises its log p on average, is {nats:.4g} nats "
        f"({interval}, over {models}; {tested(gap['p_value'], config)})."
    ]


def tested(p_value: float | None, config: Density) -> str:
    """The p-value of the gap and its test in words.

    `p_value` is None where all models give the same, where there is one pair of models, or where observations differ in
    their models.
    """
    if p_value is None:
        return "no p-value"
    test = "randomisation" if config.estimator == "kfold" else "one-tailed t-test"
    return f"{test} p {shown(p_value)} that it is at most {config.negligible:g}"


def shown(p_value: float) -> str:
    return p_in_words(p_value).removeprefix("p ")


def silent(
    answer: Answer, config: Density, called: Row, beyond: Row | None, gap: Row | None, found: Row | None
) -> list[str]:
    """What would have been found, and why nothing is decided, in sentences."""
    sentences = []
    if found is not None and found["estimate"] is not None:
        upper = "no upper limit" if found["high"] is None else f"95 % interval up to {found['high']:.4g}"
        sentences.append(
            f"A single observation that is memorised by {found['estimate']:.4g} nats ({upper}) would be found in "
            f"{100 * FOUND:.0f} % of cases."
        )
    elif found is not None:
        because = " An observation can be called here because many have small p-values." if called["estimate"] else ""
        sentences.append(
            f"If only one of the {called['n']:,} observations were memorised, this run would call it in fewer than "
            f"{100 * FOUND:.0f} % of cases, however strongly it were memorised.{because} To find a single one, train "
            "more repetitions."
        )
    if answer != "undecided":
        return sentences
    if beyond is not None and beyond["p_value"] is not None and beyond["p_value"] <= SIGNIFICANT:
        sentences.append(f"Chance brings as many small p-values in {100 * beyond['p_value']:.2g} % of runs alone.")
    if beyond is None and config.estimator == "kfold":
        sentences.append(f"P-values from fewer than {LEAST_DRAWS:,} permutations are not counted together: draw more.")
    if found is not None and found["estimate"] is not None and not powerful(config, found):
        sentences.append(
            f"For *not seen* it would have to be found from {config.detectable:g} nats on: train more repetitions."
        )
    if gap is None or gap["estimate"] is None:
        return sentences
    if blank_weak_interval(gap)["high"] is None:
        few = "One repetition has" if gap["n"] == 1 else f"{gap['n']} repetitions have"
        sentences.append(f"{few} no interval of the gap: train more.")
    elif gap["high"] >= config.negligible:
        sentences.append(
            f"The gap may be as much as {gap['high']:.4g} nats, which is not negligible, and is no evidence that any "
            "observation is memorised."
        )
    return sentences


def lacking(rows: Mapping[tuple[str, str], Row]) -> list[str]:
    """A sentence on missing trainings."""
    fewest = next((row for (metric, _), row in rows.items() if metric == "models of an observation, at least"), None)
    if fewest is None:
        return []
    return [
        f"Some trainings are missing: an observation has {fewest['estimate']:.0f} models or more of the {fewest['n']} "
        "planned."
    ]


def whole(config: Density, rows: Mapping[tuple[str, str], Row]) -> list[str]:
    """A sentence on the missing model of all data; none where it is present."""
    if config.estimator == "loo" or ("loss", WHOLE) in rows:
        return []
    return ["The training on all data is missing: there is no loss of it, and no image drawn."]


def rough(config: Density, rows: Mapping[tuple[str, str], Row]) -> list[str]:
    """A warning where log p of half of the observations is effectively from less than a tenth of the samples."""
    median, below = rows.get(EFFECTIVE), rows.get(FEW_EFFECTIVE)
    if median is None or below is None or median["estimate"] >= ROUGH * config.samples:
        return []
    return [
        f"Log p is rough: of the {config.samples} codes that it is estimated with half of the observations effectively "
        f"have {median['estimate']:.3g} or fewer, and {100 * below['estimate']:.0f} % fewer than {FEW_SAMPLES} (median "
        f"over an observation's models, n = {median['n']:,}); a score is then of the encoder as well as of the density."
    ]


def promised(privacy: Privacy, rows: Mapping[tuple[str, str], Row]) -> str:
    """A sentence on the guarantee of differential privacy, and how it compares with the scores."""
    promise = (
        f" Training was ({privacy.epsilon:g}, {privacy.delta:g})-differentially private, which bounds no single score"
    )
    by_metric = {metric: row for (metric, _), row in rows.items()}
    largest, above = by_metric.get("largest M of a row left out"), by_metric.get("rows above epsilon")
    if largest is None or above is None:
        return f"{promise}."
    count = round(above["estimate"] * above["n"])
    return f"{promise}: the largest is {largest['estimate']:.4g} nats, and {count} of {above['n']} are above epsilon."


def published(rows: Mapping[tuple[str, str], Row]) -> list[str]:
    """A sentence on the published score and its value where nothing is memorised."""
    median, matched = rows.get(ROWS[3]), rows.get(ROWS[2])
    if median is None or matched is None or median["estimate"] is None or median["null"] is None:
        return []
    return [
        f"The published score has a median of {median['estimate']:.4g} nats, and of {median['null']:.4g} where nothing "
        f"is memorised; with as many models on either side it is {matched['estimate']:.4g}."
    ]


def unscored(config: Density, rows: Mapping[tuple[str, str], Row]) -> Verdict:
    """The verdict without a score: no model was evaluated, or the models' log p cannot be compared."""
    if config.trains:
        why = "no observation has log p by models that trained on it and by one that did not"
        return Verdict("undecided", f"Undecided: {why}.", LIMITS, tuple(rows)[:1])
    shown = " and ".join(what for measure, what in SHOWN.items() if measure in config.measures)
    limits = "Nothing is said of a model, since none was trained and asked about its observations."
    sentence = f"Undecided: no model has been asked. This run shows {shown}."
    return Verdict("undecided", sentence, limits, tuple(rows)[:1])
