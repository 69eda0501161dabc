"""The answer for somebody who knows no machine learning: a line for each target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from tasks.audits.forgetting.config import Forgetting
from tasks.audits.forgetting.decision import LEVEL, Cause, Decision
from tasks.audits.forgetting.evidence_rows import HELD, SURER
from tasks.audits.forgetting.likeness import LEVEL as UNLIKE
from tasks.audits.forgetting.verdict import DRAWN, ORDER, external_names, format_percent, read_decision, target_name
from tasks.certificate import ELSE, Boundary, Certificate, Finding, NumberLine, chances, line_of
from tasks.summaries import index_rows
from tasks.verdict import Verdict

MAX_EXPLAINED = 6  # targets whose training is told one by one
Row = Mapping[str, Any]
Rows = Mapping[tuple[str, str], Row]
SYMBOLS: Mapping[str, str] = {
    "D_Q": "the query set: the data that may have been forgotten",
    "D_C": "the calibration set: other data of the same domain, on which models are trained here to compare with",
    "control": "images of the same source as D_Q that nobody was given",
    "rho": "the paper’s score: how far the target is from models of D_Q, in units of how far models of D_C are; it "
    "decides nothing here",
    "KS": "the Kolmogorov–Smirnov distance of two distributions: the largest difference of their shares below a value",
    "share of D_Q held": "the share of D_Q that a target may hold, by models that were trained on known shares",
    "surer": "by how many standard deviations of chance a target is surer of D_Q than of the control set",
    "U-LiRA": "an attack that tells members by likelihood ratios, from models with and without unlearning",
    "PrivLeak": "a score of unlearning: the attack’s success on the target beside that on a model trained anew",
    "power": "the share of models of a known share of D_Q that the test finds",
}


def certificate(config: Forgetting, summary: pa.Table, verdict: Verdict) -> Certificate:
    rows = index_rows(summary)
    shares = [row for (metric, _), row in rows.items() if metric == HELD]
    decisions = [read_decision(rows, share, config) for share in shares]
    decided = sorted(zip(decisions, shares, strict=True), key=lambda each: ORDER.index(each[0].answer))
    findings = [target_finding(rows, share, decision, config, len(shares)) for decision, share in decided]
    who = "Has the model" if len(shares) == 1 else "Has each of these models"
    return Certificate(
        asked=(
            f"{who} forgotten the data set, or does it still know it better than pictures of the same source that "
            f"nobody was given?{explain_targets(config, shares)}"
        ),
        findings=tuple(findings) or (Finding(verdict.answer, verdict.sentence),),
        rule=(
            "The answer is “not forgotten” where a model is surer of the data set than of the control "
            "pictures (one side of a randomisation test, "
            f"p at most {LEVEL:g} over all models together). Where it is not, the answer is "
            "“not judged” if there are no control pictures or no models to compare it with, if pictures that were "
            "handed out twice got two answers, if its table says nothing of the other classes, if it is unlike the "
            "models that it is compared with in how often it is right on control pictures or in which of these it is "
            f"sure of (p below {UNLIKE:g} each), or if it is less sure of the data set than of the control pictures (p "
            f"below {UNLIKE:g}). The answer is “forgotten” where none of this holds and it may hold at most "
            f"{format_percent(config.negligible)} of the data set (95 % limit). {ELSE}"
        ),
        error=describe_error_rates(config, rows, shares),
        beyond=verdict.limits,
        steps=next_steps(verdict.answer, config, [decision for decision, _ in decided]),
    )


def describe_error_rates(config: Forgetting, rows: Rows, shares: Sequence[Row]) -> str:
    """How often the tests that were made are wrong; empty where none was."""
    told = []
    if any(row["p_value"] is not None for (metric, _), row in rows.items() if metric == SURER):
        drawn = "" if config.query.control is None else DRAWN.replace("D_Q", "the data set")
        told.append(
            f"Of 1,000 audits of models that never saw the data at most {1000 * LEVEL:g} call any of them not "
            f"forgotten, whatever else these hold{drawn}."
        )
    if told and any(share["high"] is not None for share in shares):
        told.append(
            f"Of 100 models that hold more than {format_percent(config.negligible)}"
            " of it, trained like those compared with, "
            "at most 5 are called forgotten."
        )
    return " ".join(told)


def target_finding(rows: Rows, share: Row, decision: Decision, config: Forgetting, targets: int) -> Finding:
    surer = rows.get((SURER, share["setting"]))
    return Finding(
        decision.answer,
        describe_decision(decision, share, surer),
        number_line(decision, share, surer, config),
        external_names(config).get(target_name(share), target_name(share) if targets > 1 else ""),
    )


def explain_targets(config: Forgetting, shares: Sequence[Row]) -> str:
    """What the names of models that were trained here stand for, after a space; empty where one model is asked."""
    asked = {target_name(share) for share in shares}
    there = [target for target in config.targets if str(target) in asked]
    if len(asked) < 2 or not there:
        return ""
    if len(there) > MAX_EXPLAINED:
        return (
            " They are called by what they were trained on: D_C is the calibration set, D_Q the data set in question, "
            "0.1 D_Q a tenth of it; whose name has no D_Q never saw it."
        )
    return " " + " ".join(f"{target}: {target.explain()}." for target in there)


def describe_decision(decision: Decision, share: Row, surer: Row | None) -> str:
    if decision.answer == "not forgotten" and surer is not None:
        least = share["low"] or 0.0
        held = f" Models that hold at least {format_percent(least)} of the data set look so." if least > 0 else ""
        of_how_many = "fewer than 1" if 1000 * surer["p_value"] < 1 else f"about {1000 * surer['p_value']:.0f}"
        return (
            "It knows the data set better than pictures of the same source that nobody was given; of 1,000 models that "
            f"never saw it {of_how_many} would look so.{held}"
        )
    if decision.answer == "forgotten":
        return (
            "It tells the data set from pictures of the same source that nobody was given no better than chance does, "
            f"and holds at most {format_percent(share['high'])} of it (95 % limit)."
        )
    why = decision.explanation.replace("D_Q", "the data set")
    return f"{why[0].upper()}{why[1:]}."


def number_line(decision: Decision, share: Row, surer: Row | None, config: Forgetting) -> NumberLine | None:
    """Of an accusation the p-value of its test; else the share that it may hold. None where it is not judged, since a
    small share would look like a clearance."""
    if decision.answer == "not judged":
        return None
    if decision.answer == "not forgotten" and surer is not None:
        return chances(surer["p_value"], LEVEL)
    limit = Boundary(config.negligible, "forgotten only if the whole interval lies below", clears=True)
    never = "held by a model that never saw it"
    return line_of(share, "share of the data set that it holds", null_words=never, boundaries=(limit,))


HOLD_BACK = "Hold pictures back before any are given: query.held_back=0.5, or query.control.data=folder:kept."
RUN_AGAIN = "Run it again for what is missing: what is stored is not trained again."
MORE = (
    "Ask for answers to more pictures, or train more replicates (replicates=10): what is stored is not trained again."
)
# What to do about each reason for which nothing is decided.
REMEDIES: Mapping[Cause, str] = {
    "no test": RUN_AGAIN,
    "two answers": "Ask the owner for one table, of what one model says of every picture, and audit that.",
    "one class": "Ask the owner for a table with the confidences of all classes, and audit that.",
    "unlike": "Ask the owner which network it is and how it was trained, and give that: network=..., epochs=...",
    "less sure": "Ask the owner what was done to the model after its training, and for one trained without the data.",
    "no answer": RUN_AGAIN,
    "few models": MORE,
    "share": MORE,
}


def next_steps(answer: str, config: Forgetting, decisions: Sequence[Decision]) -> tuple[str, ...]:
    if answer == "not forgotten":
        return (
            "Put this page before the owner of the model, with the tables that it names, and ask for a model that was "
            "trained without the data.",
            "Ask that model in the same way, with pictures that were not used before.",
        )
    if answer == "forgotten":
        return (
            "Keep this page with the tables that it names.",
            "See to it that the model that answered is the one in use: the audit takes that for granted.",
        )
    if "scores" not in config.measures:
        return ("Ask what the models know, too: measures=scores.",)
    if not config.query.is_controlled:
        return (HOLD_BACK,)
    mends = dict.fromkeys(REMEDIES[decision.cause] for decision in decisions if decision.cause is not None)
    return tuple(mends) or (RUN_AGAIN,)
