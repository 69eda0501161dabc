"""The sentences of the answer, for experts and for other readers, from summaries by hand."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from tasks.audits.forgetting import AUDIT
from tasks.audits.forgetting.answer import verdict
from tasks.audits.forgetting.config import Examples, Forgetting
from tasks.audits.forgetting.decision import MORE, RULES, RUN_AGAIN
from tasks.audits.forgetting.evidence import read_target_evidence
from tasks.audits.forgetting.held_share import UNKNOWN, LikenessCheck
from tasks.audits.forgetting.measures.decisions import (
    DECISIONS,
    SURER,
    likeness_rows,
    share_row,
    side_rows,
    unanswered_row,
)
from tasks.audits.forgetting.measures.recognition import PASSED
from tasks.audits.forgetting.plain_words import HOLD_BACK
from tasks.audits.forgetting.presets import QUICKSTART, TABLE1
from tasks.audits.forgetting.query_set import GUESSABLE, NamedImages
from tasks.audits.forgetting.sentences import (
    DRAWN_CONTROL,
    GIVEN_CONTROL,
    LIMITS,
    ONE_POOL,
    SAME_SOURCE,
    SHARED_DRAW,
    TABLES,
    UNBOUND_TABLES,
)
from tasks.audits.forgetting.target import Target
from tasks.audits.forgetting.target_evidence import TargetEvidence
from tasks.contract.certificate import Certificate
from tasks.contract.schemas import SUMMARY
from tasks.contract.summaries import Estimate, Row, alone, row
from tasks.contract.ties import tied_row
from tasks.contract.verdict import COMMON_ANSWERS, Verdict
from tasks.numerics.statistics import proportion
from tasks.worker.files import File
from tests.support.golden import Golden
from tests.support.settings import with_settings

CLEARED = (0.5, 0.0, 0.06)
HELD = (0.001, 0.08, 1.0)
OPEN = (0.3, 0.0, 0.2)


def target(name: str, p: float, low: float | None, high: float, accuracy_p: float = 0.5, n: int = 1) -> list[Row]:
    """The rows of a target: p of the test, the limits of its share, and p of its accuracy."""
    about = {"target": name}
    return [
        row("share of D_Q held", about, Estimate(low, low, high, n), "training", 0.0),
        row(SURER, about, Estimate(1.0, 0.0, 2.0, n), "training", 0.0, p_value=p),
        row("accuracy on the control set", about, alone(0.9), "training", 0.91, p_value=accuracy_p),
        row("agreement on the control set", about, alone(0.8), "training", 0.8, p_value=0.5),
    ]


def verdict_of(*rows: Row, config: Forgetting = QUICKSTART) -> Verdict:
    return verdict(config, pa.Table.from_pylist(list(rows), SUMMARY))


@pytest.mark.parametrize(
    ("values", "answer"),
    [
        (
            CLEARED,
            "forgotten",
        ),
        (
            HELD,
            "not forgotten",
        ),
        (
            OPEN,
            "undecided",
        ),
        (
            (0.5, 0.0, 0.06, 0.001),
            "not assessable",
        ),
    ],
)
def test_rule_decides_one_target_with_its_error_rate(golden: Golden, values: tuple[float, ...], answer: str) -> None:
    result = verdict_of(*target("D_C", *values))
    assert result.answer == answer
    golden(result.sentence)
    if answer == "not forgotten":
        decisive = [SURER, "share of D_Q held"]
    else:
        decisive = ["share of D_Q held", SURER]
    assert [(metric, '{"target": "D_C"}') for metric in decisive] == list(result.rows)
    assert result.limits == LIMITS
    assert result.conditions == (() if answer in COMMON_ANSWERS else (DRAWN_CONTROL,))
    assert answer in AUDIT.wording.answers


@pytest.mark.parametrize(
    ("several", "answer"),
    [
        ((CLEARED, CLEARED), "forgotten"),
        ((CLEARED, OPEN), "undecided"),
        (
            (CLEARED, HELD, OPEN),
            "not forgotten",
        ),
        ((OPEN, (0.5, 0.0, 0.06, 0.001)), "not assessable"),
    ],
)
def test_several_targets_are_judged_together(
    golden: Golden, several: tuple[tuple[float, ...], ...], answer: str
) -> None:
    rows = []
    for index, values in enumerate(several):
        rows.extend(target(f"target {index}", *values))
    result = verdict_of(*rows)
    assert answer == result.answer
    golden(result.sentence)
    assert "  " not in result.sentence  # a rule without an error rate adds nothing
    decided = {}
    for index, values in enumerate(several):
        decided[verdict_of(*target(f"target {index}", *values)).answer] = index
    first = decided[answer] if len(decided) == len(several) else 0
    # the target that decides for all
    assert result.rows[0][1] == f'{{"target": "target {first}"}}'
    assert {f'{{"target": "target {index}"}}' for index in range(len(several))} == {
        setting for _, setting in result.rows
    }


def test_target_that_may_hold_nothing_is_not_compared(golden: Golden) -> None:
    for low in (0.0, None):
        result = verdict_of(*target("D_C", 0.001, low, 1.0)).sentence
        golden(result)


def test_effect_is_the_largest_known_share() -> None:
    assert AUDIT.effect is not None
    lost_row = row("share of D_Q held", {"target": "lost"}, Estimate(None, None, None, 0), "training", 0.0)
    several = [lost_row, *target("a", *CLEARED), *target("b", *HELD), *target("c", *OPEN)]
    result = AUDIT.effect.row(QUICKSTART, pa.Table.from_pylist(several, SUMMARY))
    assert result is not None
    assert result["setting"] == '{"target": "b"}'
    assert result["estimate"] == 0.08
    assert AUDIT.effect.row(QUICKSTART, pa.Table.from_pylist([lost_row], SUMMARY)) is None


def test_targets_of_unknown_training_are_not_scored() -> None:
    assert "with known training" not in verdict_of(*target("a", *CLEARED), *target("b", *HELD)).sentence


def test_published_rule_needs_several_triples() -> None:
    for triples, expected in ((1, ""), (2, "theirs 1 of 2.")):
        rule = row("published rule says forgotten", {"target": "theirs"}, proportion(1, triples), "share")
        result = verdict_of(*target("theirs", *CLEARED), rule).published
        assert (not expected) == (not result)
        assert result.endswith(expected)


def test_given_file_is_quoted_among_several_targets() -> None:
    config = with_settings(QUICKSTART, {"given.outputs": (File("/far/away/ours.parquet"),)})
    result = verdict_of(*target("ours.parquet", *CLEARED), *target("D_C", *HELD), config=config).sentence
    assert "'ours' is forgotten: " in result
    assert "; D_C is not forgotten: " in result


def test_first_twelve_targets_are_described() -> None:
    result = verdict_of(*(item for index in range(15) for item in target(f"target {index}", *HELD)))
    assert "of 15 targets" in result.sentence
    assert result.sentence.count("more certain about D_Q") == 12


def test_missing_control_set_rules_out_a_judgement(golden: Golden) -> None:
    share = row("share of D_Q held", {"target": "D_C"}, Estimate(None, None, None, 5), "training", 0.0)
    result = verdict_of(share, config=TABLE1)
    assert result.answer == "not assessable"
    golden(result.sentence, "found.sentence")
    assert result.rows == (("share of D_Q held", '{"target": "D_C"}'),)  # there is no test to show


def test_detection_power_is_reported(golden: Golden) -> None:
    powers = []
    for share, result in ((0.1, 5), (0.0, 0), (0.05, 2)):
        powers.append(row("power", {"share": share}, proportion(result, 5), "training"))
    golden(verdict_of(*target("D_C", *CLEARED), *powers).sentence)


def test_decisions_are_compared_with_known_training(golden: Golden) -> None:
    counts = [
        row("targets decided rightly", {}, proportion(1, 2), "target"),
        row("targets decided wrongly", {}, proportion(0, 2), "target"),
    ]
    result = verdict_of(*target("first", *CLEARED), *target("second", *OPEN), *counts)
    golden(result.sentence)
    assert "with known training" not in verdict_of(*target("first", *CLEARED), *counts).sentence


@pytest.mark.parametrize(("accuracy", "warned"), [(0.9, True), (0.95, False)])
def test_insufficient_training_is_reported(accuracy: float, warned: bool) -> None:
    lowest = row("lowest train accuracy", {}, alone(accuracy, 10), "training")
    words = f"Warning: a training classifies only {100 * accuracy:g} % of its own images correctly"
    assert warned == (words in verdict_of(*target("D_C", *CLEARED), lowest).sentence)


def test_no_scores_give_no_decision() -> None:
    images = row("images", {"part": "query", "class": "3"}, alone(12.0, 2), "group")
    of_images = replace(QUICKSTART, question=Examples())
    result = verdict_of(images, config=of_images)
    assert result.answer == "undecided"
    assert result.sentence == "Undecided: this run shows images only."
    assert result.rows == (("images", images["setting"]),)
    empty = verdict_of()
    assert empty.sentence == "Undecided: nothing has been decided."
    assert empty.rows == ()


def test_every_answer_is_declared() -> None:
    assert {rule.answer for rule in RULES.cases} == set(AUDIT.wording.answers)


def test_control_images_of_others_limit_an_accusation(golden: Golden) -> None:
    named_config = with_settings(QUICKSTART, {"query.control.images": NamedImages(QUICKSTART.query.data, 1400, 30)})
    drawn_result = verdict_of(*target("D_C", *HELD))
    given_tables = verdict_of(*target("D_C", *HELD), config=named_config)
    rate = "regardless of their other training data"
    golden(given_tables.sentence)
    assert f"{rate}." in drawn_result.sentence
    assert GIVEN_CONTROL in given_tables.limits
    assert GIVEN_CONTROL not in drawn_result.limits
    assert given_tables.conditions == (SAME_SOURCE, ONE_POOL)
    cleared = verdict_of(*target("D_C", *CLEARED), config=named_config)
    assert GIVEN_CONTROL not in cleared.limits
    assert cleared.conditions == (SAME_SOURCE,)


def test_unbound_table_clears_no_target(golden: Golden) -> None:
    given_tables = with_settings(QUICKSTART, {"given.outputs": (File("table.csv"),)})
    bound_config = with_settings(given_tables, bound_by="SHA-256 9f86, 30 spot checks by a notary")
    passed_row = row(PASSED, {"share": 0.25}, proportion(12, 40), "pair of models")
    clean = verdict_of(*target("table.csv", *CLEARED), passed_row, config=given_tables)
    assert clean.answer == "not assessable"
    golden(clean.sentence, "clean.sentence")
    assert TABLES in clean.limits
    assert UNBOUND_TABLES in clean.limits
    bound = verdict_of(*target("table.csv", *CLEARED), config=bound_config)
    assert bound.answer == "forgotten"
    golden(bound.limits_in_full, "bound.limits")
    assert TABLES not in verdict_of(*target("D_C", *CLEARED)).limits
    assert (
        TABLES
        not in verdict_of(
            *target("table.csv", *CLEARED), config=with_settings(TABLE1, audited=given_tables.audited)
        ).limits
    )
    first, second, third = certificate_of(*target("table.csv", *CLEARED), passed_row, config=given_tables).steps
    assert first.startswith("Bind the table to the model in use")
    assert "given.models=" in second
    assert "partial=" in third


def test_accused_targets_share_one_draw() -> None:
    one = verdict_of(*(item for name, values in [("a", HELD)] for item in target(name, *values)))
    two = verdict_of(*(item for name, values in [("a", HELD), ("b", HELD)] for item in target(name, *values)))
    other_target = verdict_of(
        *(item for name, values in [("a", HELD), ("b", CLEARED)] for item in target(name, *values))
    )
    assert one.answer == "not forgotten"
    assert two.answer == "not forgotten"
    assert other_target.answer == "not forgotten"
    assert SHARED_DRAW not in one.limits
    assert SHARED_DRAW in two.limits
    assert SHARED_DRAW not in other_target.limits


def test_guessable_control_set_is_reported() -> None:
    given_tables = with_settings(QUICKSTART, {"given.outputs": (File("table.csv"),)})
    secret = with_settings(given_tables, secret="b1946ac92492d2347c62")
    bound = with_settings(secret, nonce="0" * 16, commitment="ab" * 32)
    phrases = [
        "the auditor alone chose its seed",
        f"commitment {'ab' * 32} and the nonce {'0' * 16} of the other party",
    ]
    for config, words in ((secret, phrases[0]), (bound, phrases[1])):
        assert words in verdict_of(*target("table.csv", *HELD), config=config).limits
    warned = [
        GUESSABLE in verdict_of(*target("table.csv", *HELD), config=config).sentence
        for config in (given_tables, secret)
    ]
    assert [*warned, GUESSABLE in verdict_of(*target("D_C", *HELD)).sentence] == [True, False, False]


DIFFERENT = (0.5, 0.0, 0.06, 0.001)  # by its accuracy on the control set


def certificate_of(*rows: Row, config: Forgetting = QUICKSTART) -> Certificate:
    result = AUDIT.certify("Has it?", config, pa.Table.from_pylist(list(rows), SUMMARY))
    assert result is not None
    return result


def test_deciding_targets_come_first(golden: Golden) -> None:
    result = certificate_of(*target("a", *CLEARED), *target("b", *HELD), *target("c", *OPEN))
    assert [(item.target, item.answer) for item in result.findings] == [
        ("b", "not forgotten"),
        ("c", "undecided"),
        ("a", "forgotten"),
    ]
    golden(result.asked)


def test_targets_are_named_by_file_or_training(golden: Golden) -> None:
    outputs = tuple(map(File, ("in/kept.csv", "sent.csv", "sent.parquet", "later/kept.v2")))
    given_tables = with_settings(QUICKSTART, {"given.outputs": outputs})
    rows = []
    for file in ("kept.csv", "sent.csv", "sent.parquet", "kept.v2"):
        rows.extend(target(file, *CLEARED))
    result = certificate_of(*rows, config=given_tables)
    assert [item.target for item in result.findings] == ["kept.csv", "sent.csv", "sent.parquet", "kept.v2"]
    alone = certificate_of(*target("kept.csv", *CLEARED), config=with_settings(given_tables, outputs=outputs[:1]))
    assert [item.target for item in alone.findings] == ["kept"]
    assert "trained on" not in result.asked + alone.asked
    two = with_settings(QUICKSTART, targets=(Target(1.0, 1.0), Target(calibration=1.0), Target(0.1)))
    trained_certificate = certificate_of(*target("D_C + D_Q", *HELD), *target("D_C", *CLEARED), config=two)
    golden(trained_certificate.asked, "trained.asked")
    draws = certificate_of(
        *target("D_C + D_Q", *HELD), *target("D_C", *CLEARED), config=with_settings(two, calibration_share=0.25)
    )
    golden(draws.asked, "draws.asked")
    assert [item.target for item in trained_certificate.findings] == ["all of the data", "none of the data"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("0.05D_C+0.5D_Q-fine-tuning", "50 % of the data, 5 % of the comparison data, then fine-tuning"),
        ("D_Q", "all of the data, none of the comparison data"),
        ("D_C+outside", "none of the data, data of another domain"),
    ],
)
def test_target_has_name_without_symbols(text: str, name: str) -> None:
    assert Target.parse(text).describe() == name


PAGE_ONE_NEVER = ("D_Q", "D_C", "p =", "p-value", "AUC", "rho", "U-LiRA", "KS")


@pytest.mark.parametrize("values", [CLEARED, HELD, OPEN, (0.5, 0.0, 0.06, 0.001)])
@pytest.mark.parametrize("other_values", [(), ((0.001, 0.08, 1.0),)])
def test_page_one_has_no_symbol(values: tuple[float, ...], other_values: tuple[tuple[float, ...], ...]) -> None:
    rows = target("D_C", *values)
    for other_target in other_values:
        rows += target("D_C + D_Q", *other_target)
    page = certificate_of(*rows)
    findings = [text for finding in page.findings for text in (finding.sentence, finding.target)]
    words = " ".join([page.examined, page.asked, *findings, page.rule, page.error, page.beyond, *page.steps])
    words += " ".join(condition.text for condition in page.conditions)
    assert [name for name in PAGE_ONE_NEVER if name in words] == []


def test_accusation_shows_its_test(golden: Golden) -> None:
    (finding,) = certificate_of(*target("b", *HELD)).findings
    assert finding.target == ""
    golden(finding.sentence)
    assert finding.line is not None
    assert finding.line.estimate == 1
    assert finding.line.low is None
    assert finding.line.boundaries[0].value == 25


def test_cleared_target_shows_the_share_it_may_hold(golden: Golden) -> None:
    (finding,) = certificate_of(*target("a", *CLEARED)).findings
    golden(finding.sentence)
    assert finding.line is not None
    assert finding.line.high == 6
    assert finding.line.boundaries[0].value == 10


def test_certificate_without_targets_equals_the_verdict(golden: Golden) -> None:
    result = certificate_of()
    (finding,) = result.findings
    golden(finding.sentence)
    assert result.error == ""
    assert result.steps == (RUN_AGAIN,)


def share_row_of(name: str, models: int) -> Row:
    return row("share of D_Q held", {"target": name}, Estimate(None, None, None, models), "training", 0.0)


def lower_certainty_row(name: str) -> Row:
    less = Estimate(1.0, 0.5, 1.5, 1)
    return row("more certain about control", {"target": name}, less, "training", 0.0, p_value=0.001)


def repeats_row(name: str) -> Row:
    return row("repeated images with two answers", {"target": name}, proportion(3, 40), "picture", 0.0)


def target_without_classes(name: str) -> list[Row]:
    """The rows of a target without class predictions."""
    cleared = target(name, *CLEARED)
    classes = []
    for item in cleared:
        classes.append({**item, "estimate": None} if item["metric"].startswith("accuracy") else item)
    return classes


@pytest.mark.parametrize(
    "rows",
    [
        target("a", *DIFFERENT),
        [*target("a", *CLEARED), repeats_row("a")],
        [*target("a", *CLEARED), lower_certainty_row("a")],
        [*target("a", *CLEARED), tied_row(0.5, 40, "image", target="a")],
        target_without_classes("a"),
    ],
)
def test_not_assessable_target_has_reason_and_no_share(golden: Golden, rows: list[Row]) -> None:
    result = certificate_of(*rows)
    (finding,) = result.findings
    assert finding.answer == "not assessable"
    assert finding.line is None
    golden(finding.sentence, "finding")
    golden(result.steps, "steps")


def test_rule_names_every_reason(golden: Golden) -> None:
    golden(certificate_of(*target("a", *DIFFERENT)).rule)
    golden(RULES.explain(QUICKSTART), "exact rule")


def test_no_error_rate_without_a_control_set(golden: Golden) -> None:
    result = certificate_of(share_row_of("a", 5), config=TABLE1)
    (finding,) = result.findings
    golden(finding.sentence)
    assert finding.answer == "not assessable"
    assert finding.line is None
    assert result.error == ""
    assert result.steps == (HOLD_BACK,)


def test_error_of_a_known_share_is_stated(golden: Golden) -> None:
    known = certificate_of(*target("a", *CLEARED))
    golden(known.error, "known")
    unknown = certificate_of(share_row_of("a", 1), *target("a", *CLEARED)[1:])
    golden(unknown.error, "unknown")
    golden(unknown.other_errors, "unknown other answers")
    assert known.other_errors == unknown.other_errors
    assert unknown.steps == (MORE,)
    named_config = with_settings(QUICKSTART, {"query.control.images": NamedImages(QUICKSTART.query.data, 1400, 30)})
    golden(certificate_of(*target("a", *CLEARED), config=named_config).other_errors, "named control set")


def test_image_run_suggests_scores() -> None:
    images = replace(QUICKSTART, question=Examples())
    assert certificate_of(config=images).steps == ("Also evaluate models on the data (`question=scores`).",)


TESTED = {"effect": 2.5, "effect_low": 1.0, "effect_high": 4.0, "p": 0.01, "p_adjusted": 0.02, "p_other": 0.99}
HOLDS = {"share": 0.2, "share_low": 0.1, "share_high": 0.3}
LIKE = {"accuracy": 0.9, "accuracy_calibration": 0.92, "accuracy_p": 0.4}
LIKE |= {"agreement": 0.7, "agreement_calibration": 0.8, "agreement_p": 0.005}
ANSWERED_TWICE = {"repeats": 50, "disagreeing": 3}


@pytest.mark.parametrize(
    ("known_columns", "expected"),
    [
        (
            TESTED | HOLDS | LIKE | ANSWERED_TWICE,
            TargetEvidence(
                2,
                0.02,
                Estimate(0.2, 0.1, 0.3, 2),
                LikenessCheck(0.9, 0.92, 0.4),
                LikenessCheck(0.7, 0.8, 0.005),
                0.1,
                3,
                50,
                p_other=0.99,
            ),
        ),
        (TESTED, TargetEvidence(2, 0.02, None, UNKNOWN, UNKNOWN, 0.1, p_other=0.99)),
        ({}, TargetEvidence(2, None, None, UNKNOWN, UNKNOWN, 0.1)),
    ],
)
def test_target_rows_are_read_back_unchanged(known_columns: Row, expected: TargetEvidence) -> None:
    target = dict.fromkeys(DECISIONS.names) | {"name": "b", "models": 2, "repeats": 0, "disagreeing": 0} | known_columns
    other_target = target | {"name": "a", "share": 0.9, "p_adjusted": 0.5}
    rows_written = [
        share_row(other_target),
        share_row(target),
        *side_rows(other_target),
        *side_rows(target),
        *likeness_rows(target),
    ]
    rows = {(row["metric"], row["setting"]): row for row in rows_written}
    assert expected == read_target_evidence(rows, '{"target": "b"}', 0.1)


def test_unanswered_target_has_no_share() -> None:
    assert tuple(unanswered_row("c")[name] for name in ("estimate", "n")) == (None, 0)
