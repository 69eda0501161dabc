"""What a person is told of a generative model: of what decided, by name."""

from __future__ import annotations

from typing import Any

from tasks.audits.density import AUDIT, Density
from tasks.certificate import Certificate, Finding
from tests.tasks.audits.density.test_verdict import ALONE, GAP, MEMORISED, NONE, beyond, called, found, table


def certified(config: Density, *rows: dict[str, Any]) -> Certificate:
    made = AUDIT.certify("Which?", config, table(*rows))
    assert made is not None
    return made


def told(*rows: dict[str, Any]) -> Finding:
    made = certified(Density(), *rows)
    assert "memorised by 10 nats would be found" in made.rule
    assert "Of 100 audits of models that keep nothing, about 5 say memorised" in made.error
    (finding,) = made.findings
    return finding


def test_images_that_are_called_are_counted_on_the_line() -> None:
    finding = told(*MEMORISED)
    assert (
        "Of 60,000 images 3 are called, one by one, memorised by more than 0.1 nats, at 5 % false discoveries."
    ) in finding.sentence
    assert finding.line is not None
    assert ("images, of 60,000, that are called memorised", 3.0) == (finding.line.what, finding.line.estimate)


def test_where_all_together_decide_their_p_is_on_the_line() -> None:
    finding = told(called(), beyond(0.0001, 0.01), NONE, found())
    assert "The p-values of all images together show more than chance. Some images are therefore" in finding.sentence
    assert finding.line is not None
    assert (0.0001, 0.001) == (finding.line.estimate, finding.line.boundaries[0].value)


def test_who_is_cleared_is_shown_with_the_average_gap() -> None:
    finding = told(called(), beyond(), NONE, found())
    assert "not seen" == finding.answer
    assert (
        "Of 60,000 images none is called memorised by more than 0.1 nats, at 5 % false discoveries." in finding.sentence
    )
    assert "A single image would have been found from about 7.5 nats on" in finding.sentence
    assert finding.line is not None
    assert (0.01, 0.099, 0.1) == (finding.line.estimate, finding.line.high, finding.line.boundaries[0].value)
    assert GAP[0] == "generalisation gap of log p"
    made = certified(Density(), called(), beyond(), NONE, found())
    assert (
        "small that chance brings as many in at most 1 of 1,000 audits (counted where every p-value is of at least "
        "9,999 permutations, or of all there are). The answer is “not seen” where no image is called, p-values were "
        "counted and chance brings as many small ones in over 5 of 100 audits, the whole 95 % interval of "
        "how much training raises it "
        "on average lies below 0.1 "
    ) in made.rule
    assert "would be found in 80 % of cases" in made.rule


def test_the_test_of_all_together_is_no_rule_of_rows_left_out_one_by_one() -> None:
    made = certified(ALONE, called(1, 12_345), NONE, found())
    assert (
        "The answer is “memorised” where images are called at 5 % false discoveries (one side of a "
        "randomisation test of each, that "
        "training raises its log probability by no more than 0.1 nats). The answer is “not seen” where no "
        "image is called, the whole"
    ) in made.rule
    assert "permutations" not in made.rule
    assert made.error.startswith("Of 100 audits of models that keep nothing, at most 5 say memorised")
    assert made.findings[0].sentence.startswith("Of 12,345 images 1 is called, one by one, memorised by more than 0.1 ")


def test_a_null_is_told_as_one_and_no_training_data_are_to_be_treated() -> None:
    null, audit = Density(asked="test"), Density()
    alarm, quiet, many = (
        certified(null, *rows) for rows in (MEMORISED, (called(), beyond(), NONE), (called(), beyond(1e-4), NONE))
    )
    assert "memorised" == alarm.findings[0].answer
    for made in (alarm, quiet, many, certified(null)):
        (finding,) = made.findings
        assert finding.sentence.startswith("This is a null: no model was trained on the images that are asked about. ")
        assert "training on an image raises" not in finding.sentence
        assert not set(made.steps) & set(certified(audit, *MEMORISED).steps)
        assert "run the audit itself: asked=train." in made.steps[-1]
    assert alarm.steps[0].startswith("Nothing is disclosed by this: it is a false alarm.")
    assert quiet.steps[0].startswith("Keep this page beside that of the audit")
    assert "The p-values of all images together show more than chance. " in many.findings[0].sentence
    assert quiet.findings[0].line is not None
    assert "counted as trained on" in quiet.findings[0].line.what
    assert "This is a null" not in certified(audit, *MEMORISED).findings[0].sentence
    assert "This is a null" not in certified(Density(asked="test", measures=("kernel",))).findings[0].sentence
