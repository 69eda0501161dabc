"""The audit's answer in words, read off its summary and by the rule of `decision`.

It rests on what a target says of D_Q beside what it says of the control set; where there are several targets, on all of
them together, and first on those that decide.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from tasks.audits.forgetting.config import Forgetting
from tasks.audits.forgetting.decision import LEVEL, POSSIBLE_ANSWERS, Decision, ForgettingAnswer, decide
from tasks.audits.forgetting.evidence_rows import HANDED_OUT, HELD, SURER
from tasks.audits.forgetting.evidence_rows import read_evidence as evidence_in
from tasks.audits.forgetting.measures.fits import ADEQUATE
from tasks.audits.forgetting.query_set import GUESSABLE
from tasks.audits.forgetting.trainings import named_targets
from tasks.files import shorten_names
from tasks.summaries import index_rows, p_in_words
from tasks.verdict import ANSWERS, Answer, Meaning, Verdict

Row = Mapping[str, Any]
MEANINGS: Mapping[Answer, Meaning] = {
    **{name: ANSWERS[name] for name in ("forgotten", "not forgotten", "undecided")},
    "not judged": Meaning("what the model says of images that nobody was given forbids any conclusion", "open"),
}
# The test is exact over draws of who is control, and images of `query.control` were not drawn by the audit.
DRAWN = ", if D_Q and the control set were drawn from one pool at random"
GIVEN_CONTROL = (
    "The control images were named (query.control) and not held back by the audit's draw: the accusation holds if D_Q "
    "and the control set were drawn from one pool at random before anything was given. Where they differ in any other "
    "way, such as when or by whom they were taken, models that never saw D_Q can be accused."
)
ORDER: tuple[ForgettingAnswer, ...] = (
    "not forgotten",
    "not judged",
    "undecided",
    "forgotten",
)  # the first decides for all
LISTED = 12  # targets that are told one by one
LIMITS = (
    "The audit speaks of the data set as a whole: a share below the limit that is told may be held. It takes for "
    "granted that the control images come from the same source as the data set and were never given to anybody, and "
    "that the answers are those of the model in use; the share, unlike the accusation, that the model was trained like "
    "those it is compared with."
)


def verdict(config: Forgetting, summary: pa.Table) -> Verdict:
    """Not forgotten: a target at least is. Forgotten: every target is. Not judged: one at least cannot be, and none is
    not forgotten. Undecided: none of these holds.
    """
    rows = index_rows(summary)
    shares = [row for (metric, _), row in rows.items() if metric == HELD]
    if not shares:
        why = "this run shows images only" if "scores" not in config.measures else "nothing has been decided"
        return Verdict("undecided", f"Undecided: {why}.", LIMITS, tuple(rows)[:1])
    decisions = [read_decision(rows, row, config) for row in shares]
    answers = [decision.answer for decision in decisions]
    answer = overall_answer(answers)
    if len(shares) == 1:
        sentence = f"{answer.capitalize()}: {describe_evidence(rows, shares[0], decisions[0])}"
    else:
        counts = ", ".join(f"{answers.count(kind)} {kind}" for kind in POSSIBLE_ANSWERS if kind in answers)
        listed = "; ".join(
            f"{display_name(row, config)} is {decision.answer}: {describe_evidence(rows, row, decision)}"
            for row, decision in list(zip(shares, decisions, strict=True))[:LISTED]
        )
        sentence = f"{answer.capitalize()}: of {len(shares)} targets, {counts}. {listed}"
    about = [*describe_correctness(rows, len(shares)), *describe_error_rates(config, answers), *describe_power(rows)]
    warnings = [*warn_underfitting(rows), *warn_missing_control(config), *warn_guessable(config)]
    limits = " ".join([*control_caveat(config, answer), LIMITS, *describe_key(rows)])
    return Verdict(
        answer,
        " ".join([f"{sentence}.", *about, *warnings]),
        limits,
        decisive_rows(rows, shares, decisions),
        " ".join(describe_published_rule(rows, shares, config)),
    )


def decisive_rows(
    rows: Mapping[tuple[str, str], Row], shares: Sequence[Row], decisions: Sequence[Decision]
) -> tuple[tuple[str, str], ...]:
    """The rows that the answer rests on, those of the targets that decided it first.

    Of a target that is not forgotten it is the test that it is surer of D_Q; of others the share that it may hold.
    """
    order = {answer: place for place, answer in enumerate(ORDER)}
    placed = sorted(zip(shares, decisions, strict=True), key=lambda each: order[each[1].answer])
    names = []
    for share, decision in placed:
        of_test = (SURER, share["setting"])
        of_share = (share["metric"], share["setting"])
        names += [of_test, of_share] if decision.answer == "not forgotten" else [of_share, of_test]
    return tuple(name for name in names if name in rows)


def overall_answer(answers: Sequence[ForgettingAnswer]) -> ForgettingAnswer:
    """The answer on all targets: the first of these that any of them has, and forgotten where all are."""
    return next(answer for answer in ORDER if answer in answers)


def target_name(row: Row) -> str:
    return str(json.loads(row["setting"])["target"])


def external_names(config: Forgetting) -> Mapping[str, str]:
    """What the given targets are called, by the names of their numbers: their files, as short as tells them apart."""
    given = [target.name for target in named_targets(config) if target.source != "training"]
    return dict(zip(given, shorten_names(given), strict=True))


def display_name(row: Row, config: Forgetting) -> str:
    """The target of a row as a sentence names it."""
    given = external_names(config).get(target_name(row))
    return target_name(row) if given is None else f"'{given}'"


def read_decision(rows: Mapping[tuple[str, str], Row], share: Row, config: Forgetting) -> Decision:
    """The decision on the target of this row, by the rule that its table of decisions follows."""
    if not share["n"]:
        return Decision("undecided", "no model of it has answered", "no answer")
    return decide(evidence_in(rows, share), config.negligible)


def describe_evidence(rows: Mapping[tuple[str, str], Row], share: Row, decision: Decision) -> str:
    """What the answer on a target rests on, in words."""
    surer = rows.get((SURER, share["setting"]))
    if surer is None:
        return decision.explanation
    models = f"{p_in_words(surer['p_value'])}, {share['n']} model{'s' if share['n'] > 1 else ''}"
    if decision.answer == "not forgotten":
        least = share["low"] or 0.0
        held = f", as models do that hold at least {format_percent(least)} of it" if least > 0 else ""
        return f"it knows D_Q better than images of the same source that nobody was given ({models}){held}"
    told = f"it knows D_Q no better than images of the same source that nobody was given ({models})"
    if decision.answer == "forgotten":
        return f"{told}, and holds at most {format_percent(share['high'])} of it (95 % limit)"
    return f"{told}, but {decision.explanation}"


def format_percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 0.995 else "100 %"


def describe_error_rates(config: Forgetting, answers: Sequence[ForgettingAnswer]) -> list[str]:
    """How often each answer that was given is wrong."""
    told = []
    if "not forgotten" in answers:
        told.append(
            f"Of 1,000 such audits of models that never saw D_Q at most {1000 * LEVEL:g} would call any of them not "
            f"forgotten, whatever else these hold{'' if config.query.control is None else DRAWN}."
        )
    if "forgotten" in answers:
        told.append(
            f"Of 100 models that hold more than {format_percent(config.negligible)}"
            " of D_Q, and were trained like those that "
            "the limit was learnt from, at most 5 would be called forgotten."
        )
    return told


def describe_power(rows: Mapping[tuple[str, str], Row]) -> list[str]:
    """Which shares would have been found, by models of known shares."""
    powers = sorted((json.loads(setting)["share"], row) for (metric, setting), row in rows.items() if metric == "power")
    counts = [
        f"{format_percent(share)} in {round(row['estimate'] * row['n'])} of {row['n']}"
        for share, row in powers
        if share > 0
    ]
    if not counts:
        return []
    return [
        f"Of single models trained on D_C and a known share of D_Q, each tested alone at {LEVEL:g}, the test finds "
        f"{', '.join(counts)}."
    ]


def warn_missing_control(config: Forgetting) -> list[str]:
    if config.query.is_controlled:
        return []
    return [
        "Without a control set this run repeats the published score and judges nobody: hold images back "
        "(query.held_back=0.5) or give some of the same source (query.control.data=...)."
    ]


def control_caveat(config: Forgetting, answer: ForgettingAnswer) -> list[str]:
    """What an accusation rests on where the control set was not held back by the audit's own draw."""
    return [GIVEN_CONTROL] if config.query.control is not None and answer == "not forgotten" else []


def describe_key(rows: Mapping[tuple[str, str], Row]) -> list[str]:
    """The key of the pictures that were handed out, as their owner was told it."""
    keys = [json.loads(setting)["key"] for metric, setting in rows if metric == HANDED_OUT]
    return [f"The key of the pictures that were handed out has a SHA-256 that begins with {key}." for key in keys]


def warn_guessable(config: Forgetting) -> list[str]:
    """A warning where an owner could have found out which of the pictures that it answered for are D_Q."""
    return [GUESSABLE] if config.given.is_given and config.query.is_guessable else []


def describe_correctness(rows: Mapping[tuple[str, str], Row], targets: int) -> list[str]:
    """How many of the targets whose training is known are decided as they were trained."""
    right = rows.get(("targets decided rightly", "{}"))
    if right is None or targets < 2:
        return []
    wrong = rows[("targets decided wrongly", "{}")]
    counts = [round(share["estimate"] * share["n"]) for share in (right, wrong)]
    return [f"By what they were trained on, {counts[0]} of {right['n']} are decided rightly and {counts[1]} wrongly."]


def warn_underfitting(rows: Mapping[tuple[str, str], Row]) -> list[str]:
    """A warning where a training did not learn what it was trained on."""
    row = rows.get(("lowest train accuracy", "{}"))
    if row is None or row["estimate"] >= ADEQUATE:
        return []
    return [
        f"Warning: a training gets only {100 * row['estimate']:.3g} % of its own images right; below "
        f"{100 * ADEQUATE:g} % what models say is no good likeness of their data: train longer."
    ]


def describe_published_rule(
    rows: Mapping[tuple[str, str], Row], shares: Sequence[Row], config: Forgetting
) -> list[str]:
    """What the published score and its rule say, a triple of models at a time."""
    rules = [rows.get(("published rule says forgotten", row["setting"])) for row in shares]
    triples = [
        f"{display_name(row, config)} {round(row['estimate'] * row['n'])} of {row['n']}"
        for row in rules
        if row is not None and row["n"] > 1
    ]
    if not triples:
        return []
    return [
        "The published rule, two-sided rho >= 1 of one query, one calibration and one target model, calls forgotten so "
        f"many of these triples: {', '.join(triples[:LISTED])}."
    ]
