"""What a person is told of a generative model: of what decided, by name."""

from __future__ import annotations

from typing import Any

from tasks.audits.density import AUDIT, Density
from tasks.certificate import Finding
from tests.tasks.audits.density.test_verdict import GAP, MEMORISED, NONE, beyond, called, found, table


def told(*rows: dict[str, Any]) -> Finding:
    made = AUDIT.certify("Which?", Density(), table(*rows))
    assert made is not None
    assert "memorised by 10 nats would be found" in made.rule
    assert "Of 100 audits of models that keep nothing, about 5 say memorised" in made.error
    (finding,) = made.findings
    return finding


def test_images_that_are_called_are_counted_on_the_line() -> None:
    finding = told(*MEMORISED)
    assert "Of 60,000 images 3 are told to have been trained on, one by one." in finding.sentence
    assert finding.line is not None
    assert ("images, of 60,000, that are called memorised", 3.0) == (finding.line.what, finding.line.estimate)


def test_where_all_together_decide_their_p_is_on_the_line() -> None:
    finding = told(called(), beyond(0.0001, 0.01), NONE, found())
    assert "All together show more than chance brings" in finding.sentence
    assert finding.line is not None
    assert (0.0001, 0.001) == (finding.line.estimate, finding.line.boundaries[0].value)


def test_who_is_cleared_is_shown_with_the_average_gap() -> None:
    finding = told(called(), beyond(), NONE, found())
    assert "not seen" == finding.answer
    assert "Of 60,000 images none is told to have been trained on" in finding.sentence
    assert "A single image would have been found from about 7.5 nats on" in finding.sentence
    assert finding.line is not None
    assert (0.01, 0.099, 0.1) == (finding.line.estimate, finding.line.high, finding.line.boundaries[0].value)
    assert GAP[0] == "generalisation gap of log p"
