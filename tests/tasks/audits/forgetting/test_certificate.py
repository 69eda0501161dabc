"""What a person is told of each target, those that decide first."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from tasks.audits.forgetting import AUDIT
from tasks.audits.forgetting.certificate import HOLD_BACK, MORE, REMEDIES, RUN_AGAIN
from tasks.audits.forgetting.config import Forgetting
from tasks.audits.forgetting.decision import Cause
from tasks.audits.forgetting.external_targets import ExternalTargets
from tasks.audits.forgetting.presets import QUICKSTART, TABLE1
from tasks.audits.forgetting.target import Target
from tasks.certificate import Certificate
from tasks.datasets.mixtures import Part
from tasks.files import File
from tasks.schemas import SUMMARY
from tasks.statistics import Estimate, proportion
from tasks.summaries import Row, row
from tests.tasks.audits.forgetting.test_verdict import CLEARED, HELD, OPEN, target

UNLIKE = (0.5, 0.0, 0.06, 0.001)  # by its accuracy on the control set


def certified(*rows: Row, config: Forgetting = QUICKSTART) -> Certificate:
    found = AUDIT.certify("Has it?", config, pa.Table.from_pylist(list(rows), SUMMARY))
    assert found is not None
    return found


def test_each_target_has_a_line_and_those_that_decide_come_first() -> None:
    found = certified(*target("a", *CLEARED), *target("b", *HELD), *target("c", *OPEN))
    assert [("b", "not forgotten"), ("c", "undecided"), ("a", "forgotten")] == [
        (each.target, each.answer) for each in found.findings
    ]
    assert "Has each of these models forgotten" in found.asked


def test_a_given_target_is_called_by_its_file_and_a_trained_one_is_explained_once() -> None:
    outputs = tuple(map(File, ("in/kept.csv", "sent.csv", "sent.parquet", "later/kept.v2")))
    given = replace(QUICKSTART, given=ExternalTargets(outputs=outputs))
    rows = [each for file in ("kept.csv", "sent.csv", "sent.parquet", "kept.v2") for each in target(file, *CLEARED)]
    found = certified(*rows, config=given)
    assert ["kept.csv", "sent.csv", "sent.parquet", "kept.v2"] == [each.target for each in found.findings]
    alone = certified(*target("kept.csv", *CLEARED), config=replace(given, given=ExternalTargets(outputs=outputs[:1])))
    assert ["kept"] == [each.target for each in alone.findings]
    assert "trained on" not in found.asked + alone.asked
    two = replace(QUICKSTART, targets=(Target(1.0, 1.0), Target(calibration=1.0), Target(0.1)))
    trained = certified(*target("D_C + D_Q", *HELD), *target("D_C", *CLEARED), config=two)
    assert trained.asked.endswith(
        "nobody was given? D_C + D_Q: trained on the whole of the calibration set and on the whole of the data set in "
        "question. D_C: trained on the whole of the calibration set; it never saw the data set in question."
    )
    assert (
        "trained on 5 % of the calibration set and on 50 % of the data set in question, then made to forget the "
        "latter by fine-tuning" == Target.parse("0.05D_C+0.5D_Q-fine-tuning").explain()
    )


def test_many_trained_targets_are_explained_together() -> None:
    shares = tuple(Target(at / 10, 1.0) for at in range(1, 8))
    rows = [each for share in shares for each in target(str(share), *CLEARED)]
    asked = certified(*rows, config=replace(QUICKSTART, targets=shares)).asked
    assert asked.endswith("0.1 D_Q a tenth of it; whose name has no D_Q never saw it.")
    assert "trained on 10 %" not in asked


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
    found = certified()
    (finding,) = found.findings
    assert "Undecided: nothing has been decided." == finding.sentence
    assert ("", (RUN_AGAIN,)) == (found.error, found.steps)


def share(name: str, models: int) -> Row:
    return row("share of D_Q held", {"target": name}, Estimate(None, None, None, models), "training", 0.0)


def less_sure(name: str) -> Row:
    less = Estimate(1.0, 0.5, 1.5, 1)
    return row("surer of control than of D_Q", {"target": name}, less, "training", 0.0, p_value=0.001)


def repeated(name: str) -> Row:
    return row("repeated pictures with two answers", {"target": name}, proportion(3, 40), "picture", 0.0)


def silent(name: str) -> list[Row]:
    """The rows of a target that names no class."""
    cleared = target(name, *CLEARED)
    return [{**each, "estimate": None} if each["metric"].startswith("accuracy") else each for each in cleared]


@pytest.mark.parametrize(
    ("rows", "cause", "why"),
    [
        (
            target("a", *UNLIKE),
            "unlike",
            "Its accuracy on the control set is 0.9, that of models that never saw the data set 0.91 (p = 0.001): it "
            "knows other data, has another design or was changed.",
        ),
        (
            [*target("a", *CLEARED), repeated("a")],
            "two answers",
            "3 of 40 pictures that were handed out twice got two answers.",
        ),
        (
            [*target("a", *CLEARED), less_sure("a")],
            "less sure",
            "It is less sure of the data set than of images of the same source that nobody was given (p = 0.001), as "
            "no model is that never saw either: it was made to deny the data set, or was changed.",
        ),
        (
            silent("a"),
            "one class",
            "Its table says nothing of the other classes, so that its accuracy on the control set is unknown.",
        ),
    ],
)
def test_who_is_not_judged_is_told_why_and_what_to_do_and_is_shown_no_share(
    rows: list[Row], cause: Cause, why: str
) -> None:
    found = certified(*rows)
    (finding,) = found.findings
    assert ("not judged", why, None) == (finding.answer, finding.sentence, finding.line)
    assert (REMEDIES[cause],) == found.steps


def test_the_rule_names_every_reason_for_which_nobody_is_judged() -> None:
    rule = certified(*target("a", *UNLIKE)).rule
    assert (
        "Where it is not, the answer is “not judged” if there are no control pictures or no models to compare it with, "
        "if pictures that were handed out twice got two answers, if its table says nothing of the other classes, if it "
        "is unlike the models that it is compared with in how often it is right on control pictures or in which of "
        "these it is sure of (p below 0.01 each), or if it is less sure of the data set than of the control pictures "
        "(p below 0.01). The answer is “forgotten” where none of this holds and it may hold at most 10 % of "
        "the data set "
        "(95 % limit). The answer is “undecided” where none of these conditions holds."
    ) in rule


def test_each_reason_of_several_targets_is_mended_once() -> None:
    several = *target("a", *OPEN), *target("b", *UNLIKE), *target("c", *UNLIKE), *target("d", *CLEARED)
    assert (REMEDIES["unlike"], MORE) == certified(*several).steps
    assert (RUN_AGAIN, MORE) == certified(share("a", 0), *target("b", *OPEN)).steps


def test_without_a_control_set_no_test_has_an_error_rate() -> None:
    found = certified(share("a", 5), config=TABLE1)
    (finding,) = found.findings
    assert "Without a control set and calibration models knowing the data set cannot be told from" in finding.sentence
    assert ("not judged", None, "", (HOLD_BACK,)) == (finding.answer, finding.line, found.error, found.steps)


def test_the_error_of_a_share_is_told_where_one_is_known() -> None:
    first = "Of 1,000 audits of models that never saw the data at most 25 call any of them not forgotten, whatever else"
    known = certified(*target("a", *CLEARED)).error
    assert known.startswith(first)
    assert known.endswith("at most 5 are called forgotten.")
    unknown = certified(share("a", 1), *target("a", *CLEARED)[1:])
    assert unknown.error == f"{first} these hold."
    assert (MORE,) == unknown.steps
    named = replace(QUICKSTART, query=replace(QUICKSTART.query, control=Part(QUICKSTART.query.data, 1400, 30)))
    of_named = certified(*target("a", *CLEARED), config=named).error
    assert "whatever else these hold, if the data set and the control set were drawn from one pool" in of_named


def test_where_images_alone_are_shown_scores_are_asked_for() -> None:
    images = replace(QUICKSTART, measures=("examples",), targets=(Target(query=1.0),))
    assert ("Ask what the models know, too: measures=scores.",) == certified(config=images).steps
