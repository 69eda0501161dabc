"""The audit's answer in words, read off its summary.

It rests on one row that was chosen beforehand, the gain: by how much training on an observation raises its log p. The
memorised observations and their scores are reported beside it; the published score, which is above 0 where nothing is
memorised, does not enter the decision.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tasks.audit import Answer, Verdict
from tasks.audits.density.config import Density
from tasks.audits.density.measures.scores import FEW_SAMPLES, LEVEL
from tasks.training.privacy import Privacy

SMALLEST = 0.1  # nats: a change of the density by about a tenth. Silence about more than that says nothing.
SIGNIFICANT = 0.05
LEAST = 1e-6  # p-value that is given: the tail of a normal approximation says little beyond
FEW = 4  # repetitions: the t interval of three is 2.2 times as wide as that of many
MEAN = json.dumps({"statistic": "mean"})
WHOLE = json.dumps({"models": "whole", "split": "train"})
MEDIAN = json.dumps({"statistic": "median"})
ROWS = (
    ("gain of log p", MEAN),
    ("observations memorised", json.dumps({"false discoveries": LEVEL})),
    ("matched-count M", MEDIAN),
    ("M", MEDIAN),
)
EFFECTIVE = ("effective samples of log p", MEDIAN)
FEW_EFFECTIVE = ("effective samples of log p", json.dumps({"below": FEW_SAMPLES}))
ROUGH = 0.1  # of the samples
LIMITS = (
    "This speaks of the training procedure and data that were audited, at this number of trainings; not of one given "
    "model. An observation without a small p-value is not safe: fewer models show less."
)

SHOWN = {
    "kernel": "a density in one dimension, whose scores are known exactly",
    "duplicates": "the closest pairs of training images",
}

Row = Mapping[str, Any]


def verdict(config: Density, summary: pa.Table) -> Verdict:
    """Memorised: the gain is above 0 with a p-value of at most 5 %, of the randomisation of partitions, or of t over
    repetitions where observations were left out one by one. Not seen: it is not, and the gain's 95 % interval lies
    below SMALLEST. Undecided: neither.
    """
    rows = {(row["metric"], row["setting"]): row for row in summary.to_pylist()}
    gain = rows.get(ROWS[0])
    if gain is None or gain["estimate"] is None:
        return unscored(config, rows)
    answer, evidence = answered(gain, config)
    beside = (*which(rows), *whole(config, rows), *rough(config, rows))
    sentence = " ".join([f"{answer.capitalize()}: {evidence}.", *beside])
    if config.privacy is not None:
        sentence += promised(config.privacy, rows)
    if config.asked == "test":
        sentence += " No model was trained on the images that were asked about: this is a null."
    return Verdict(answer, sentence, " ".join([*published(rows), LIMITS]), tuple(name for name in ROWS if name in rows))


def answered(gain: Row, config: Density) -> tuple[Answer, str]:
    """The answer, and the evidence for it in words."""
    nats, low, high, p_value = gain["estimate"], gain["low"], gain["high"], gain["p_value"]
    models = (
        f"{gain['n']} random partition{'s' if gain['n'] > 1 else ''} into {config.folds} folds"
        if config.estimator == "kfold"
        else f"{gain['n']} pair{'s' if gain['n'] > 1 else ''} of models with and without it"
    )
    few = ", wide for so few" if gain["n"] < FEW else ""
    interval = "no interval" if low is None else f"95 % interval {low:.4g} to {high:.4g}{few}"
    evidence = (
        f"training on an image raises its log p by {nats:.4g} nats on average ({interval}, over {models}; "
        f"{tested(p_value, config)}; 0 where nothing is memorised)"
    )
    if p_value is not None and p_value <= SIGNIFICANT and nats > 0:
        return "memorised", evidence
    if high is not None and high < SMALLEST:
        return "not seen", f"{evidence}; more than {high:.4g} nats is unlikely"
    if high is None:
        return "undecided", f"{evidence}; one repetition has no interval: train more"
    return "undecided", f"{evidence}; as much as {high:.4g} nats cannot be excluded: train more repetitions"


def tested(p_value: float | None, config: Density) -> str:
    """The p-value and its test in words.

    `p_value` is None where all models give the same, where there is one pair of models, or where observations differ in
    their models.
    """
    if p_value is None:
        return "no p-value"
    test = "randomisation" if config.estimator == "kfold" else "one-tailed t-test"
    return f"{test} p {f'= {p_value:.2g}' if p_value >= LEAST else f'< {LEAST:g}'}"


def which(rows: Mapping[tuple[str, str], Row]) -> list[str]:
    """Sentences on the number of memorised observations, and on what the p-values could not show."""
    share = rows.get(ROWS[1])
    if share is None or share["estimate"] is None:
        return []
    count, n = round(share["estimate"] * share["n"]), share["n"]
    sentences = [f"{count:,} of {n:,} observations are memorised by themselves at 5 % false discoveries."]
    smallest = rows.get(("smallest possible p-value", "{}"))
    if smallest is not None:
        needed = math.ceil(smallest["estimate"] * n / LEVEL)  # Benjamini & Hochberg: so many must reach it together
        if needed > 1:
            lost = f"fewer than {needed:,} memorised observations" if needed <= n else "no observation by itself"
            sentences.append(
                f"No p-value here can be below {smallest['estimate']:.2g}, so {lost} could "
                f"{'not ' if needed <= n else ''}be told from chance."
            )
    lacking = next((row for (metric, _), row in rows.items() if metric == "models of an observation, at least"), None)
    if lacking is not None:
        sentences.append(
            f"Some trainings are missing: an observation has {lacking['estimate']:.0f} models or more of the "
            f"{lacking['n']} planned."
        )
    return sentences


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
    """The verdict without a gain: no model was evaluated, or the models' log p cannot be compared."""
    if config.trains:
        why = "no observation has a finite log p by models that trained on it and by one that did not"
        return Verdict("undecided", f"Undecided: {why}.", LIMITS, tuple(rows)[:1])
    shown = " and ".join(what for measure, what in SHOWN.items() if measure in config.measures)
    limits = "Nothing is said of a model, since none was trained and asked about its observations."
    sentence = f"Undecided: no model has been asked. This run shows {shown}."
    return Verdict("undecided", sentence, limits, tuple(rows)[:1])
