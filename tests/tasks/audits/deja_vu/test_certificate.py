"""What a person is told of a self-supervised model."""

from __future__ import annotations

from tasks.audits.deja_vu import AUDIT
from tasks.audits.deja_vu.verdict import ERROR
from tests.tasks.audits.deja_vu import made_up
from tests.tasks.audits.deja_vu.test_verdict import CONFIG, summed


def test_the_score_is_told_as_cases_of_a_hundred_with_the_interval_and_p_of_its_test() -> None:
    summary = summed(made_up.simulated(0, 200, 0.1, 0.4))
    score = summary.to_pylist()[0]
    made = AUDIT.certify("Does it?", CONFIG, summary)
    assert made is not None
    (finding,) = made.findings
    assert "memorised" == finding.answer
    assert (
        f"rightly in {100 * score['estimate']:.2g} of 100 cases more often than a model that never" in finding.sentence
    )
    assert f"(95 % interval {100 * score['low']:.2g} to {100 * score['high']:.2g}; p = " in finding.sentence
    assert finding.line is not None
    assert [0.0, CONFIG.negligible] == [each.value for each in finding.line.boundaries]
    assert f"{ERROR}." == made.error
    assert "(one side, p at most 0.025)" in made.rule
