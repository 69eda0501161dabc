"""What a person is told of a self-supervised model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tasks.audits.deja_vu import AUDIT
from tasks.audits.deja_vu.verdict import ERROR, ERROR_OF_GIVEN
from tasks.certificate import number_per_hundred
from tasks.schemas import SUMMARY
from tests.tasks.audits.deja_vu import made_up
from tests.tasks.audits.deja_vu import simulated_encoders as simulated
from tests.tasks.audits.deja_vu.test_given_verdict import tables
from tests.tasks.audits.deja_vu.test_verdict import CONFIG, summed


def test_the_score_is_told_as_cases_of_a_hundred_with_the_interval_and_p_of_its_test() -> None:
    summary = summed(made_up.simulated(0, 200, 0.1, 0.4))
    score = summary.to_pylist()[0]
    made = AUDIT.certify("Does it?", CONFIG, summary)
    assert made is not None
    (finding,) = made.findings
    assert "memorised" == finding.answer
    assert (
        f"its accuracy is {100 * score['estimate']:.2g} percentage points higher than that of a model that never"
        in finding.sentence
    )
    assert (
        f"(95 % interval {100 * score['low']:.2g} to {100 * score['high']:.2g} percentage points; p = "
        in finding.sentence
    )
    assert finding.line is not None
    assert [0.0, CONFIG.negligible] == [each.value for each in finding.line.boundaries]
    assert f"{ERROR}." == made.error
    assert "(one side, p at most 0.025)" in made.rule


def test_of_a_given_encoder_the_difference_of_differences_is_told_as_one() -> None:
    summary = simulated.summed(tables(0, memory=0.5))
    score = summary.to_pylist()[0]
    made = AUDIT.certify("Does it?", simulated.CONFIG, summary)
    assert made is not None
    (finding,) = made.findings
    assert (
        "Shown a part of a picture without its object, the model and its reference name the object. On the 20 % "
        "of pictures where each is most confident, the model's lead in accuracy over the reference is "
        f"{number_per_hundred(score['estimate'])} percentage points higher "
        "for the pictures that it was trained on than for "
        f"held-out ones (95 % interval {number_per_hundred(score['low'])} to "
        f"{number_per_hundred(score['high'])} percentage points; "
        f"p = {score['p_value']:.2g})."
    ) == finding.sentence
    assert finding.line is not None
    assert finding.line.what.startswith("more objects named rightly than by the reference, less the same of held-out")
    assert f"{ERROR_OF_GIVEN}." == made.error


def test_why_a_given_encoder_is_not_judged_is_told_and_its_score_is_not_drawn() -> None:
    pictures = simulated.drawn(np.random.default_rng(0), told=(0.5, 0.0))
    rng = np.random.default_rng(1)
    found = [simulated.neighbours(pictures, simulated.embedded(pictures, rng), model) for model in "AB"]
    made = AUDIT.certify("Does it?", simulated.CONFIG, simulated.summed(found))
    assert made is not None
    (finding,) = made.findings
    assert ("not judged", None) == (finding.answer, finding.line)
    assert "). But the reference, too, is right more often of one set than of the other (p = 0.005)" in finding.sentence
    assert ("Give held-out pictures that were drawn together with the training pictures, and ask again.",) == made.steps


@pytest.mark.parametrize("memory", [0.0, 0.4])
def test_a_null_is_told_as_one_and_no_training_data_are_to_be_treated(memory: float) -> None:
    null = replace(CONFIG, trained="other")
    for summary in (summed(made_up.simulated(0, 200, 0.1, memory)), SUMMARY.empty_table()):
        made = AUDIT.certify("Does it?", null, summary)
        assert made is not None
        (finding,) = made.findings
        start = "This is a null: neither model was trained on the pictures that are asked about. "
        assert finding.sentence.startswith(start)
        assert "never saw" not in finding.sentence
        first = "Nothing is disclosed by this" if finding.answer == "memorised" else "Keep this page beside"
        assert made.steps[0].startswith(first)
        assert "run the audit itself: trained=own." in made.steps[-1]
        assert (finding.line is None) == (summary.num_rows == 0)
