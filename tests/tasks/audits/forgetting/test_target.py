"""Targets as a command line has them."""

from __future__ import annotations

import pytest

from tasks.audits.forgetting.config import PUBLISHED
from tasks.audits.forgetting.target import Target


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("D_Q", Target(query=1.0)),
        ("D_C+0.1D_Q", Target(query=0.1, calibration=1.0)),
        ("0.5 D_C + .25*D_Q", Target(query=0.25, calibration=0.5)),
        ("calibration+1e-3query", Target(query=0.001, calibration=1.0)),
        ("outside", Target(outside=1.0)),
    ],
)
def test_a_target_is_written_as_the_sum_of_its_shares(text: str, expected: Target) -> None:
    assert expected == Target.parse(text)


@pytest.mark.parametrize("target", [*PUBLISHED, Target(outside=1.0), Target(query=0.1, outside=0.5)])
def test_a_target_may_be_written_as_it_is_told(target: Target) -> None:
    assert target == Target.parse(str(target))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("D_X", "'D_X' is no share of a set; write D_Q, D_C or outside, or 0.1D_Q for a tenth"),
        ("", "'' is no share of a set"),
        ("D_Q+0.1D_Q", "D_Q is there twice; give its share once"),
        ("1.5D_C", "calibration is 1.5; it must be a share from 0 to 1"),
        ("0D_C", "a target is trained on nothing"),
    ],
)
def test_what_is_no_target_is_refused_in_words(text: str, says: str) -> None:
    with pytest.raises(ValueError, match="^" + says.replace(".", r"\.")):
        Target.parse(text)
