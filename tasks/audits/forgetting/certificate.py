"""The audit's answer for somebody who knows no machine learning, target by target, and its symbols explained."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from tasks.audits.forgetting.answer import Evidence, JudgedTarget, explain_errors, read_evidence
from tasks.audits.forgetting.audited import Trained
from tasks.audits.forgetting.config import Forgetting, Scores
from tasks.audits.forgetting.decision import (
    FORGOTTEN,
    LESS_SURE,
    LEVEL,
    NO_ANSWER,
    NO_TEST,
    ONE_CLASS,
    RULES,
    TIED_CONFIDENCES,
    TWO_ANSWERS,
    UNBOUND,
    UNDECIDED,
    UNLIKE_OTHERS,
    TargetEvidence,
    format_percent,
)
from tasks.contract.certificate import Boundary, Certificate, Finding, NumberLine, chances, line_of
from tasks.contract.rules import Rule
from tasks.contract.summaries import index_rows
from tasks.contract.verdict import Answer, Verdict

MAX_EXPLAINED = 6  # targets whose training is told one by one
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
    """The answer for somebody who knows no machine learning: a line for each target, those that decide first."""
    evidence = read_evidence(config, index_rows(summary))
    who = "Has the model" if len(evidence.targets) == 1 else "Has each of these models"
    findings = tuple(
        Finding(
            target.answer,
            describe_finding(target),
            number_line(target),
            target.file or (target.name if len(evidence.targets) > 1 else ""),
        )
        for target in evidence.by_weight
    )
    return Certificate(
        asked=(
            f"{who} forgotten the data set, or does it still know it better than pictures of the same source that "
            f"nobody was given?{explain_targets(config, evidence.targets)}"
        ),
        findings=findings or (Finding(verdict.answer, verdict.sentence),),
        rule=in_plain_words(RULES.explain(config)),
        error=in_plain_words(explain_errors(config, applied_tests(evidence.targets))),
        beyond=verdict.limits,
        steps=next_steps(config, verdict.answer, evidence),
    )


def in_plain_words(text: str) -> str:
    return text.replace("D_Q", "the data set")


def applied_tests(targets: Iterable[JudgedTarget]) -> list[Rule[TargetEvidence]]:
    """The rules that could have decided: none without a test, and none that clears where no share is known."""
    tested = [target.evidence for target in targets if target.evidence.p is not None]
    has_limit = any(evidence.share is not None and evidence.share.high is not None for evidence in tested)
    return [rule for rule in RULES.cases if tested and (has_limit or rule is not FORGOTTEN)]


def explain_targets(config: Forgetting, targets: Sequence[JudgedTarget]) -> str:
    """What the names of models that were trained here stand for, after a space; empty where one model is asked."""
    names = {target.name for target in targets}
    question = config.question
    if not isinstance(question, Scores) or not isinstance(question.audited, Trained):
        return ""
    trained = [target for target in question.audited.targets if str(target) in names]
    if len(names) < 2 or not trained:
        return ""
    if len(trained) > MAX_EXPLAINED:
        return (
            " They are called by what they were trained on: D_C is the calibration set, D_Q the data set in question, "
            "0.1 D_Q a tenth of it; whose name has no D_Q never saw it."
        )
    explained = " " + " ".join(f"{target}: {target.explain()}." for target in trained)
    if question.calibration_share == 1:
        return explained
    drawn = format_percent(question.calibration_share)
    return f"{explained} What each has of the calibration set is taken from a draw of its own, of {drawn} of that set."


def describe_finding(target: JudgedTarget) -> str:
    """What the answer on a target rests on, in words that need no statistics."""
    p = target.evidence.p
    if target.answer == "not forgotten" and p is not None:
        held = f" Models that hold at least {format_percent(target.least)} of the data set look so."
        of_how_many = "fewer than 1" if 1000 * p < 1 else f"about {1000 * p:.0f}"
        return (
            "It knows the data set better than pictures of the same source that nobody was given; of 1,000 models that "
            f"never saw it {of_how_many} would look so.{held if target.least > 0 else ''}"
        )
    if target.answer == "forgotten":
        return (
            "It tells the data set from pictures of the same source that nobody was given no better than chance does, "
            f"and holds at most {format_percent(target.share['high'])} of it (95 % limit)."
        )
    why = in_plain_words(target.decision.explanation)
    return f"{why[0].upper()}{why[1:]}."


def number_line(target: JudgedTarget) -> NumberLine | None:
    """Of an accusation the p-value of its test; else the share that it may hold. None where it is not judged, since a
    small share would look like a clearance."""
    if target.answer == "not judged":
        return None
    if target.answer == "not forgotten" and target.evidence.p is not None:
        return chances(target.evidence.p, LEVEL)
    limit = Boundary(target.evidence.negligible, "forgotten only if the whole interval lies below", clears=True)
    never = "held by a model that never saw it"
    return line_of(target.share, "share of the data set that it holds", null_words=never, boundaries=(limit,))


HOLD_BACK = "Hold pictures back before any are given: query.held_back=0.5, or query.control.data=folder:kept."
RUN_AGAIN = "Run it again for what is missing: what is stored is not trained again."
MORE = (
    "Ask for answers to more pictures, or train more replicates (replicates=10): what is stored is not trained again."
)
RECIPE = (
    "Ask the owner on how many images of the domain the model was trained, by which network and how, and compare it "
    "with models that were trained so: network=..., epochs=..."
)
OWN_DATA = (
    f"{RECIPE}, and, as the owner's images are not yours, each on a draw of its own: calibration.data=... with several "
    "times as many images, and calibration_share=0.25 (as many as the owner has)."
)
OTHER_SHARE = f"{RECIPE}, calibration_share=... (as many images as the owner has)."
# What to do about each rule by which nothing is decided.
REMEDIES: Mapping[Rule[TargetEvidence], str] = {
    NO_ANSWER: RUN_AGAIN,
    NO_TEST: RUN_AGAIN,
    TWO_ANSWERS: "Ask the owner for one table, of what one model says of every picture, and audit that.",
    ONE_CLASS: "Ask the owner for a table with the confidences of all classes, and audit that.",
    TIED_CONFIDENCES: "Ask for confidences with all their digits, or for the model's file, and audit that.",
    UNLIKE_OTHERS: OWN_DATA,
    LESS_SURE: "Ask the owner what was done to the model after its training, and for one trained without the data.",
    UNBOUND: (
        "Bind the table to the model in use, and say how: given.bound_by=... (the SHA-256 of its file before the "
        "pictures go out, and spot checks); or audit the file, given.models=...; or train models of all of D_Q, too, "
        "partial=0.05,0.1,0.25,1: who holds so much and recognises it may be found."
    ),
    UNDECIDED: MORE,
}


def next_steps(config: Forgetting, answer: Answer, evidence: Evidence) -> tuple[str, ...]:
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
    if not isinstance(config.question, Scores):
        return ("Ask what the models know, too: question=scores.",)
    if not config.query.is_controlled:
        return (HOLD_BACK,)
    remedies = REMEDIES if config.question.calibration_share == 1 else {**REMEDIES, UNLIKE_OTHERS: OTHER_SHARE}
    rules = (target.decision.rule for target in evidence.by_weight)
    return tuple(dict.fromkeys(remedies[rule] for rule in rules if rule in remedies)) or (RUN_AGAIN,)
