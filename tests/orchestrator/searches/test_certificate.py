"""The certificate of a search: the question, the recommendation and the command that repeats the search."""

from __future__ import annotations

from dataclasses import replace

import pytest
import typer

from orchestrator.cli.commands import app
from orchestrator.inspection.search_results import RECOMMENDED, SearchAnswer, SearchResults
from orchestrator.searches import definition, recommendation
from orchestrator.searches.definition import parse_domains
from orchestrator.searches.recommendation import NONE, NOT_SHOWN, NOT_USEFUL
from orchestrator.spec import specification
from orchestrator.spec.specification import Spec
from tasks.contract.objectives import Objectives

ROW = {"part": "search", "state": "finished", "run": "tunable-1", "setting": '{"rate": 0.02}'}
START = {**ROW, "trial": 0, "setting": "{}"}
FRESH = {"part": "fresh", "run": "tunable-2"}


def search(answer: SearchAnswer, **settings: object) -> SearchResults:
    searched = definition.search_from_spec(
        Spec("tunable", "few"), {"rate": "log(0.001..0.1)", "wide": "true,false"}, settings
    )
    trials = tuple({**ROW, "trial": number} for number in range(1, searched.trials + 1))
    fresh_trials = ({**START, **FRESH}, {**ROW, **FRESH, "trial": 1})
    return SearchResults(
        "tunable-search-1", "tunable", definition.search_description(searched), (START, *trials, *fresh_trials), answer
    )


def answered(word: str) -> SearchAnswer:
    has_winner = word != NONE
    return SearchAnswer(word, f"{word}.", 1 if has_winner else None, *((0.3, 0.1, 0.5) if has_winner else ()))


@pytest.mark.parametrize(
    ("word", "step"),
    [
        (RECOMMENDED, "Train with rate=0.02; then audit the model that you will use"),
        (NOT_SHOWN, "The winner may still memorise less"),
        (NOT_USEFUL, "engram search --resume tunable-search-1 --trials 48"),
        (NONE, "vary other fields with --over"),
    ],
)
def test_each_answer_has_meaning_and_next_step(objectives: Objectives, word: str, step: str) -> None:
    results = search(answered(word))
    certificate = recommendation.certificate(results, objectives)
    assert certificate is not None
    assert step in " ".join(certificate.steps)
    assert certificate.findings[0].answer == word
    assert certificate.findings[0].sentence == f"{word}."
    line = certificate.findings[0].line
    assert (None if word == NONE else (0.3, 0.1, 0.5, 0.0)) == (
        None if line is None else (line.estimate, line.low, line.high, line.null)
    )
    assert results.answer is not None
    meaning = recommendation.meaning(results.answer)
    assert ("cleared" if word == RECOMMENDED else "open") == meaning.tone
    assert meaning.words


def test_question_states_measures_and_accepted_loss(objectives: Objectives) -> None:
    question = recommendation.question_text(search(answered(NONE), give_up=0.1), objectives)
    for words in (
        "24 trainings with different rate and wide",
        "memory (lower is better)",
        "loss of utility is 10 points",
    ):
        assert words in question


def test_unfinished_search_says_how_to_continue(objectives: Objectives) -> None:
    finished = search(answered(RECOMMENDED))
    certificate = recommendation.certificate(replace(finished, trials=finished.trials[:5]), objectives)
    assert certificate is not None
    assert certificate.steps == (
        "Continue the search, which is not finished: engram search --resume tunable-search-1.",
    )
    assert recommendation.certificate(replace(finished, answer=None), objectives) is None


def test_command_repeats_the_search() -> None:
    settings = {"rungs": (2, 4), "keep_one_in": 2, "sampler_seed": 3, "concurrent": 2, "trials": 5, "give_up": 0.1}
    spec = Spec("tunable", "few", {"noise": "0.1"})
    searched = definition.search_from_spec(spec, {"rate": "log(0.001..0.1)", "wide": "true,false"}, settings)
    words = recommendation.command(SearchResults("", "tunable", definition.search_description(searched), ()))
    assert words[:2] == ["engram", "search"]
    parameters = typer.main.get_command(app).commands["search"].make_context("search", words[2:]).params  # type: ignore[attr-defined]
    given_again = {name: parameters[name] for name in settings if name != "rungs"}
    repeated = definition.search_from_spec(
        Spec(parameters["audit_or_file"], parameters["preset"], specification.settings(parameters["fields"])),
        parse_domains(parameters["over"]),
        {**given_again, "rungs": tuple(map(int, parameters["rungs"].split(",")))},
    )
    assert searched == repeated
