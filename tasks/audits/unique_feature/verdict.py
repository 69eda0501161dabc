"""The audit's answer in words, read off its summary.

It rests on rows that were chosen beforehand, the one that decided first. Where pairs were trained: the canary's effect
on M_w over the probe images, and the canaries that are called one by one by their ranks: among all glyphs of their ink
where `ranks` is measured, else among the members of their family. Where single models were evaluated: the feature's
rank among its family, or beside references, and how far it pushes towards a label beside the others. M, its published
test and the training images are supporting evidence and do not enter the decision.

Error rates where nothing is memorised. The interval of the effect lies above 0 in 2.5 % of runs, any canary is called
in at most 5 %, and the ranks of all together are as small as SURELY asks in at most 0.1 %: at most 7.6 % together. An
effect of SMALLEST is said to be not seen in at most 2.5 %. A single model's or panel's rank calls 5 %. The rates of
ranks are exact where the feature was drawn from those it is ranked among; of one that somebody chose they are as good
as its likeness to the others.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tasks.audits.unique_feature.ranks import LEVEL
from tasks.datasets.features import Feature, describe_feature
from tasks.summaries import index_rows, p_in_words
from tasks.verdict import ANSWERS, Answer, Meaning, Verdict

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
    "The effect compares the feature with random patches: it says that the image is remembered, and the ranks that it "
    "is this feature. This speaks of the training procedure, data and feature that were audited, at this number of "
    "trainings; not of one given model. Not seen is not safe: another feature, place or score may show more."
)
CHOSEN_LIMITS = (
    "The feature was chosen, not drawn from its family, so its ranks are as good as its likeness to the others: of "
    "canaries that carried another glyph the letter A was called in 5 of 30 at 5 %."
)
CHOSEN_GLYPH_LIMITS = (
    "The feature was chosen, not drawn from all glyphs, so its ranks are as good as its likeness to them: of canaries "
    "that carried drawn glyphs the 26 letters were called in 5.9 % of 1,664 questions at 5 %, and in 0.2 % at 0.1 %."
)

CALLED = "share of canaries called memorised"
BEYOND = "share of canaries found beyond chance"
SHARED = "shared seeds"  # of the settings of both: canaries share training seeds
GLYPHS = "glyphs"  # of the setting of the first: how many all are, where each canary's was ranked among all
RANK = "rank among the family"
PUSH = "push towards a label"
OTHERS = "push of the other features"  # with the range that holds the central 95 % of them
UPPER = "upper limit of the push"
BESIDE = "rank beside references"
TWICE = "repeated pictures with two answers"
LABELS = "accuracy on labelled pictures"
MISSED = 0.01  # a p-value of the accuracy that the owner states, below which a table is not judged
FOUND = "share of pushes that would be found"
SAME = "largest share of the family of which a model says the same"
ONE_MODEL = "share found by one model"  # of drawn features, at each level
ALLOWED = "largest share that privacy allows"
ENOUGH = 0.8  # of the smallest pushes, without which a panel's silence means nothing
HARDLY = 0.5  # of the family that say the same, from which on its spread is none
SEPARATION = 0.02  # of the distance between labels: what the smallest push may be where logits are small
PANEL_LIMITS = (
    "The rank is exact where the feature was drawn at random from its family; one that somebody chose may differ from "
    "it in more than having been trained on, so its p-value is as good as that likeness. Of an owner who returns "
    "outputs alone, altered ones can hide a memory, but accuse nobody. Not seen is not safe: one model shows a memory "
    "less often than pairs of trainings do, and another feature or place may show more."
)
BESIDE_LIMITS = (
    "The references must be models of the same kind that never saw the feature: how much is found rests on how like "
    "the model they are, but a model that was not trained on a drawn feature is called in 5 % whatever they are."
)

GUESSED = (
    "The order of the pictures follows from the run's seed (given.secret is empty), so an owner who tries seeds could "
    "have told which ones matter."
)

MEANINGS: Mapping[Answer, Meaning] = {
    **{answer: ANSWERS[answer] for answer in ("memorised", "not seen", "undecided")},
    "not judged": Meaning("what was sent back is not what the model that was described says of these pictures"),
}

Row = Mapping[str, Any]


def panel_verdict(
    feature: Feature, summary: pa.Table, tables: int = 0, guessable: bool = False, names: str = ""
) -> Verdict:
    """Memorised: the feature's rank among its family has p of at most 0.05. Not seen: it has not, the upper limit of
    the push lies below the `smallest` that matters, such a push would have been found in ENOUGH of the cases, by the
    family's own spread, and fewer than HARDLY of the family are said the same of. Undecided: neither, or where by the
    family alone it has and beside references it has not. Without the last two of *not seen* a family of wide spread
    would be cleared where chance put the feature low, and so would a model that answers everything alike.

    The push is how much more the feature raises the log odds of a label than the others of its family do, in nats.
    Where the label is unknown, it is the one that the feature favours most, and the others are given the same choice.
    Not judged, unless memorised: a table that was sent has two answers to one picture, or names fewer labels than its
    owner states (p below MISSED), or that cannot be checked; `tables` were sent. An altered table can hide a memory,
    but not feign one. `guessable` says that an owner could find out which pictures matter, and `names`
    what the models are called.

    Log odds are used because log P of a label that models are nearly certain of cannot rise, however much is memorised.

    Where the models were asked beside references, that rank accuses in place of the family's, whatever either says; not
    seen they are where neither is at most 0.05.
    """
    rows = index_rows(summary)
    of_metric: dict[str, Row] = {}
    for row in rows.values():
        of_metric.setdefault(row["metric"], row)
    push, rank, others, upper, found, same, beside = (
        of_metric.get(name) for name in (PUSH, RANK, OTHERS, UPPER, FOUND, SAME, BESIDE)
    )
    if push is None or rank is None or push["estimate"] is None:
        return Verdict("undecided", "Undecided: no model has been asked yet.", PANEL_LIMITS, ())
    power, size = (0.0, SMALLEST) if found is None else (found["estimate"], json.loads(found["setting"])["nats"])
    alike = 0.0 if same is None else same["estimate"]
    high = math.inf if upper is None else upper["estimate"]
    evidence = describe_panel(feature, rank, push, others, names)
    if beside is not None:
        evidence = f"{evidence}; {_describe_references(beside)}"
    touched = [words for row in rows.values() if (words := _describe_alteration(row))]
    checked = sum(metric == TWICE for metric, _ in rows)
    if checked < tables:
        touched.append(f"of {tables - checked} of {tables} tables the pictures handed out twice could not be checked")
    if (rank if beside is None else beside)["p_value"] <= LEVEL:
        answer = "memorised"
    elif touched:
        answer, evidence = "not judged", f"{evidence}; but {' and '.join(touched)}"
    elif rank["p_value"] <= LEVEL:
        answer, evidence = "undecided", f"{evidence}, by which alone it is judged: ask more models of the same data"
    elif alike >= HARDLY:
        answer = "undecided"
        evidence = f"{evidence}; the same is said of {100 * alike:.0f} % of the family, so that a memory could not show"
    elif high < size and power >= ENOUGH:
        answer, evidence = "not seen", f"{evidence}; more than {high:.4g} nats is unlikely"
    else:
        answer = "undecided"
        doubt = (
            f"a push of {size:.2g} nats would have been found in {100 * power:.0f} % of cases"
            if high < size
            else f"as much as {high:.4g} nats cannot be excluded"
        )
        evidence = f"{evidence}; {doubt}: ask more models of the same data"
    sentence = f"{answer.capitalize()}: {evidence}."
    carried = [row for row in (beside, rank, push, others) if row is not None]
    limits = PANEL_LIMITS if beside is None else f"{PANEL_LIMITS} {BESIDE_LIMITS}"
    key = next((json.loads(row["setting"])["key"] for row in rows.values() if row["metric"] == TWICE), "")
    if key:
        limits = f"{limits} The key of the pictures that were handed out has a SHA-256 that begins with {key}."
    if guessable:
        limits = f"{limits} {GUESSED}"
    return Verdict(answer, sentence, limits, tuple((each["metric"], each["setting"]) for each in carried))


def describe_panel(feature: Feature, rank: Row, push: Row, others: Row | None, names: str = "") -> str:
    """The feature's place among its family with p, and its push beside those of the others, in words."""
    n, setting = rank["n"], json.loads(push["setting"])
    members = round(2 * rank["null"] - 1)
    own = f" ({names})" if names else ""
    models = f"{n} models together{own} answer" if n > 1 else f"the model{own} answers"
    raised = "they raise" if n > 1 else "it raises"
    towards = "the canary's label" if setting["label known"] else f"label {setting['label']}, which it favours most,"
    beside = (
        f" (95 % of these by {others['low']:.3g} to {others['high']:.3g})"
        if others is not None and others["low"] is not None
        else ""
    )
    return (
        f"asked about {describe_feature(feature)} and {members - 1} others of its family, {models} to it as number "
        f"{rank['estimate']:.0f} of {members} (rank {p_in_words(rank['p_value'])}); {raised} the log odds of {towards} "
        f"by {push['estimate']:.4g} nats more than the mean of the others{beside}"
    )


def _describe_alteration(row: Row) -> str:
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


def _describe_references(row: Row) -> str:
    """The rank beside references in words."""
    setting = json.loads(row["setting"])
    return (
        f"beside {setting['references']} clean models it ranks {round(row['estimate']):,} of {ranked_among(row)} by "
        f"the slopes of its pixels, {p_in_words(row['p_value'])}"
    )


def ranked_among(row: Row) -> str:
    """Among what a feature is ranked beside references: `all 4,457,400 glyphs`."""
    setting = json.loads(row["setting"])
    glyphs = setting.get(GLYPHS)
    return f"all {glyphs:,} glyphs" if glyphs else f"{setting['others'] + 1} features of its kind"


def smallest_relevant_push(separation: float) -> float:
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
    rows = index_rows(summary)
    asked = f"a feature drawn from the family of {describe_feature(feature)}" if drawn else describe_feature(feature)
    by_effect, evidence = _effect_answer(rows.get(ROWS[0], {}), asked, carried == feature)
    calls = next((row for (metric, _), row in rows.items() if metric == CALLED and row["n"]), None)
    by_rank, words = _rank_answer(calls, next((row for (metric, _), row in rows.items() if metric == BEYOND), None))
    answer = by_rank if by_rank == "memorised" or by_effect == "not seen" else by_effect
    if rows.get(ROWS[0], {}).get("n"):
        evidence = f"{evidence}. {words}"
    elif calls is not None:
        evidence = words if by_rank == "memorised" else f"{evidence}. {words}"
    null = (
        ""
        if carried == feature
        else f" The canaries carried another feature than {describe_feature(feature)}: this is a null."
    )
    sentence = f"{answer.capitalize()}: {evidence}.{null}"
    return Verdict(
        answer,
        sentence,
        " ".join([*_privacy_limits(rows), *([] if drawn else _chosen_limits(calls)), LIMITS]),
        _deciding_rows(rows, by_effect, calls),
        " ".join(_published_test(rows)),
    )


def _deciding_rows(
    rows: Mapping[tuple[str, str], Row], by_effect: Answer, calls: Row | None
) -> tuple[tuple[str, str], ...]:
    """The rows that the answer rests on, the one that decided first: the effect where it accuses or nothing does."""
    by_metric = {name[0]: name for name in rows}
    names = [ROWS[0], *(by_metric[metric] for metric in (CALLED, BEYOND) if metric in by_metric)]
    if by_effect != "memorised" and calls is not None and not json.loads(calls["setting"]).get(SHARED):
        beyond = rows[by_metric[BEYOND]]["p_value"] if BEYOND in by_metric else None
        if calls["estimate"]:
            names.sort(key=lambda name: name[0] != CALLED)
        elif beyond is not None and beyond <= SURELY:
            names.sort(key=lambda name: name[0] != BEYOND)
    return tuple(name for name in names if name in rows)


def _effect_answer(row: Row, asked: str, was_carried: bool) -> tuple[Answer, str]:
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
    over = f"95 % interval {low:.4g} to {high:.4g} over {n} {unit_name(row['unit'], n)}"
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


def _rank_answer(calls: Row | None, beyond: Row | None) -> tuple[Answer, str]:
    """What the canaries' ranks say by themselves, and that in words."""
    if calls is None:
        return "undecided", (
            "No canary is ranked, as its feature has too few others of its kind, so that one remembered canary among "
            "many would not show: lower family.count, or choose another family"
        )
    n, setting = calls["n"], json.loads(calls["setting"])
    among, number = setting[GLYPHS] if GLYPHS in setting else setting["others"] + 1, round(calls["estimate"] * n)
    ranked = f"rank among all {among:,} glyphs" if GLYPHS in setting else f"paired rank among {among - 1} others"
    who = f"{number} of {n} {unit_name('canary', n)} {'is' if number == 1 else 'are'} called memorised one by one"
    words = f"{who} ({ranked}, false discovery rate {100 * FDR:.0f} %)"
    p_value = None if beyond is None else beyond["p_value"]
    if beyond is not None and beyond["estimate"] is not None:
        words += f"; {100 * beyond['estimate']:.0f} % of all are found beyond chance at p of {_level(beyond):.2g}"
        if beyond["low"] is not None:
            words += f" (95 % interval {100 * beyond['low']:.0f} % to {100 * beyond['high']:.0f} %)"
    if setting.get(SHARED):
        return "undecided", f"{words}; canaries share training seeds, so that their ranks decide nothing"
    if number:
        return "memorised", words
    least = math.ceil(n / (FDR * among) - 1e-9)
    if least > 1:
        could = "none" if least > n else f"fewer than {least}"
        words += f"; {could} could {'' if least > n else 'not '}have been called"
    if p_value is not None and p_value <= SURELY:
        return "memorised", f"{words}; chance brings so many small ranks in {p_value:.2g} of runs"
    if p_value is not None and p_value <= LEVEL:
        return "undecided", f"{words}; chance brings so many small ranks in {p_value:.2g} of runs: train more canaries"
    if least > 1:
        advice = f": rank each among more others (family.count={math.ceil(n / FDR - 1e-9) - 1})"
        return "undecided", words if GLYPHS in setting else f"{words}{advice}"
    return "not seen", words


def _chosen_limits(calls: Row | None) -> list[str]:
    """What ranks rest on where the feature was chosen."""
    if calls is None:
        return []
    return [CHOSEN_GLYPH_LIMITS if GLYPHS in json.loads(calls["setting"]) else CHOSEN_LIMITS]


def _level(beyond: Row) -> float:
    return float(json.loads(beyond["setting"])["p"])


def describe_sample(row: Row) -> str:
    """The sample of a row in words: `12 pairs of trainings`."""
    return f"{row['n']} {unit_name(row['unit'], row['n'])}"


def unit_name(unit: str, n: int) -> str:
    """The unit in the singular or plural, for `n` of them."""
    if n == 1:
        return unit
    return "pairs of trainings" if unit == "pair of trainings" else "canaries" if unit == "canary" else f"{unit}s"


def _published_test(rows: Mapping[tuple[str, str], Row]) -> list[str]:
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


def _privacy_limits(rows: Mapping[tuple[str, str], Row]) -> list[str]:
    """What differential privacy allows one model to show of drawn features, and what it did, at the first level."""
    found: dict[str, Row] = {}
    for (metric, _), row in rows.items():
        found.setdefault(metric, row)
    if ONE_MODEL not in found or ALLOWED not in found:
        return []
    share, bound, setting = found[ONE_MODEL], found[ALLOWED], json.loads(found[ALLOWED]["setting"])
    promise, level = f"({setting['epsilon']:g}, {setting['delta']:g})", f"{100 * setting['level']:g} %"
    return [
        f"Training was {promise}-differentially private in each training image, by which one model finds at most "
        f"{100 * bound['estimate']:.3g} % of drawn features at {level}; it found "
        f"{round(share['estimate'] * share['n'])} of {share['n']}. Nothing bounds what pairs show: they share noise."
    ]
