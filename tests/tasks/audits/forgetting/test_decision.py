"""The decision rule, case by case, and Holm's adjustment."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tasks.audits.forgetting.decision import decide, holm_adjustment, score_decision
from tasks.audits.forgetting.held_share import UNKNOWN, LikenessCheck
from tasks.audits.forgetting.presets import QUICKSTART
from tasks.audits.forgetting.target_evidence import RecognitionTrial, TargetEvidence
from tasks.contract.summaries import Estimate
from tasks.contract.ties import tied_row
from tasks.worker.files import File
from tests.support.settings import with_settings

SIMILAR = LikenessCheck(0.9, 0.91, 0.5)
DIFFERENT = LikenessCheck(0.8, 0.9, 0.001)
CLEAN = TargetEvidence(1, 0.4, Estimate(0.0, 0.0, 0.06, 1), SIMILAR, SIMILAR, 0.1)


@pytest.mark.parametrize(
    ("changes", "answer", "reason"),
    [
        ({}, "forgotten", None),
        ({"p": 0.025}, "not forgotten", None),
        ({"p": 0.0251}, "forgotten", None),
        ({"p": 0.01, "accuracy": DIFFERENT}, "not forgotten", None),  # regardless of its other data
        ({"models": 0, "p": None}, "undecided", "there are no answers of the model"),
        ({"p": None}, "not assessable", "without a control set"),
        (
            {"accuracy": DIFFERENT},
            "not assessable",
            "its accuracy on the control set is 0.8, that of calibration models 0.9 (p = 0.001): it knows the "
            "domain less well",
        ),
        (
            {"accuracy": LikenessCheck(0.9, 0.8, 0.001)},
            "not assessable",
            "its accuracy on the control set is 0.9, that of calibration models 0.8 (p = 0.001): it knows the "
            "domain better",
        ),
        (
            {"agreement": DIFFERENT},
            "not assessable",
            "its agreement on the control set is 0.8, that of calibration models 0.9 (p = 0.001): it finds "
            "other images difficult",
        ),
        (
            {"agreement": LikenessCheck(0.9, 0.8, 0.001)},
            "not assessable",
            "its agreement on the control set is 0.9, that of calibration models 0.8 (p = 0.001): it agrees "
            "with them more than they agree with each other",
        ),
        ({"accuracy": UNKNOWN}, "not assessable", "it gives no confidences of the other classes"),
        ({"disagreeing": 1, "repeats": 40}, "not assessable", "1 of 40 images that were sent twice"),
        ({"tied": tied_row(0.051, 40, "image")}, "not assessable", "5.1 of 100 compared pairs of scores"),
        ({"tied": tied_row(0.05, 40, "image")}, "forgotten", None),
        ({"tied": tied_row(0.9, 40, "image"), "p": 0.025}, "not forgotten", None),  # worst ranks accuse no model
        ({"p_other": 0.009}, "not assessable", "it is less certain about D_Q than about the control set"),
        ({"p_other": 0.01}, "forgotten", None),
        ({"accuracy": LikenessCheck(0.8, 0.9, 0.01)}, "forgotten", None),
        ({"share": Estimate(0.0, 0.0, 0.1, 1)}, "forgotten", None),
        (
            {"share": Estimate(0.0, 0.0, 0.12, 1)},
            "undecided",
            "it may hold up to 12 % of D_Q, more than 10 %",
        ),
        ({"share": Estimate(0.0, 0.0, 1.0, 1)}, "undecided", "it may hold any share of D_Q"),
        (
            {"recognition": RecognitionTrial(1.0, 6, 100)},
            "not assessable",
            "nothing binds its table to a model: 6 of 100 simulated owners who hold 100 % of D_Q and submit a "
            "clean model's answers about it would pass",
        ),
        ({"recognition": RecognitionTrial(1.0, 5, 100)}, "forgotten", None),
        ({"recognition": RecognitionTrial(1.0, 6, 100), "p": 0.01}, "not forgotten", None),
        ({"share": None}, "undecided", "too few models show how effects vary"),
        ({"agreement": LikenessCheck(0.9, 0.9)}, "undecided", "too few models show how effects vary"),
    ],
)
def test_answers_follow_the_rule(changes: dict[str, object], answer: str, reason: str | None) -> None:
    tables = with_settings(QUICKSTART, {"given.outputs": (File("said.csv"),)})
    config = tables if "recognition" in changes else QUICKSTART
    result = decide(config, replace(CLEAN, **changes))  # type: ignore[arg-type]
    assert answer == result.answer
    assert (result.reason or "").startswith(reason or "")
    assert (result.reason is None) == (reason is None)


def test_answers_are_scored_by_the_trained_share() -> None:
    assert score_decision("not forgotten", 0.02, 0.1) == "right"
    assert score_decision("not forgotten", 0.0, 0.1) == "wrong"
    assert score_decision("forgotten", 0.0, 0.1) == "right"
    assert score_decision("forgotten", 0.1, 0.1) == "right"
    assert score_decision("forgotten", 0.25, 0.1) == "wrong"
    assert score_decision("undecided", 0.0, 0.1) == "undecided"
    assert score_decision("not assessable", 0.5, 0.1) == "undecided"
    assert score_decision("forgotten", None, 0.1) is None


def test_p_values_have_holms_adjustment() -> None:
    assert pytest.approx(holm_adjustment([0.02, 0.01, 0.03])) == [0.04, 0.03, 0.04]
    assert holm_adjustment([0.9, 0.8]) == [1.0, 1.0]
    assert holm_adjustment([]) == []
