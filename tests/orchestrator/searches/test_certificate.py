"""The answer of a search for everybody: what was asked, what follows, and the command that asks it again."""

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
    made = tuple({**ROW, "trial": number} for number in range(1, searched.trials + 1))
    again = ({**START, **FRESH}, {**ROW, **FRESH, "trial": 1})
    return SearchResults(
        "tunable-search-1", "tunable", definition.search_description(searched), (START, *made, *again), answer
    )


def answered(word: str) -> SearchAnswer:
    shown = word != NONE
    return SearchAnswer(word, f"{word}.", 1 if shown else None, *((0.3, 0.1, 0.5) if shown else ()))


@pytest.mark.parametrize(
    ("word", "step"),
    [
        (RECOMMENDED, "Train with rate=0.02; then audit the model that you will use"),
        (NOT_SHOWN, "The winner may still memorise less"),
        (NOT_USEFUL, "engram search --resume tunable-search-1 --trials 48"),
        (NONE, "vary other fields with --over"),
    ],
)
def test_each_answer_says_what_to_do_and_what_it_means(objectives: Objectives, word: str, step: str) -> None:
    found = search(answered(word))
    told = recommendation.certificate(found, objectives)
    assert told is not None
    assert step in " ".join(told.steps)
    assert (word, f"{word}.") == (told.findings[0].answer, told.findings[0].sentence)
    line = told.findings[0].line
    assert (None if word == NONE else (0.3, 0.1, 0.5, 0.0)) == (
        None if line is None else (line.estimate, line.low, line.high, line.null)
    )
    assert found.answer is not None
    meaning = recommendation.meaning(found.answer)
    assert ("cleared" if word == RECOMMENDED else "open") == meaning.tone
    assert meaning.words


def test_it_asks_in_plain_words_what_is_measured_and_how_much_may_be_given_up(objectives: Objectives) -> None:
    said = recommendation.question_text(search(answered(NONE), give_up=0.1), objectives)
    for words in (
        "24 trainings with different rate and wide",
        "memory (lower is better)",
        "loss of utility is 10 points",
    ):
        assert words in said


def test_a_search_that_goes_on_says_how_and_one_without_an_answer_certifies_nothing(objectives: Objectives) -> None:
    whole = search(answered(RECOMMENDED))
    told = recommendation.certificate(replace(whole, trials=whole.trials[:5]), objectives)
    assert told is not None
    assert told.steps == ("Continue the search, which is not finished: engram search --resume tunable-search-1.",)
    assert recommendation.certificate(replace(whole, answer=None), objectives) is None


def test_the_command_asks_for_the_same_search() -> None:
    settings = {"rungs": (2, 4), "keep_one_in": 2, "sampler_seed": 3, "concurrent": 2, "trials": 5, "give_up": 0.1}
    spec = Spec("tunable", "few", {"noise": "0.1"})
    searched = definition.search_from_spec(spec, {"rate": "log(0.001..0.1)", "wide": "true,false"}, settings)
    words = recommendation.command(SearchResults("", "tunable", definition.search_description(searched), ()))
    assert words[:2] == ["engram", "search"]
    read = typer.main.get_command(app).commands["search"].make_context("search", words[2:]).params  # type: ignore[attr-defined]
    given_again = {name: read[name] for name in settings if name != "rungs"}
    again = definition.search_from_spec(
        Spec(read["what"], read["preset"], specification.settings(read["fields"])),
        parse_domains(read["over"]),
        {**given_again, "rungs": tuple(map(int, read["rungs"].split(",")))},
    )
    assert searched == again
