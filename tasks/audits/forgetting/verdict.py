"""The audit's answer in words, read off its summary.

It rests on the one-sided rho of the targets, whose intervals are compared with 1 - margin; where there are several, on
all of them together. That models trained on the query set can be told from calibration models is what it takes for
granted, so without it nothing is decided.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from tasks.audit import Answer, Verdict
from tasks.audits.forgetting.config import Forgetting
from tasks.audits.forgetting.decision import Decision, decided
from tasks.audits.forgetting.measures.fits import ADEQUATE

Row = Mapping[str, Any]
SURER = 0.05  # of rho: what the two distances may differ by without being spoken of
ONE_SIDED = json.dumps({"score": "one-sided"})
LISTED = 12  # targets that are told one by one
LIMITS = (
    "The audit compares what models say of the query set as a whole: a few of its images may be held without moving "
    "rho. It is as good as the calibration set's likeness to what the target was trained on instead: a target of "
    "another domain, or better trained, has another rho for reasons that are no memory."
)


def verdict(config: Forgetting, summary: pa.Table) -> Verdict:
    """Forgotten: every target's rho lies above 1 - margin. Not forgotten: that of one at least lies below. Undecided:
    neither, or nothing can be told.
    """
    rows = {(row["metric"], row["setting"]): row for row in summary.to_pylist()}
    rhos = [row for (metric, _), row in rows.items() if metric == "one-sided rho"]
    if not rhos:
        why = "this run shows images only" if "scores" not in config.measures else "no ratios have been computed"
        return Verdict("undecided", f"Undecided: {why}.", LIMITS, tuple(rows)[:1])
    decisions = [decided_on(rows, row, config.margin) for row in rhos]
    answers = [decision.answer for decision in decisions]
    answer: Answer = (
        "not forgotten" if "not forgotten" in answers else "undecided" if "undecided" in answers else "forgotten"
    )
    if len(rhos) == 1:
        sentence = f"{answer.capitalize()}: {evidence(rhos[0], decisions[0].reason)}"
    else:
        counts = ", ".join(
            f"{answers.count(kind)} {kind}" for kind in ("forgotten", "not forgotten", "undecided") if kind in answers
        )
        listed = "; ".join(
            f"{name(row)} is {decision.answer}: {evidence(row, decision.reason)}"
            for row, decision in list(zip(rhos, decisions, strict=True))[:LISTED]
        )
        sentence = f"{answer.capitalize()}: of {len(rhos)} targets, {counts}. {listed}"
    about = [*rightly(rows, len(rhos)), threshold(config), *smallest(rows)]
    warnings = [*unlearnt(rows), *of_another_design(config)]
    sentence = " ".join([f"{sentence}.", *about, *warnings])
    limits = " ".join([*surer(rows, rhos), *published(rows, rhos), LIMITS])
    return Verdict(answer, sentence, limits, tuple((row["metric"], row["setting"]) for row in rhos))


def name(row: Row) -> str:
    return str(json.loads(row["setting"])["target"])


def decided_on(rows: Mapping[tuple[str, str], Row], row: Row, margin: float) -> Decision:
    """The decision on the target of a row of rho, as its table of ratios has it."""
    if not row["n"]:
        return Decision("undecided", "no model of it, or no query model, has answered")
    own = rows.get(("separation", json.dumps({"score": "one-sided", "target": name(row)})))
    separation = own or rows.get(("separation", ONE_SIDED))
    apart = None if separation is None else separation["estimate"]
    return decided(row["estimate"], row["low"], row["high"], apart, margin)


def evidence(row: Row, reason: str | None) -> str:
    """rho in words, and why nothing is decided where nothing is."""
    if not row["n"]:
        return str(reason)
    if row["estimate"] is None:
        return f"rho is undefined ({reason})"
    interval = "no interval" if row["low"] is None else f"95 % interval {row['low']:.3g} to {row['high']:.3g}"
    models = f"{row['n']} model{'s' if row['n'] > 1 else ''}"
    why = f": {reason}" if reason else ""
    return f"one-sided rho {row['estimate']:.3g} ({interval}, {models}{why})"


def threshold(config: Forgetting) -> str:
    return (
        "rho is about 1 where the query set D_Q was never trained on, as in models of the calibration set D_C, and "
        f"about 0 in models of D_Q; an interval wholly below {1 - config.margin:.4g} counts as not forgotten, wholly "
        "above it as forgotten."
    )


def rightly(rows: Mapping[tuple[str, str], Row], targets: int) -> list[str]:
    """How many of the targets whose training is known are decided as they were trained."""
    right = rows.get(("targets decided rightly", ONE_SIDED))
    if right is None or targets < 2:
        return []
    wrong = rows[("targets decided wrongly", ONE_SIDED)]
    counts = [round(share["estimate"] * share["n"]) for share in (right, wrong)]
    return [f"By what they were trained on, {counts[0]} of {right['n']} are decided rightly and {counts[1]} wrongly."]


def smallest(rows: Mapping[tuple[str, str], Row]) -> list[str]:
    """From which share of the query set on the audit finds it."""
    row = rows.get(("smallest share detected", ONE_SIDED))
    if row is None:
        return []
    if row["estimate"] is None:
        return ["Beside all of D_C, no share of D_Q that was tried is found."]
    least = f"{row['estimate']:.3%}".rstrip("%").rstrip("0").rstrip(".")
    return [f"Beside all of D_C, {least} % of D_Q {'or more ' if row['estimate'] < 1 else ''}is found."]


def unlearnt(rows: Mapping[tuple[str, str], Row]) -> list[str]:
    """A warning where a training did not learn what it was trained on."""
    row = rows.get(("lowest train accuracy", "{}"))
    if row is None or row["estimate"] >= ADEQUATE:
        return []
    return [
        f"Warning: a training gets only {100 * row['estimate']:.3g} % of its own images right; below "
        f"{100 * ADEQUATE:g} % what models say is no good likeness of their data: train longer."
    ]


def of_another_design(config: Forgetting) -> list[str]:
    """A warning where how the target was trained is unknown."""
    if not config.given.there:
        return []
    return [
        f"Warning: how the given targets were trained is not known here; the query and calibration models are "
        f"{config.network.name}, and another design can move rho by itself."
    ]


def surer(rows: Mapping[tuple[str, str], Row], rhos: Sequence[Row]) -> list[str]:
    """Where the published rho is far above the one-sided: the target is surer of the query set than its own models."""
    both = [(row, rows.get(("rho", row["setting"]))) for row in rhos]
    higher = [
        f"{name(row)} {theirs['estimate']:.3g}"
        for row, theirs in both
        if theirs is not None and theirs["estimate"] is not None and row["estimate"] is not None
        if theirs["estimate"] > row["estimate"] + SURER
    ]
    if not higher:
        return []
    return [
        f"The published rho, whose distance has no sign, is larger ({', '.join(higher[:LISTED])}): these targets are "
        "surer of the query set than models that were trained on it."
    ]


def published(rows: Mapping[tuple[str, str], Row], rhos: Sequence[Row]) -> list[str]:
    """What the published rule says, a triple of models at a time."""
    rules = [rows.get(("published rule says forgotten", row["setting"])) for row in rhos]
    triples = [
        f"{name(row)} {round(row['estimate'] * row['n'])} of {row['n']}"
        for row in rules
        if row is not None and row["n"] > 1
    ]
    if not triples:
        return []
    return [
        "The published rule, two-sided rho >= 1 of one query, one calibration and one target model, calls forgotten so "
        f"many of these triples: {', '.join(triples[:LISTED])}."
    ]
