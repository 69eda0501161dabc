"""The answer in words, of summaries made by hand."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from tasks.audits.forgetting import AUDIT
from tasks.audits.forgetting.config import Forgetting
from tasks.audits.forgetting.decision import POSSIBLE_ANSWERS
from tasks.audits.forgetting.evidence_rows import SURER
from tasks.audits.forgetting.external_targets import ExternalTargets
from tasks.audits.forgetting.presets import QUICKSTART, TABLE1
from tasks.audits.forgetting.query_set import GUESSABLE
from tasks.audits.forgetting.target import Target
from tasks.audits.forgetting.verdict import GIVEN_CONTROL, LIMITS, LISTED, verdict
from tasks.datasets.mixtures import Part
from tasks.files import File
from tasks.schemas import SUMMARY
from tasks.statistics import Estimate, proportion
from tasks.summaries import Row, alone, row
from tasks.verdict import Verdict

CLEARED, HELD, OPEN = (0.5, 0.0, 0.06), (0.001, 0.08, 1.0), (0.3, 0.0, 0.2)


def target(name: str, p: float, low: float, high: float, accuracy_p: float = 0.5, n: int = 1) -> list[Row]:
    """The rows of a target: p of the test, the limits of its share, and p of its accuracy."""
    about = {"target": name}
    return [
        row("share of D_Q held", about, Estimate(low, low, high, n), "training", 0.0),
        row(SURER, about, Estimate(1.0, 0.0, 2.0, n), "training", 0.0, p_value=p),
        row("accuracy on the control set", about, alone(0.9), "training", 0.91, p_value=accuracy_p),
        row("agreement on the control set", about, alone(0.8), "training", 0.8, p_value=0.5),
    ]


def said(*rows: Row, config: Forgetting = QUICKSTART) -> Verdict:
    return verdict(config, pa.Table.from_pylist(list(rows), SUMMARY))


@pytest.mark.parametrize(
    ("values", "answer", "evidence"),
    [
        (
            CLEARED,
            "forgotten",
            "Forgotten: it knows D_Q no better than images of the same source that nobody was given (p = 0.5, 1 model)"
            ", and holds at most 6 % of it (95 % limit). Of 100 models that hold more than 10 % of D_Q, and were "
            "trained like those that the limit was learnt from, at most 5 would be called forgotten.",
        ),
        (
            HELD,
            "not forgotten",
            "Not forgotten: it knows D_Q better than images of the same source that nobody was given (p = 0.001, 1 "
            "model), as models do that hold at least 8 % of it. Of 1,000 such audits of models that never saw D_Q at "
            "most 25 would call any of them not forgotten, whatever else these hold.",
        ),
        (
            OPEN,
            "undecided",
            "Undecided: it knows D_Q no better than images of the same source that nobody was given (p = 0.3, 1 model)"
            ", but up to 20 % of D_Q might be held, more than 10 %.",
        ),
        (
            (0.5, 0.0, 0.06, 0.001),
            "not judged",
            "Not judged: it knows D_Q no better than images of the same source that nobody was given (p = 0.5, 1 model)"
            ", but its accuracy on the control set is 0.9, that of models that never saw D_Q 0.91 (p = 0.001): it "
            "knows other data, has another design or was changed.",
        ),
    ],
)
def test_one_target_is_judged_by_the_rule_and_told_with_its_error_rate(
    values: tuple[float, ...], answer: str, evidence: str
) -> None:
    found = said(*target("D_C", *values))
    assert (answer, evidence) == (found.answer, found.sentence)
    decisive = [SURER, "share of D_Q held"] if answer == "not forgotten" else ["share of D_Q held", SURER]
    assert [(metric, '{"target": "D_C"}') for metric in decisive] == list(found.rows)
    assert LIMITS == found.limits
    assert answer in AUDIT.wording.answers


@pytest.mark.parametrize(
    ("several", "answer", "counts"),
    [
        ((CLEARED, CLEARED), "forgotten", "Forgotten: of 2 targets, 2 forgotten. "),
        ((CLEARED, OPEN), "undecided", "Undecided: of 2 targets, 1 forgotten, 1 undecided. "),
        (
            (CLEARED, HELD, OPEN),
            "not forgotten",
            "Not forgotten: of 3 targets, 1 forgotten, 1 not forgotten, 1 undecided. ",
        ),
        ((OPEN, (0.5, 0.0, 0.06, 0.001)), "not judged", "Not judged: of 2 targets, 1 not judged, 1 undecided. "),
    ],
)
def test_several_targets_are_judged_together(several: tuple[tuple[float, ...], ...], answer: str, counts: str) -> None:
    rows = [each for at, values in enumerate(several) for each in target(f"target {at}", *values)]
    found = said(*rows)
    assert answer == found.answer
    assert found.sentence.startswith(counts)
    decided = {said(*target(f"target {at}", *values)).answer: at for at, values in enumerate(several)}
    first = decided[answer] if len(decided) == len(several) else 0
    assert f'{{"target": "target {first}"}}' == found.rows[0][1]  # of what decides for all
    assert {f'{{"target": "target {at}"}}' for at in range(len(several))} == {setting for _, setting in found.rows}


def test_of_many_targets_the_first_are_told_one_by_one() -> None:
    found = said(*(each for at in range(LISTED + 3) for each in target(f"target {at}", *HELD)))
    assert f"of {LISTED + 3} targets" in found.sentence
    assert LISTED == found.sentence.count("it knows D_Q better")


def test_negligible_is_the_runs() -> None:
    found = said(*target("D_C", *OPEN), config=replace(QUICKSTART, negligible=0.25))
    assert "forgotten" == found.answer


def test_without_a_control_set_nobody_is_judged_and_it_is_said_what_to_do() -> None:
    share = row("share of D_Q held", {"target": "D_C"}, Estimate(None, None, None, 5), "training", 0.0)
    found = said(share, config=TABLE1)
    assert "not judged" == found.answer
    assert "Not judged: without a control set" in found.sentence
    assert "hold images back (query.held_back=0.5) or give some of the same source" in found.sentence


def test_a_target_that_has_not_answered_keeps_all_from_being_forgotten() -> None:
    lost = row("share of D_Q held", {"target": "second"}, Estimate(None, None, None, 0), "training", 0.0)
    found = said(*target("first", *CLEARED), lost)
    assert "undecided" == found.answer
    assert "second is undecided: no model of it has answered" in found.sentence


def test_pictures_with_two_answers_forbid_a_judgement() -> None:
    twice = row("repeated pictures with two answers", {"target": "D_C"}, proportion(3, 40), "picture", 0.0)
    found = said(*target("D_C", *CLEARED), twice)
    assert "not judged" == found.answer
    assert "3 of 40 pictures that were handed out twice got two answers" in found.sentence


def test_what_would_have_been_found_is_told() -> None:
    powers = [
        row("power", {"share": share}, proportion(found, 5), "training")
        for share, found in ((0.0, 0), (0.05, 2), (0.1, 5))
    ]
    told = (
        "Of single models trained on D_C and a known share of D_Q, each tested alone at 0.025, the test finds 5 % in 2 "
        "of 5, 10 % in 5 of 5."
    )
    assert told in said(*target("D_C", *CLEARED), *powers).sentence


def test_how_many_targets_are_decided_as_they_were_trained_is_told() -> None:
    counts = [
        row("targets decided rightly", {}, proportion(1, 2), "target"),
        row("targets decided wrongly", {}, proportion(0, 2), "target"),
    ]
    found = said(*target("first", *CLEARED), *target("second", *OPEN), *counts)
    assert "By what they were trained on, 1 of 2 are decided rightly and 0 wrongly." in found.sentence
    assert "By what they were trained on" not in said(*target("first", *CLEARED), *counts).sentence


@pytest.mark.parametrize(("accuracy", "warned"), [(0.9, True), (0.95, False)])
def test_trainings_that_learnt_too_little_are_warned_of(accuracy: float, warned: bool) -> None:
    lowest = row("lowest train accuracy", {}, alone(accuracy, 10), "training")
    assert warned == (
        "Warning: a training gets only 90 % of its own images right" in said(*target("D_C", *CLEARED), lowest).sentence
    )


def test_what_the_published_rule_says_of_each_triple_stands_beside_the_answer() -> None:
    rule = row("published rule says forgotten", {"target": "D_C"}, proportion(3, 5), "triple of trainings")
    found = said(*target("D_C", *CLEARED), rule)
    assert "calls forgotten so many of these triples: D_C 3 of 5." in found.published
    assert (LIMITS, f"{found.published} {LIMITS}") == (found.limits, found.limits_in_full)


def test_where_nothing_is_scored_nothing_is_decided() -> None:
    images = row("images", {"part": "query", "class": "3"}, alone(12.0, 2), "group")
    of_images = replace(QUICKSTART, measures=("examples",), targets=(Target(query=1.0),))
    found = said(images, config=of_images)
    assert ("undecided", "Undecided: this run shows images only.") == (found.answer, found.sentence)
    assert (("images", images["setting"]),) == found.rows
    nobody = said()
    assert ("Undecided: nothing has been decided.", ()) == (nobody.sentence, nobody.rows)


def test_every_answer_is_declared() -> None:
    assert set(POSSIBLE_ANSWERS) == set(AUDIT.wording.answers)


def test_an_accusation_by_control_images_that_were_not_drawn_here_says_on_what_it_rests() -> None:
    named = replace(QUICKSTART, query=replace(QUICKSTART.query, control=Part(QUICKSTART.query.data, 1400, 30)))
    held = said(*target("D_C", *HELD))
    given = said(*target("D_C", *HELD), config=named)
    rate = "whatever else these hold"
    assert f"{rate}, if D_Q and the control set were drawn from one pool at random." in given.sentence
    assert f"{rate}." in held.sentence
    assert [True, False] == [GIVEN_CONTROL in found.limits for found in (given, held)]
    assert GIVEN_CONTROL not in said(*target("D_C", *CLEARED), config=named).limits


def test_an_owner_who_could_guess_what_is_held_back_is_warned_of() -> None:
    given = replace(QUICKSTART, given=ExternalTargets(outputs=(File("table.csv"),)))
    secret = replace(given, query=replace(given.query, secret="b1946ac92492d2347c62"))
    warned = [GUESSABLE in said(*target("table.csv", *HELD), config=config).sentence for config in (given, secret)]
    assert [True, False, False] == [*warned, GUESSABLE in said(*target("D_C", *HELD)).sentence]
