"""The rule, case by case, and Holm's adjustment."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tasks.audits.forgetting.decision import Evidence, adjusted, decided, right
from tasks.audits.forgetting.likeness import UNKNOWN, Check
from tasks.statistics import Estimate

ALIKE, UNLIKE = Check(0.9, 0.91, 0.5), Check(0.8, 0.9, 0.001)
CLEAN = Evidence(0.4, Estimate(0.0, 0.0, 0.06, 1), ALIKE, ALIKE)


@pytest.mark.parametrize(
    ("changes", "answer", "reason", "cause"),
    [
        ({}, "forgotten", None, None),
        ({"p": 0.025}, "not forgotten", None, None),
        ({"p": 0.01, "accuracy": UNLIKE}, "not forgotten", None, None),  # whatever else it holds
        ({"p": None}, "not judged", "without a control set", "no test"),
        (
            {"accuracy": UNLIKE},
            "not judged",
            "its accuracy on the control set is 0.8, that of models that never saw",
            "unlike",
        ),
        ({"agreement": UNLIKE}, "not judged", "its agreement on the control set is 0.8", "unlike"),
        ({"accuracy": UNKNOWN}, "not judged", "its table says nothing of the other classes", "one class"),
        ({"disagreeing": 2, "repeats": 40}, "not judged", "2 of 40 pictures that were handed out twice", "two answers"),
        ({"p_other": 0.009}, "not judged", "it is less sure of D_Q than of images of the same source", "less sure"),
        ({"p_other": 0.02}, "forgotten", None, None),
        (
            {"share": Estimate(0.0, 0.0, 0.12, 1)},
            "undecided",
            "up to 12 % of D_Q might be held, more than 10 %",
            "share",
        ),
        ({"share": Estimate(0.0, 0.0, 1.0, 1)}, "undecided", "any share of D_Q might be held", "share"),
        ({"share": None}, "undecided", "too few models to see how they vary", "few models"),
        ({"agreement": Check(0.9, 0.9)}, "undecided", "too few models to see how they vary", "few models"),
    ],
)
def test_each_answer_follows_from_the_rule(
    changes: dict[str, object], answer: str, reason: str | None, cause: str | None
) -> None:
    found = decided(replace(CLEAN, **changes), 0.1)  # type: ignore[arg-type]
    assert answer == found.answer
    assert (found.reason or "").startswith(reason or "")
    assert (found.reason is None) == (reason is None)
    assert cause == found.cause


def test_an_answer_is_right_by_the_share_that_was_trained_on() -> None:
    assert ["right", "wrong"] == [right("not forgotten", share, 0.1) for share in (0.02, 0.0)]
    assert ["right", "right", "wrong"] == [right("forgotten", share, 0.1) for share in (0.0, 0.1, 0.25)]
    assert ["undecided", "undecided", None] == [
        right("undecided", 0.0, 0.1), right("not judged", 0.5, 0.1), right("forgotten", None, 0.1)
    ]  # fmt: skip


def test_p_values_are_adjusted_as_holm_does() -> None:
    assert [0.04, 0.03, 0.04] == pytest.approx(adjusted([0.02, 0.01, 0.03]))
    assert [1.0, 1.0] == adjusted([0.9, 0.8])
    assert [] == adjusted([])
