"""Targets in the notation of the command line."""

from __future__ import annotations

import pytest

from orchestrator.errors import SpecError
from orchestrator.spec.fields import coerce
from tasks.audits.forgetting.audited import PUBLISHED
from tasks.audits.forgetting.presets import UNLEARNT
from tasks.audits.forgetting.target import NamedTarget, Target
from tasks.training.unlearning_config import UNLEARNING, Distillation, Retraining, TuningOnKept, UnlearningName


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("D_Q", Target(query=1.0)),
        ("D_C+0.1D_Q", Target(query=0.1, calibration=1.0)),
        ("0.5 D_C + .25*D_Q", Target(query=0.25, calibration=0.5)),
        ("calibration+1e-3query", Target(query=0.001, calibration=1.0)),
        ("outside", Target(outside=1.0)),
        ("D_C+D_Q-fine-tuning", Target(query=1.0, calibration=1.0, unlearning=TuningOnKept())),
        ("D_C + 1e-1D_Q - Retraining", Target(query=0.1, calibration=1.0, unlearning=Retraining())),
    ],
)
def test_target_is_a_sum_of_shares(text: str, expected: Target) -> None:
    assert expected == Target.parse(text)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("D_C+D_Q-distillation", Distillation()),
        ("{query: 1, calibration: 1, unlearning: distillation}", Distillation()),
        ("{query: 1, calibration: 1, unlearning: {type: distillation, epochs: 5}}", Distillation(5)),
        (
            {"query": 1, "calibration": 1, "unlearning": {"type": "fine-tuning", "learning_rate": "1e-4"}},
            TuningOnKept(10, 1e-4),
        ),
    ],
)
def test_unlearning_settings_belong_to_the_target(value: object, expected: Distillation | TuningOnKept) -> None:
    (target,) = coerce([value], tuple[Target, ...], "targets")
    assert target == Target(query=1.0, calibration=1.0, unlearning=expected)


def test_unknown_unlearning_method_is_refused() -> None:
    with pytest.raises(SpecError, match="unlearning is 'amnesia'; allowed: retraining, fine-tuning, "):
        coerce(["{query: 1, calibration: 1, unlearning: amnesia}"], tuple[Target, ...], "targets")


@pytest.mark.parametrize("target", [*PUBLISHED, Target(outside=1.0), Target(query=0.1, outside=0.5), *UNLEARNT])
def test_target_is_parsed_from_its_own_text(target: Target) -> None:
    assert target == Target.parse(str(target))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("D_X", "'D_X' is no share of a set; write D_Q, D_C or outside, or 0.1D_Q for a tenth"),
        ("", "'' is no share of a set"),
        ("D_Q+0.1D_Q", "D_Q occurs twice; give its share once"),
        ("1.5D_C", "calibration is 1.5; it must be a share from 0 to 1"),
        ("0D_C", "a target is trained on nothing"),
        (
            "D_Q-distillation",
            "unlearning is distillation; it needs a share of D_Q to forget",
        ),
        ("D_C+D_Q-amnesia", "'D_Q-amnesia' is no share of a set"),
    ],
)
def test_invalid_target_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match="^" + message.replace(".", r"\.")):
        Target.parse(text)


@pytest.mark.parametrize(
    ("query", "method", "remembers"),
    [
        (0.0, None, False),
        (0.1, None, True),
        (1.0, "retraining", False),
        (1.0, "fine-tuning", None),
        (1.0, "random-labels", None),
    ],
)
def test_memory_is_open_after_approximate_unlearning(
    query: float, method: UnlearningName | None, remembers: bool | None
) -> None:
    assert Target(query, 1.0, 0.0, UNLEARNING[method]() if method else None).remembers == remembers
    target = NamedTarget("it", "training", query, 1.0, 0.0, method)
    assert remembers == target.remembers
    assert (None if remembers is None else query if remembers else 0.0) == target.held
    assert target.is_beside_all == (method is None)
