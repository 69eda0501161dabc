"""The answer of a search for somebody who knows no machine learning."""

from __future__ import annotations

import json
from collections.abc import Mapping

from orchestrator.inspection.answers import BEYOND
from orchestrator.inspection.search_results import FRESH, QUESTION, RECOMMENDED, SearchAnswer, SearchResults, trial_name
from orchestrator.quantities import format_count
from orchestrator.searches.recommendation import NONE, NOT_SHOWN, NOT_USEFUL, format_amount
from orchestrator.spec.fields import text
from tasks.certificate import Certificate, Finding, NumberLine
from tasks.objectives import Objectives
from tasks.verdict import Meaning

MEANINGS: Mapping[str, str] = {
    RECOMMENDED: "the winner memorises less than the start, shown with fresh seeds",
    NOT_SHOWN: "that the winner memorises less than the start is not shown with fresh seeds",
    NOT_USEFUL: "the winner memorises less, and costs more than was to be given up",
    NONE: "no trial memorises less than the start and is useful enough",
}
RULE = (
    "Among the trials that are useful enough, the one that memorises least was picked. What is picked for its number "
    "looks better than it is, as the luckiest of many throws does. So it and the training that the search began from "
    "were both audited again, with random numbers that the search had not used, and the answer rests on these two "
    "audits alone. The trial is recommended if the whole 95 % interval of the difference lies above 0, and if it again "
    "gives up no more than is allowed."
)
ERROR = (
    "A training that memorises as much as before, or more, is recommended in at most 2.5 of 100 searches, however many "
    "trials they make."
)


def meaning(answer: SearchAnswer) -> Meaning:
    """What the answer of a search means."""
    return Meaning(MEANINGS.get(answer.answer, ""), answer.tone)


def certificate(search: SearchResults, objectives: Objectives) -> Certificate | None:
    """The first page of a search; None as long as it has no answer."""
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
    """The question of a search in plain words."""
    memorization, utility = objectives.memorization, objectives.utility
    fields = list(search.settings["over"])
    named_fields = f"{', '.join(fields[:-1])} and {fields[-1]}" if len(fields) > 1 else fields[0]
    return (
        f"{QUESTION} {format_count(search.planned, 'training')} that "
        f"differ in {named_fields} were compared with the one that the search began from. What is memorised is "
        f"measured by {memorization.name} ({memorization.better} is better), what the model is good for by "
        f"{utility.name} ({utility.better} is better), of which at most "
        f"{format_amount(utility, search.settings['give_up'])} "
        "may be given up."
    )


def command(search: SearchResults) -> list[str]:
    """The words of the command that makes the search."""
    settings = search.settings
    words = ["engram", "search", search.audit, *(["--preset", settings["preset"]] if settings.get("preset") else [])]
    words += [f"{name}={text(value)}" for name, value in settings.get("set", {}).items()]
    words += [word for name, domain in settings["over"].items() for word in ("--over", f"{name}={domain}")]
    usual = {"sampler": "random", "sampler_seed": 0, "rungs": [], "keep_one_in": 3, "concurrent": 1}
    given = {name: settings[name] for name, value in usual.items() if settings[name] != value}
    if settings["sampler"] != "grid":
        given["trials"] = settings["trials"]
    given["give_up"] = settings["give_up"]
    for name, value in given.items():
        shown = ",".join(map(str, value)) if isinstance(value, list) else f"{value:g}" if name == "give_up" else value
        words += [f"--{name.replace('_', '-')}", f"{shown}"]
    return words


def _line(answer: SearchAnswer, objectives: Objectives) -> NumberLine | None:
    if answer.estimate is None:
        return None
    memorization = objectives.memorization
    what = f"by how much less the winner memorises than the start: {memorization.name}, {memorization.unit}"
    return NumberLine(
        what, answer.estimate, answer.low, answer.high, null=0.0, null_words="where both memorise the same"
    )


def _steps(search: SearchResults, answer: SearchAnswer) -> tuple[str, ...]:
    """What to do next."""
    if not search.ended:
        return (f"Go on with the search, which is not finished: engram search --resume {search.name}.",)
    more = f"engram search --resume {search.name} --trials {2 * search.planned}"
    if answer.answer == RECOMMENDED:
        best = search.trial(answer.winner or 0, FRESH)
        chosen = "" if best is None else trial_name({**best, "part": ""})
        left = "" if best is None else f" What the winner still memorises: engram report {best['run']}."
        return (
            f"Train with {chosen}; then audit the model that you will use, which is another one than these.{left}",
            "Keep this page with the files that it names.",
        )
    if answer.answer == NOT_SHOWN:
        return (
            "Keep the training as it is for now: neither is it shown that the winner memorises as much.",
            "To show a difference as small, audit more models in every trial (as by canaries= of unique_feature), or "
            f"look further: {more}.",
        )
    return (
        f"Look further: {more}, or with other fields by --over.",
        "Allow more to be given up by --give-up, if less memory is worth that much.",
    )


def choices(setting: str) -> dict[str, str]:
    """The choices in a row's setting (JSON), as text by field."""
    return {name: text(value) for name, value in json.loads(setting).items()}
