"""What a person is told of each target, those that decide first."""

from __future__ import annotations

import pyarrow as pa

from tasks.audits.forgetting import AUDIT
from tasks.audits.forgetting.presets import QUICKSTART
from tasks.certificate import Certificate
from tasks.schemas import SUMMARY
from tasks.summaries import Row
from tests.tasks.audits.forgetting.test_verdict import CLEARED, HELD, OPEN, target


def certified(*rows: Row) -> Certificate:
    found = AUDIT.certify("Has it?", QUICKSTART, pa.Table.from_pylist(list(rows), SUMMARY))
    assert found is not None
    return found


def test_each_target_has_a_line_and_those_that_decide_come_first() -> None:
    found = certified(*target("a", *CLEARED), *target("b", *HELD), *target("c", *OPEN))
    assert [("b", "not forgotten"), ("c", "undecided"), ("a", "forgotten")] == [
        (each.target, each.answer) for each in found.findings
    ]
    assert "Has each of these models forgotten" in found.asked


def test_an_accusation_shows_the_test_that_made_it_and_nothing_else() -> None:
    (finding,) = certified(*target("b", *HELD)).findings
    assert "" == finding.target
    assert "of 1,000 models that never saw it about 1 would look so." in finding.sentence
    assert "Models that hold at least 8 % of the data set look so." in finding.sentence
    assert finding.line is not None
    assert (0.001, None, 0.025) == (finding.line.estimate, finding.line.low, finding.line.boundaries[0].value)


def test_who_is_cleared_is_shown_with_the_share_that_may_be_held() -> None:
    (finding,) = certified(*target("a", *CLEARED)).findings
    assert "and holds at most 6 % of it (95 % limit)." in finding.sentence
    assert finding.line is not None
    assert (0.06, 0.1) == (finding.line.high, finding.line.boundaries[0].value)


def test_without_targets_it_says_what_the_verdict_says() -> None:
    (finding,) = certified(target("a", *CLEARED)[1]).findings
    assert "Undecided: nothing has been decided." == finding.sentence
