"""The evidence that the verdict reads back is that which the decision was made on."""

from __future__ import annotations

import pytest

from tasks.audits.forgetting.decision import Evidence
from tasks.audits.forgetting.evidence_rows import (
    HELD,
    likeness_rows,
    read_evidence,
    share_row,
    side_rows,
    unanswered_row,
)
from tasks.audits.forgetting.likeness import UNKNOWN, LikenessCheck
from tasks.audits.forgetting.measures.decisions import DECISIONS
from tasks.statistics import Estimate
from tasks.summaries import Row

TESTED = {"effect": 2.5, "effect_low": 1.0, "effect_high": 4.0, "p": 0.01, "p_adjusted": 0.02, "p_other": 0.99}
HOLDS = {"share": 0.2, "share_low": 0.1, "share_high": 0.3}
LIKE = {"accuracy": 0.9, "accuracy_calibration": 0.92, "accuracy_p": 0.4}
LIKE |= {"agreement": 0.7, "agreement_calibration": 0.8, "agreement_p": 0.005}
ANSWERED_TWICE = {"repeats": 50, "disagreeing": 3}


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (
            TESTED | HOLDS | LIKE | ANSWERED_TWICE,
            Evidence(
                0.02,
                Estimate(0.2, 0.1, 0.3, 2),
                LikenessCheck(0.9, 0.92, 0.4),
                LikenessCheck(0.7, 0.8, 0.005),
                3,
                50,
                p_other=0.99,
            ),
        ),
        (TESTED, Evidence(0.02, None, LikenessCheck(None, None, None), LikenessCheck(None, None, None), p_other=0.99)),
        ({}, Evidence(None, None, UNKNOWN, UNKNOWN)),
    ],
)
def test_what_is_written_of_a_target_is_read_back(known: Row, expected: Evidence) -> None:
    target = dict.fromkeys(DECISIONS.names) | {"name": "b", "models": 2, "repeats": 0, "disagreeing": 0} | known
    other = target | {"name": "a", "share": 0.9, "p_adjusted": 0.5}
    written = [share_row(other), share_row(target), *side_rows(other), *side_rows(target), *likeness_rows(target)]
    rows = {(row["metric"], row["setting"]): row for row in written}
    assert expected == read_evidence(rows, rows[HELD, '{"target": "b"}'])


def test_a_target_that_did_not_answer_has_a_share_of_no_value() -> None:
    assert (None, 0) == tuple(unanswered_row("c")[name] for name in ("estimate", "n"))
