"""The recommendation of a search: the trial that memorises least at the required accuracy, audited again.

Rule: Consider the complete trials whose utility is at most `allowance` worse than that of the start. The winner is the
one that memorises least. Because it was selected for its estimate, this estimate is biased. The winner and the start
are therefore audited again with fresh seeds and canaries, which both audits share, and only these two estimates count.
The winner is recommended if the 95 % interval of its reduction in memorisation is above 0, and if its utility is again
at most `allowance` worse.

Error: A winner that memorises at least as much as the start is recommended in at most 2.5 % of searches, for any number
of trials. The interval of the difference assumes independent estimates (MOVER: Donner & Zou 2012, "Closed-form
confidence intervals for functions of the normal mean and standard deviation", eq. 3). Because the two estimates share
their canaries, the interval is wider than necessary.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

from orchestrator.inspection.answers import BEYOND
from orchestrator.inspection.search_results import (
    FRESH,
    QUESTION,
    RECOMMENDED,
    SEARCHED,
    START,
    SearchAnswer,
    SearchResults,
    trial_name,
)
from orchestrator.quantities import format_count
from orchestrator.searches.trials import Trial, Value
from orchestrator.spec.fields import text
from tasks.contract.certificate import Certificate, Finding, NumberLine
from tasks.contract.objectives import SHARE, Objective, Objectives
from tasks.contract.verdict import Meaning

# answers other than RECOMMENDED
NOT_SHOWN = "not shown"
NOT_USEFUL = "not useful enough"
NONE = "none"
NEGLIGIBLE_SHARE = 1e-3  # a difference in utility below this share of the allowance is reported as none
MEANINGS: Mapping[str, str] = {
    RECOMMENDED: "the winner memorises less than the start, confirmed with fresh seeds",
    NOT_SHOWN: "fresh seeds do not confirm that the winner memorises less than the start",
    NOT_USEFUL: "the winner memorises less but loses more utility than allowed",
    NONE: "no trial memorises less than the start and is useful enough",
}
RULE = (
    "Among the trials that are useful enough, the one that memorises least was selected. The best of many trials looks "
    "better than it is, because it was partly lucky. Therefore this trial and the training that the search started "
    "from were both audited again, with random numbers that the search had not used, and the answer is based on these "
    "two audits alone. The trial is recommended if the whole 95 % interval of the difference is above 0, and if its "
    "loss of utility is again within the allowed range."
)
ERROR = (
    "A training that memorises at least as much as before is recommended in at most 2.5 of 100 searches, for any "
    "number of trials."
)


def winner(trials: Sequence[Trial], objectives: Objectives, allowance: float) -> Trial | None:
    """Return the trial that memorises least among those that are useful enough and memorise less than the start."""
    start = _find(trials, SEARCHED, START)
    if start is None or not start.is_complete:
        return None
    candidates = [
        trial
        for trial in trials
        if trial.is_complete
        and trial.part == SEARCHED
        and _loss(start, trial, objectives) <= allowance
        and _less(start, trial, objectives) > 0
    ]
    return max(candidates, key=lambda trial: (_less(start, trial, objectives), -trial.number), default=None)


def recommend(trials: Sequence[Trial], objectives: Objectives, allowance: float) -> SearchAnswer:
    """Return the answer of a search, based on the fresh audits of the winner and the start if they exist."""
    search_trials = []
    for trial in trials:
        if trial.part == SEARCHED and trial.number != START:
            search_trials.append(trial)
    start = _find(trials, SEARCHED, START)
    best = winner(trials, objectives, allowance)
    allowed_loss = f"a loss of at most {_format_amount(objectives.utility, allowance)} of {objectives.utility.name}"
    if start is None or not start.is_complete:
        return SearchAnswer(NONE, "No answer: the start of the search has no estimate.")
    if best is None:
        return SearchAnswer(
            NONE,
            f"None of {len(search_trials)} trials memorises less than the start of the search with {allowed_loss}.",
        )
    fresh = [_find(trials, FRESH, number) for number in (START, best.number)]
    if fresh[0] is None or fresh[1] is None or not (fresh[0].is_complete and fresh[1].is_complete):
        reason = (
            f"{describe_choices(best)} memorises least in the search, but has not been audited again with fresh seeds."
        )
        return SearchAnswer(NOT_SHOWN, f"Nothing is recommended yet: {reason}", best.number)
    return _compare_fresh(fresh[0], fresh[1], objectives, allowance)


def _less(start: Trial, trial: Trial, objectives: Objectives) -> float:
    """Return the reduction in memorisation of a trial compared with the start."""
    assert start.memorization is not None
    assert trial.memorization is not None
    return objectives.memorization.sign * (trial.memorization.estimate - start.memorization.estimate)


def _loss(start: Trial, trial: Trial, objectives: Objectives) -> float:
    """Return the loss of utility of a trial compared with the start."""
    assert start.utility is not None
    assert trial.utility is not None
    return objectives.utility.sign * (start.utility.estimate - trial.utility.estimate)


def difference(minuend: Value, subtrahend: Value) -> Value:
    """Return the difference of two independent estimates with its 95 % interval, if both estimates have intervals.

    With x - y the difference, [l, u] and [m, v] their intervals,

        low = x - y - sqrt((x - l)^2 + (v - y)^2),  high = x - y + sqrt((u - x)^2 + (y - m)^2)

    Donner & Zou 2012, eq. 3.
    """
    value = minuend.estimate - subtrahend.estimate
    n = min(minuend.n, subtrahend.n)
    if None in (minuend.low, minuend.high, subtrahend.low, subtrahend.high):
        return Value(value, n=n, unit=minuend.unit)
    assert minuend.low is not None
    assert minuend.high is not None
    assert subtrahend.low is not None
    assert subtrahend.high is not None
    return Value(
        value,
        value - math.hypot(minuend.estimate - minuend.low, subtrahend.high - subtrahend.estimate),
        value + math.hypot(minuend.high - minuend.estimate, subtrahend.estimate - subtrahend.low),
        n,
        minuend.unit,
    )


def describe_choices(trial: Trial) -> str:
    """Format the choices of a trial, such as `dropout=true, learning_rate=0.0003`."""
    return ", ".join(f"{name}={text(value)}" for name, value in trial.setting.items()) or "the start"


def _compare_fresh(start: Trial, best: Trial, objectives: Objectives, allowance: float) -> SearchAnswer:
    """Return the answer based on the fresh audits of the start and the winner."""
    memorization = objectives.memorization
    utility = objectives.utility
    assert start.memorization is not None
    assert best.memorization is not None
    assert start.utility is not None
    assert best.utility is not None
    pair = (start.memorization, best.memorization)
    reduction = difference(*(pair if memorization.better == "lower" else pair[::-1]))
    ends = (reduction.estimate, reduction.low, reduction.high)
    utility_loss = _loss(start, best, objectives)
    cost = (
        f"{'for' if utility_loss > 0 else 'with a gain of'} {_format_amount(utility, abs(utility_loss))} of "
        f"{utility.name}"
    )
    if abs(utility_loss) <= NEGLIGIBLE_SHARE * allowance:
        cost = f"at the same {utility.name}"
    levels = f"{_number(start.utility.estimate)} to {_number(best.utility.estimate)}"
    values = (
        f"from {format_interval(start.memorization)} to {format_interval(best.memorization)}"
        f" {memorization.unit} {cost} ({levels}); "
        f"{format_count(best.memorization.n, best.memorization.unit)} each, with fresh seeds"
    )
    if reduction.low is None or reduction.low <= 0:
        if reduction.low is None:
            doubt = "no interval"
        else:
            doubt = f"the difference is {format_interval(reduction)}, which is not above 0"
        return SearchAnswer(
            NOT_SHOWN,
            f"Nothing is recommended: {describe_choices(best)} memorises least in the search, but in the fresh audits "
            f"its {memorization.name} changes {values}: {doubt}.",
            best.number,
            *ends,
        )
    if utility_loss > allowance:
        return SearchAnswer(
            NOT_USEFUL,
            f"Nothing is recommended: with {describe_choices(best)} {memorization.name} falls {values}, but a loss of "
            f"at most {_format_amount(utility, allowance)} is allowed.",
            best.number,
            *ends,
        )
    falls = "rises"
    if memorization.better == "lower":
        falls = "falls"
    return SearchAnswer(
        RECOMMENDED, f"{describe_choices(best)}: {memorization.name} {falls} {values}.", best.number, *ends
    )


def _find(trials: Sequence[Trial], part: str, number: int) -> Trial | None:
    return next((trial for trial in trials if (trial.part, trial.number) == (part, number)), None)


def _format_amount(objective: Objective, value: float) -> str:
    """Format an amount of utility. A share is given in percentage points."""
    if objective.unit == SHARE:
        points = f"{100 * value:.2g}"
        if points == "1":
            return f"{points} point"
        return f"{points} points"
    return f"{value:.2g} {objective.unit}"


def format_interval(value: Value) -> str:
    if value.low is None or value.high is None:
        return _number(value.estimate)
    return f"{_number(value.estimate)} [{_number(value.low)}, {_number(value.high)}]"


def _number(value: float) -> str:
    return f"{value:.3g}"


def meaning(answer: SearchAnswer) -> Meaning:
    """Return the meaning of a search answer."""
    return Meaning(MEANINGS.get(answer.answer, ""), answer.tone)


def certificate(search: SearchResults, objectives: Objectives) -> Certificate | None:
    """Return the first page of a search, or None if it has no answer yet."""
    answer = search.answer
    if answer is None:
        return None
    return Certificate(
        asked=question_text(search, objectives),
        findings=(Finding(answer.answer, answer.sentence, _line(answer, objectives)),),
        rule=RULE,
        error=ERROR,
        beyond=BEYOND,
        steps=_steps(search, answer),
    )


def question_text(search: SearchResults, objectives: Objectives) -> str:
    """Return the question of a search in plain language."""
    memorization = objectives.memorization
    utility = objectives.utility
    fields = list(search.settings["over"])
    if len(fields) > 1:
        named_fields = f"{', '.join(fields[:-1])} and {fields[-1]}"
    else:
        named_fields = fields[0]
    return (
        f"{QUESTION} {format_count(search.planned, 'training')} with different "
        f"{named_fields} were compared with the start of the search. Memorisation is measured by {memorization.name} "
        f"({memorization.better} is better) and utility by {utility.name} ({utility.better} is better). "
        f"The allowed loss of utility is {_format_amount(utility, search.settings['give_up'])}."
    )


def command(search: SearchResults) -> list[str]:
    """Return the words of the command that starts this search."""
    settings = search.settings
    words = ["engram", "search", search.audit, *(["--preset", settings["preset"]] if settings.get("preset") else [])]
    words += [f"{name}={text(value)}" for name, value in settings.get("set", {}).items()]
    words += [word for name, domain in settings["over"].items() for word in ("--over", f"{name}={domain}")]
    usual = {"sampler": "random", "sampler_seed": 0, "rungs": [], "keep_one_in": 3, "concurrent": 1}
    changed_settings = {name: settings[name] for name, value in usual.items() if settings[name] != value}
    if settings["sampler"] != "grid":
        changed_settings["trials"] = settings["trials"]
    changed_settings["give_up"] = settings["give_up"]
    for name, value in changed_settings.items():
        if isinstance(value, list):
            value_text = ",".join(map(str, value))
        elif name == "give_up":
            value_text = f"{value:g}"
        else:
            value_text = value
        words += [f"--{name.replace('_', '-')}", f"{value_text}"]
    return words


def _line(answer: SearchAnswer, objectives: Objectives) -> NumberLine | None:
    if answer.estimate is None:
        return None
    memorization = objectives.memorization
    label = f"reduction in memorisation, winner against start: {memorization.name}, {memorization.unit}"
    return NumberLine(label, answer.estimate, answer.low, answer.high, null=0.0, null_words="if both memorise the same")


def _steps(search: SearchResults, answer: SearchAnswer) -> tuple[str, ...]:
    """Return the recommended next steps."""
    if not search.ended:
        return (f"Continue the search, which is not finished: engram search --resume {search.name}.",)
    extend_command = f"engram search --resume {search.name} --trials {2 * search.planned}"
    if answer.answer == RECOMMENDED:
        best = search.trial(answer.winner or 0, FRESH)
        if best is None:
            choices_text = ""
            report_hint = ""
        else:
            choices_text = trial_name({**best, "part": ""})
            report_hint = f" For the remaining memorisation of the winner: engram report {best['run']}."
        return (
            f"Train with {choices_text}; then audit the model that you will use, which is not one of "
            f"these.{report_hint}",
            "Keep this page with the files that it names.",
        )
    if answer.answer == NOT_SHOWN:
        return (
            "Keep the present training for now. The winner may still memorise less; the search could not show it.",
            "To detect a smaller difference, audit more models in every trial (for example canaries= of "
            f"unique_feature), or extend the search: {extend_command}.",
        )
    return (
        f"Extend the search: {extend_command}, or vary other fields with --over.",
        "Allow a larger loss of utility with --give-up, if less memorisation is worth it.",
    )


def choices(setting: str) -> dict[str, str]:
    """Return the choices in a row's setting (JSON) as text by field."""
    return {name: text(value) for name, value in json.loads(setting).items()}
