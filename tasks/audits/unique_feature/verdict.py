"""The audit's answer in words, read off its summary.

It rests on rows that were chosen beforehand. Where pairs were trained: the canary's effect on M_w over the probe
images, and the canaries that are called one by one by their paired ranks. Where single models were evaluated: the
feature's push towards a label with its rank among the family. M, its published test and the training images are
supporting evidence and do not enter the decision.

Error rates where nothing is memorised. The interval of the effect lies above 0 in 2.5 % of runs, any canary is called
in at most 5 %, and the ranks of all together are as small as SURELY asks in at most 0.1 %: at most 7.6 % together. An
effect of SMALLEST is said to be not seen in at most 2.5 %. A single model's or panel's rank calls 5 %. The rates of
ranks are exact where the feature was drawn from its family; of one that somebody chose they are as good as its likeness
to the others.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tasks.audit import ANSWERS, Answer, Meaning, Verdict
from tasks.audits.unique_feature.ranks import LEVEL
from tasks.datasets.features import Feature, called

# Nats: a change of the label's probability by about a tenth. Where the interval excludes this much, the audit had the
# power to see what would matter; where it does not, its silence means nothing.
SMALLEST = 0.1
FDR = 0.05  # of the canaries that are called one by one
SURELY = 0.001  # so small a p-value of the number of small ranks says that some canary is remembered, whichever it is
# The interval's lower end accuses at 2.5 %. With fewer pairs of trainings no assumption-free test reaches that, even if
# all of them agree: 2**-5 is above it.
LEAST = 6
ROWS = (
    ("M_w effect", json.dumps({"images": "probe"})),
    ("M_w effect", json.dumps({"images": "train"})),
    ("M effect", "{}"),
)
LIMITS = (
    "This speaks of the training procedure, data and feature that were audited, at this number of trainings; not of "
    "one given model. Not seen is not safe: another feature, place or score may show more."
)
CHOSEN = (
    "The feature was chosen, not drawn from its family, so its ranks are as good as its likeness to the others: of "
    "canaries that carried another glyph the letter A was called in 5 of 30 at 5 %."
)

CALLED = "share of canaries called memorised"
BEYOND = "share of canaries found beyond chance"
SHARED = "shared seeds"  # of the settings of both: canaries share training seeds
PUSH = "push towards a label"
TWICE = "repeated pictures with two answers"
LABELS = "accuracy on labelled pictures"
MISSED = 0.01  # a p-value of the accuracy that the owner states, below which a table is not judged
FOUND = "share of pushes that would be found"
SAME = "largest share of the family of which a model says the same"
ENOUGH = 0.8  # of the smallest pushes, without which a panel's silence means nothing
HARDLY = 0.5  # of the family that say the same, from which on its spread is none
SEPARATION = 0.02  # of the distance between labels: what the smallest push may be where logits are small
PANEL_LIMITS = (
    "The rank is exact where the feature was drawn at random from its family; one that somebody chose may differ from "
    "it in more than having been trained on, so its p-value is as good as that likeness. Of an owner who returns "
    "outputs alone, altered ones can hide a memory, but accuse nobody. Not seen is not safe: one model shows a memory "
    "less often than pairs of trainings do, and another feature or place may show more."
)

MEANINGS: Mapping[Answer, Meaning] = {
    **{answer: ANSWERS[answer] for answer in ("memorised", "not seen", "undecided")},
    "not judged": Meaning("what was sent back is not what one model says of these pictures"),
}

Row = Mapping[str, Any]


def panel_verdict(feature: Feature, summary: pa.Table) -> Verdict:
    """Memorised: the feature's rank among its family has p of at most 0.05. Not seen: it has not, the push lies below
    the `smallest` that matters, such a push would have been found in ENOUGH of the cases, by the family's own spread,
    and fewer than HARDLY of the family are said the same of. Undecided: neither. Without the last two a family of wide
    spread would be cleared where chance put the feature low, and so would a model that answers everything alike.

    The push is how much more the feature raises the log odds of a label than the others of its family do, in nats.
    Where the label is unknown, it is the one that the feature favours most, and the others are given the same choice.
    Not judged, unless memorised: a table that was sent has two answers to one picture, or names fewer labels than its
    owner states (p below MISSED). An altered table can hide a memory, but not feign one.

    Log odds are used because log P of a label that models are nearly certain of cannot rise, however much is memorised.
    """
    every = summary.to_pylist()
    rows = [row for row in every if row["metric"] == PUSH]
    found = next((row for row in every if row["metric"] == FOUND), None)
    power, size = (0.0, SMALLEST) if found is None else (found["estimate"], json.loads(found["setting"])["nats"])
    same = next((row["estimate"] for row in every if row["metric"] == SAME), 0.0)
    if not rows or rows[0]["estimate"] is None:
        return Verdict("undecided", "Undecided: no model has been asked yet.", PANEL_LIMITS, ())
    row = rows[0]
    setting = json.loads(row["setting"])
    n, p_value, asked = row["n"], row["p_value"], called(feature)
    models = f"{n} models together move" if n > 1 else "the model moves"
    towards = "the canary's label" if setting["label known"] else f"label {setting['label']}, which it favours most"
    evidence = (
        f"asked about {asked}, {models} the log odds of {towards} by {row['estimate']:.4g} nats "
        f"more than for other features of its family (95 % interval {row['low']:.4g} to {row['high']:.4g} by the "
        f"family's own spread; {row['null']:.4g} where nothing is memorised); rank p = {p_value:.3g}"
    )
    touched = [words for row in every if (words := _touched(row))]
    if p_value <= LEVEL:
        answer = "memorised"
    elif touched:
        answer, evidence = "not judged", f"{evidence}; but {' and '.join(touched)}"
    elif same >= HARDLY:
        answer = "undecided"
        evidence = f"{evidence}; the same is said of {100 * same:.0f} % of the family, so that a memory could not show"
    elif row["high"] < size and power >= ENOUGH:
        answer, evidence = "not seen", f"{evidence}; more than {row['high']:.4g} nats is unlikely"
    else:
        answer = "undecided"
        doubt = (
            f"a push of {size:.2g} nats would have been found in {100 * power:.0f} % of cases"
            if row["high"] < size
            else f"as much as {row['high']:.4g} nats cannot be excluded"
        )
        evidence = f"{evidence}; {doubt}: ask more models of the same data"
    sentence = f"{answer.capitalize()}: {evidence}."
    keys = sorted({json.loads(row["setting"])["key"] for row in every if row["metric"] == TWICE})
    told = f" The key of the pictures that were handed out has a SHA-256 that begins with {keys[0]}." if keys else ""
    return Verdict(answer, sentence, PANEL_LIMITS + told, ((row["metric"], row["setting"]),))


def _touched(row: Row) -> str:
    """Why the table of this row is not what a model says; no text where nothing speaks for that."""
    if row["metric"] == TWICE and row["estimate"]:
        table = json.loads(row["setting"])["table"]
        number = round(row["estimate"] * row["n"])
        return f"in table {table} {number} of {row['n']} pictures that were handed out twice got two answers"
    if row["metric"] == LABELS and row["p_value"] is not None and row["p_value"] < MISSED:
        table, right = json.loads(row["setting"])["table"], round(row["estimate"] * row["n"])
        return (
            f"table {table} names the labels of {right} of {row['n']} pictures, where {100 * row['null']:.3g} % are "
            f"stated (p = {row['p_value']:.2g})"
        )
    return ""


def smallest(separation: float) -> float:
    """The smallest push that matters, in nats, of a model whose labels are so far apart (`ranks.separation`).

    SMALLEST, and less where logits are so small that SEPARATION of their distance is: else an owner who divides them by
    a temperature would be cleared.
    """
    return min(SMALLEST, SEPARATION * separation)


def verdict(feature: Feature, carried: Feature, summary: pa.Table, drawn: bool = False) -> Verdict:
    """Memorised: the 95 % interval of the effect lies above 0, at least one canary is called one by one, or more ranks
    are small than chance brings at SURELY. Not seen: none of these, the interval lies below SMALLEST and reaches less
    than SMALLEST to either side of the effect, no more ranks are small than chance brings at LEVEL, and a single
    remembered canary could have been called. Undecided: neither of these.

    The effect is what one training image with the feature did to M_w = log P(y | feature) - log P(y | random patch),
    in nats, against the twin of the same seed; with `drawn` every canary had a feature of its own. With fewer than
    LEAST pairs of trainings it decides nothing: an interval over so few rests on the assumption of normality alone.
    Canaries are called at a false discovery rate of FDR (`canary_verdicts`). Those that share a training seed are no
    independent sample, so that their ranks decide nothing.
    """
    rows = {(row["metric"], row["setting"]): row for row in summary.to_pylist()}
    asked = f"a feature drawn from the family of {called(feature)}" if drawn else called(feature)
    answer, evidence = _answered(rows.get(ROWS[0], {}), asked, carried == feature)
    calls = next((row for (metric, _), row in rows.items() if metric == CALLED and row["n"]), None)
    by_rank, words = _ranked(calls, next((row for (metric, _), row in rows.items() if metric == BEYOND), None))
    if by_rank == "memorised" or answer == "not seen":
        answer = by_rank
    if calls is not None or rows.get(ROWS[0], {}).get("n"):
        evidence = f"{evidence}. {words}"
    null = (
        "" if carried == feature else f" The canaries carried another feature than {called(feature)}: this is a null."
    )
    sentence = f"{answer.capitalize()}: {evidence}.{null}"
    return Verdict(
        answer,
        sentence,
        " ".join([*_published(rows), *([CHOSEN] if calls is not None and not drawn else []), LIMITS]),
        tuple(name for name in (*ROWS, *(key for key in rows if key[0] in (CALLED, BEYOND))) if name in rows),
    )


def _answered(row: Row, asked: str, was_carried: bool) -> tuple[Answer, str]:
    """The answer, and the evidence for it in words."""
    if not row or not row["n"] or row["estimate"] is None:
        return "undecided", "no pair of trainings has been scored"
    n, low, high = row["n"], row["low"], row["high"]
    seen = f"a single training image with {asked if was_carried else 'another one'}"
    short = "that feature" if asked.startswith("a feature") else asked
    moved = (
        f"{seen} changes log P(its label | {short}) - log P(its label | a random patch), on images the networks never "
        f"saw, by {row['estimate']:.4g} nats"
    )
    if low is None or high is None:
        alone = "one training seed" if row["unit"] == "training seed" else "one pair of trainings"
        return "undecided", f"{moved}; {alone} has no interval: train at least {LEAST} canaries, each with its own seed"
    factor = f"a factor of {math.exp(row['estimate']):.3g} in probability"
    over = f"95 % interval {low:.4g} to {high:.4g} over {n} {counted(row['unit'], n)}"
    evidence = f"{moved} ({over}; {factor}; 0 where nothing is memorised)"
    if n < LEAST:
        return "undecided", f"{evidence}; so few decide nothing: train at least {LEAST} canaries"
    if low > 0:
        return "memorised", evidence
    if high >= SMALLEST:
        return "undecided", f"{evidence}; as much as {high:.4g} nats cannot be excluded: train more canaries"
    if (high - low) / 2 >= SMALLEST:
        return "undecided", f"{evidence}; an effect of {SMALLEST:g} nats might not have shown: train more canaries"
    return "not seen", f"{evidence}; more than {high:.4g} nats is unlikely"


def _ranked(calls: Row | None, beyond: Row | None) -> tuple[Answer, str]:
    """What the canaries' ranks say by themselves, and that in words."""
    if calls is None:
        return "undecided", (
            "No canary is ranked, as its feature has too few others of its kind, so that one remembered canary among "
            "many would not show: lower family.count, or choose another family"
        )
    n, setting = calls["n"], json.loads(calls["setting"])
    others, number = setting["others"], round(calls["estimate"] * calls["n"])
    who = f"{number} of {n} {counted('canary', n)} {'is' if number == 1 else 'are'} called memorised one by one"
    words = f"{who} (paired rank among {others} others, false discovery rate {100 * FDR:.0f} %)"
    p_value = None if beyond is None else beyond["p_value"]
    if beyond is not None and beyond["estimate"] is not None:
        words += f"; {100 * beyond['estimate']:.0f} % of all are found beyond chance at p of {_level(beyond):.2g}"
        if beyond["low"] is not None:
            words += f" (95 % interval {100 * beyond['low']:.0f} % to {100 * beyond['high']:.0f} %)"
    if setting.get(SHARED):
        return "undecided", f"{words}; canaries share training seeds, so that their ranks decide nothing"
    if number:
        return "memorised", words
    least = math.ceil(n / (FDR * (others + 1)) - 1e-9)
    if least > 1:
        could = "none" if least > n else f"fewer than {least}"
        words += f"; {could} could {'' if least > n else 'not '}have been called"
    if p_value is not None and p_value <= SURELY:
        return "memorised", f"{words}; chance brings so many small ranks in {p_value:.2g} of runs"
    if p_value is not None and p_value <= LEVEL:
        return "undecided", f"{words}; chance brings so many small ranks in {p_value:.2g} of runs: train more canaries"
    if least > 1:
        return "undecided", f"{words}: rank each among more others (family.count={math.ceil(n / FDR - 1e-9) - 1})"
    return "not seen", words


def _level(beyond: Row) -> float:
    return float(json.loads(beyond["setting"])["p"])


def counted(unit: str, n: int) -> str:
    """The unit in the singular or plural, for `n` of them."""
    if n == 1:
        return unit
    return "pairs of trainings" if unit == "pair of trainings" else "canaries" if unit == "canary" else f"{unit}s"


def _published(rows: Mapping[tuple[str, str], Row]) -> list[str]:
    """The result of the published test, for canary models and for their twins, which never saw the feature."""
    rates = [
        rows.get(("rate called memorised", json.dumps({"model": model, "test": "welch"})))
        for model in ("canary", "twin")
    ]
    if any(row is None or not row["n"] for row in rates):
        return []
    canary, twin = (f"{round(row['estimate'] * row['n'])} of {row['n']}" for row in rates if row is not None)
    return [
        f"The published t-test, which takes probe images for the sample, calls {canary} canary models memorised, and "
        f"{twin} of their twins, which never saw the feature."
    ]
