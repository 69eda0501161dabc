"""The answer in words, of summaries made by hand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tasks.audit import Verdict
from tasks.audits.forgetting.config import Forgetting
from tasks.audits.forgetting.external_targets import ExternalTargets
from tasks.audits.forgetting.presets import QUICKSTART
from tasks.audits.forgetting.target import Target
from tasks.audits.forgetting.verdict import LIMITS, LISTED, verdict
from tasks.files import File
from tasks.schemas import SUMMARY
from tasks.statistics import Estimate, proportion
from tasks.summaries import Row, alone, row

GIVEN = replace(QUICKSTART, given=ExternalTargets(outputs=(File("said.csv"),)))
RULE = (
    "rho is about 1 where the query set D_Q was never trained on, as in models of the calibration set D_C, and about 0 "
    "in models of D_Q; an interval wholly below 0.9 counts as not forgotten, wholly above it as forgotten."
)
ANOTHER = (
    "Warning: how the given targets were trained is not known here; the query and calibration models are mlp1, and "
    "another design can move rho by itself."
)
FORGOTTEN, HELD, BETWEEN = (1.0, 0.95, 1.05), (0.5, 0.4, 0.6), (0.9, 0.8, 1.0)


def rho(target: str, value: float | None, low: float | None, high: float | None, n: int = 5, prefix: str = "") -> Row:
    return row(f"{prefix}rho", {"target": target}, Estimate(value, low, high, n), "training", 1.0)


def one_sided(target: str, *estimate: float | None, n: int = 5) -> Row:
    value, low, high = estimate
    return rho(target, value, low, high, n, "one-sided ")


def separation(value: float, **target: str) -> Row:
    return row("separation", {"score": "one-sided", **target}, alone(value), "pair of trainings", 0.0)


def said(*rows: Row, config: Forgetting = QUICKSTART) -> Verdict:
    return verdict(config, pa.Table.from_pylist(list(rows), SUMMARY))


def ends(found: Verdict, *warnings: str) -> bool:
    """Whether these are its limits, before those that every answer has."""
    return found.limits == " ".join([*warnings, LIMITS])


@pytest.mark.parametrize(
    ("estimate", "answer", "evidence"),
    [
        (FORGOTTEN, "forgotten", "Forgotten: one-sided rho 1 (95 % interval 0.95 to 1.05, 5 models)."),
        (HELD, "not forgotten", "Not forgotten: one-sided rho 0.5 (95 % interval 0.4 to 0.6, 5 models)."),
        (
            BETWEEN,
            "undecided",
            "Undecided: one-sided rho 0.9 (95 % interval 0.8 to 1, 5 models: the interval includes 0.9).",
        ),
    ],
)
def test_one_target_is_judged_by_the_interval_of_its_rho(
    estimate: tuple[float, ...], answer: str, evidence: str
) -> None:
    found = said(one_sided("D_C", *estimate), separation(0.3))
    assert (answer, f"{evidence} {RULE}") == (found.answer, found.sentence)
    assert (("one-sided rho", '{"target": "D_C"}'),) == found.rows
    assert ends(found)


def test_the_margin_is_the_runs() -> None:
    found = said(one_sided("D_C", *BETWEEN), separation(0.3), config=replace(QUICKSTART, margin=0.25))
    assert "forgotten" == found.answer
    assert "an interval wholly below 0.75 counts as not forgotten" in found.sentence


def test_the_answer_rests_on_the_one_sided_rho() -> None:
    found = said(one_sided("D_C + D_Q", *HELD), separation(0.3), rho("D_C + D_Q", *FORGOTTEN))
    assert "not forgotten" == found.answer
    assert ends(
        found,
        "The published rho, whose distance has no sign, is larger (D_C + D_Q 1): these targets are surer of the query "
        "set than models that were trained on it.",
    )


def test_a_published_rho_that_is_much_the_same_is_not_spoken_of() -> None:
    assert ends(said(one_sided("D_C", *HELD), separation(0.3), rho("D_C", 0.54, 0.5, 0.6)))
    assert ends(said(one_sided("D_C", None, None, None), rho("D_C", None, None, None)))


@pytest.mark.parametrize(
    ("estimates", "answer", "counts"),
    [
        ((FORGOTTEN, FORGOTTEN), "forgotten", "Forgotten: of 2 targets, 2 forgotten. "),
        ((FORGOTTEN, BETWEEN), "undecided", "Undecided: of 2 targets, 1 forgotten, 1 undecided. "),
        (
            (FORGOTTEN, HELD, BETWEEN),
            "not forgotten",
            "Not forgotten: of 3 targets, 1 forgotten, 1 not forgotten, 1 undecided. ",
        ),
    ],
)
def test_several_targets_are_judged_together(estimates: Iterable[Any], answer: str, counts: str) -> None:
    rows = [one_sided(f"target {at}", *each) for at, each in enumerate(estimates)]
    found = said(*rows, separation(0.3))
    assert answer == found.answer
    first = "target 0 is forgotten: one-sided rho 1 (95 % interval 0.95 to 1.05, 5 models); target 1 "
    assert found.sentence.startswith(counts + first)
    assert [f'{{"target": "target {at}"}}' for at in range(len(rows))] == [setting for _, setting in found.rows]


def test_of_many_targets_the_first_are_told_one_by_one() -> None:
    found = said(*(one_sided(f"target {at}", *HELD) for at in range(LISTED + 3)), separation(0.3))
    assert f"of {LISTED + 3} targets" in found.sentence
    assert LISTED == found.sentence.count("one-sided rho")


def test_without_a_calibration_model_that_differs_rho_is_undefined() -> None:
    found = said(one_sided("D_C", None, None, None), separation(-0.2))
    why = "no calibration model says anything else of the query set than query models do"
    assert ("undecided", f"Undecided: rho is undefined ({why}). {RULE}") == (found.answer, found.sentence)


def test_where_calibration_models_say_what_query_models_say_nothing_is_decided() -> None:
    found = said(one_sided("D_C", *FORGOTTEN), separation(-0.02))
    why = (
        "a calibration model lies closer to a query model than query models may lie to one another (by KS 0.02), so "
        "that the audit has no power"
    )
    evidence = "Undecided: one-sided rho 1 (95 % interval 0.95 to 1.05, 5 models"
    assert ("undecided", f"{evidence}: {why}). {RULE}") == (found.answer, found.sentence)


def test_a_coarse_table_is_decided_on_by_what_can_be_told_apart_at_its_precision() -> None:
    rows = one_sided("said.csv", *FORGOTTEN, n=1), one_sided("fine.csv", *FORGOTTEN, n=1)
    found = said(*rows, separation(0.3), separation(-0.02, target="said.csv"), separation(0.3, target="fine.csv"))
    assert "undecided" == found.answer
    assert "said.csv is undecided: " in found.sentence
    assert "fine.csv is forgotten: " in found.sentence


def test_one_replicate_has_no_interval() -> None:
    found = said(one_sided("D_C", 1.0, None, None, n=1))
    expected = "Undecided: one-sided rho 1 (no interval, 1 model: too few models, or images, to see how they vary)."
    assert ("undecided", f"{expected} {RULE}") == (found.answer, found.sentence)


def test_a_target_that_has_not_answered_keeps_all_from_being_forgotten() -> None:
    found = said(one_sided("first", *FORGOTTEN), one_sided("second", None, None, None, n=0), separation(0.3))
    assert "undecided" == found.answer
    assert "second is undecided: no model of it, or no query model, has answered. " in found.sentence


def test_how_many_targets_are_decided_as_they_were_trained_is_told() -> None:
    score = {"score": "one-sided"}
    counts = [
        row("targets decided rightly", score, proportion(1, 2), "target"),
        row("targets decided wrongly", score, proportion(0, 2), "target"),
    ]
    found = said(one_sided("first", *FORGOTTEN), one_sided("second", *BETWEEN), separation(0.3), *counts)
    assert "By what they were trained on, 1 of 2 are decided rightly and 0 wrongly." in found.sentence
    assert "By what they were trained on" not in said(one_sided("first", *FORGOTTEN), *counts).sentence


@pytest.mark.parametrize(
    ("smallest", "told"),
    [
        (0.05, "Beside all of D_C, 5 % of D_Q or more is found."),
        (1.0, "Beside all of D_C, 100 % of D_Q is found."),
        (None, "Beside all of D_C, no share of D_Q that was tried is found."),
    ],
)
def test_the_smallest_share_that_is_found_is_told(smallest: float | None, told: str) -> None:
    share = row("smallest share detected", {"score": "one-sided"}, alone(smallest), "share of the query set")
    found = said(one_sided("D_C", *FORGOTTEN), separation(0.3), share)
    assert found.sentence.endswith(f"{RULE} {told}")


@pytest.mark.parametrize(("accuracy", "warned"), [(0.9, True), (0.95, False)])
def test_trainings_that_learnt_too_little_are_warned_of(accuracy: float, warned: bool) -> None:
    lowest = row("lowest train accuracy", {}, alone(accuracy, 10), "training")
    warning = (
        "Warning: a training gets only 90 % of its own images right; below 95 % what models say is no good likeness "
        "of their data: train longer."
    )
    found = said(one_sided("D_C", *FORGOTTEN), lowest)
    assert found.sentence.endswith(" ".join([RULE, *[warning] * warned]))


def test_that_nobody_knows_how_a_given_model_was_trained_is_warned_of() -> None:
    found = said(one_sided("said.csv", *FORGOTTEN, n=1), separation(0.3), config=GIVEN)
    assert found.sentence.endswith(f"{RULE} {ANOTHER}")


def test_what_the_published_rule_says_of_each_triple_stands_beside_the_answer() -> None:
    rule = row("published rule says forgotten", {"target": "D_C"}, proportion(3, 5), "triple of trainings")
    told = (
        "The published rule, two-sided rho >= 1 of one query, one calibration and one target model, calls forgotten so "
        "many of these triples: D_C 3 of 5."
    )
    assert ends(said(one_sided("D_C", *FORGOTTEN), separation(0.3), rule), told)


def test_where_nothing_is_scored_nothing_is_decided() -> None:
    images = row("images", {"part": "query", "class": "3"}, alone(12.0, 2), "group")
    of_images = replace(QUICKSTART, measures=("examples",), targets=(Target(query=1.0),))
    found = said(images, config=of_images)
    assert ("undecided", "Undecided: this run shows images only.") == (found.answer, found.sentence)
    assert (("images", images["setting"]),) == found.rows
    nobody = said()
    assert ("Undecided: no ratios have been computed.", ()) == (nobody.sentence, nobody.rows)
