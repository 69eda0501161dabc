"""The answer follows from the tail; it says in words, and on the certificate, what decided and what did not."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tasks.audits.density import AUDIT
from tasks.audits.density.answer import LIMITS, RULES, verdict
from tasks.audits.density.config import (
    Density,
    KernelDensity,
    KFold,
    Memorization,
    ModelTraining,
    NearDuplicates,
    Question,
    SingleRows,
)
from tasks.audits.density.evidence import CALLED, EFFECTIVE, FEW_EFFECTIVE, GAP, MATCHED, OF_CALLED, PUBLISHED
from tasks.audits.density.measures.scores import BEYOND_CHANCE, LEAST_FOUND, PLANTED_CALLED
from tasks.contract.certificate import Certificate, Finding
from tasks.contract.schemas import SUMMARY
from tasks.contract.summaries import name_of, row_name
from tasks.contract.ties import TIED, tied_row
from tasks.datasets.dataset import Dataset
from tasks.training.privacy_config import DifferentialPrivacy
from tests.support.golden import Golden

ALONE = Memorization(estimator=SingleRows(10))


def density(**fields: Any) -> Density:
    return Density(Memorization(**fields))


BEYOND = row_name(BEYOND_CHANCE, **{"p-value at most": 0.05})
FOUND = row_name(LEAST_FOUND, share=0.8)


def row(metric: tuple[str, str], estimate: float | None, **numbers: Any) -> dict[str, Any]:
    named = {"metric": metric[0], "setting": metric[1], "estimate": estimate, "n": 10}
    return dict.fromkeys(SUMMARY.names) | named | numbers


def gap(estimate: float | None, low: float | None, high: float | None, p_value: float | None, n: int = 10) -> Any:
    return row(GAP, estimate, low=low, high=high, p_value=p_value, n=n, null=0.0)


def called(count: int = 0, n: int = 60_000) -> dict[str, Any]:
    return row(CALLED, count / n, n=n)


def beyond(p_value: float | None = 0.5, low: float = 0.0) -> dict[str, Any]:
    return row(BEYOND, low, low=low, high=1.0, p_value=p_value)


def found(nats: float | None = 7.5, high: float | None = 9.25) -> dict[str, Any]:
    return row(FOUND, nats, high=high if nats else None, n=100)


NONE = gap(0.01, -0.05, 0.099, 0.4)  # nothing on average
MEMORISED = (called(3), beyond(), NONE, found())


def table(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), SUMMARY)


def test_verdict_counts_planted_images_apart(golden: Golden) -> None:
    planted = row(row_name(PLANTED_CALLED, planted="inverted10"), 0.7, low=0.397, high=0.892, n=10)
    config = density(data=Dataset("folder:scans#28x28#grey#inverted10"))
    golden(verdict(config, table(*MEMORISED, planted)).sentence)
    assert "planted" not in verdict(config, table(*MEMORISED)).sentence


@pytest.mark.parametrize(
    ("answer", "rows"),
    [
        ("memorised", (called(1), beyond(), NONE, found())),  # one of 60,000, which no mean shows
        ("memorised", (called(), beyond(0.001, 0.01), NONE, found())),  # many, of whom none can be named
        ("undecided", (called(), beyond(0.0011, 0.01), NONE, found())),
        ("undecided", (called(), beyond(0.05), NONE, found())),
        ("not detected", (called(), beyond(0.051), NONE, found())),
        ("not detected", (called(), beyond(), gap(-0.5, -0.8, -0.2, 0.01), found())),
        ("not assessable", (called(), beyond(), NONE, found(), tied_row(0.051, 60, "observation"))),
        ("memorised", (called(1), beyond(), NONE, found(), tied_row(0.9, 60, "observation"))),  # worst ranks accuse
        ("not detected", (called(), beyond(), NONE, found(), tied_row(0.05, 60, "observation"))),
        ("undecided", (called(), beyond(), NONE, found(None))),  # one that is memorised could not have been found
        ("not detected", (called(), beyond(), NONE, found(9.0, 10.0))),
        ("undecided", (called(), beyond(), NONE, found(9.0, 10.1))),  # more may be needed than may stay unseen
        ("undecided", (called(), beyond(), NONE, found(9.0, None))),
        ("undecided", (called(), beyond(), NONE, found(900.0, 1000.0))),
        ("undecided", (called(), beyond(), gap(0.01, -0.05, 0.1, 0.4), found())),  # what is not negligible itself
        ("undecided", (called(), beyond(), gap(2.5, 2.0, 3.0, 1e-9), found())),  # a gap is no memory of any observation
        ("not detected", (called(), beyond(), gap(0.01, 0.005, 0.015, 0.99), found())),  # sure, and negligible
        ("undecided", (called(), beyond(), gap(0.01, None, None, 0.4, 1), found())),
        ("undecided", (called(), beyond(), found())),
        ("undecided", (called(), NONE, found())),  # of too few permutations to count p-values together
        ("memorised", (called(1), NONE, found())),
    ],
)
def test_tail_decides_answer(answer: str, rows: tuple[dict[str, Any], ...]) -> None:
    said = verdict(Density(), table(*rows))
    assert answer == said.answer
    assert said.sentence.startswith(answer.capitalize() + ": ")
    deciding = [name_of(each) for each in rows if each["metric"] != TIED]
    if answer == "not assessable":
        deciding.insert(0, (TIED, "{}"))
    if not rows[0]["estimate"] and answer == "memorised":
        deciding[:2] = deciding[1::-1]  # the count of all together comes first where it decides
    assert (deciding, LIMITS) == ([*said.rows], said.limits)


def said(*rows: dict[str, Any], config: Density = Density()) -> str:  # noqa: B008
    """The answer's sentences."""
    return verdict(config, table(*rows)).sentence


def test_sentence_on_all_images_follows_its_rule() -> None:
    phrases = (
        "consistent with no memorisation",
        "do not show memorisation at the 0.1 % level",
        "at least 600 images are",
    )
    for p, expected in ((0.051, 0), (0.05, 1), (0.0011, 1), (0.001, 2)):
        sentence = said(called(), beyond(p, 0.01), NONE, found())
        assert [phrase in sentence for phrase in phrases] == [index == expected for index in range(3)]
        assert ("By chance alone," in sentence) == (expected == 1)
    assert "Taken together" not in said(called(), beyond(None), NONE, found())


def test_unknown_rows_are_not_described() -> None:
    for rows in ((called(3), beyond(), found()), (called(3), beyond(), gap(None, None, None, None), found())):
        assert "Generalisation gap" not in said(*rows)
    assert "of the gap" not in said(called(), beyond(), gap(None, None, None, None, 0), found())
    some = row(row_name(OF_CALLED, statistic="highest"), 9.0)
    assert "matched-count M" not in said(called(3), beyond(), NONE, found(), some)


def test_partition_has_singular_and_plural() -> None:
    for n, words in ((1, "1 random partition into"), (2, "2 random partitions into")):
        assert words in said(called(3), beyond(), gap(0.01, -0.05, 0.099, 0.4, n), found())


def test_detection_by_count_is_explained() -> None:
    because = "Images are detected here because many have small p-values."
    assert [because in said(called(n), beyond(), NONE, found(None)) for n in (3, 0)] == [True, False]


def test_too_few_permutations_are_reported() -> None:
    wanted = "P-values are counted together only with"
    rows = (called(), NONE, found(None)), (called(), beyond(), NONE, found(None))
    assert [wanted in said(*each) for each in rows] == [True, False]
    assert wanted not in said(*rows[0], config=Density(ALONE))


def test_missing_model_of_all_data_is_reported() -> None:
    whole = row(row_name("loss", models="whole", split="train"), 100.0)
    missing = "The model of all data is missing"
    assert [missing in said(*MEMORISED, *more) for more in ((whole,), ())] == [False, True]
    assert missing not in said(*MEMORISED, config=Density(ALONE))


def test_search_lowers_score_within_loss_allowance() -> None:
    objectives = AUDIT.objectives
    assert objectives is not None
    names = [(each.name, each.unit, each.better) for each in (objectives.memorization, objectives.utility)]
    assert names == [("mean matched-count M", "nats", "lower"), ("test loss", "nats", "lower")]
    assert objectives.allowance == 1.0


def test_negligible_applies_to_images_and_gap(golden: Golden) -> None:
    rows = called(), beyond(), gap(0.2, 0.1, 0.4, 0.3), found()
    assert [verdict(density(negligible=n), table(*rows)).answer for n in (0.4, 0.5)] == ["undecided", "not detected"]
    sentence = said(*rows, config=density(negligible=0.5))
    golden(sentence)


def test_high_detection_limit_is_undecided(golden: Golden) -> None:
    rows = called(), beyond(), NONE, found(900.0, 1000.0)
    golden(said(*rows))
    assert verdict(density(detectable=1000.0), table(*rows)).answer == "not detected"
    assert "no upper limit" in said(*rows[:3], found(9.0, None))
    for unknown in (rows[:3], (*rows[:3], found(None))):
        assert "no upper limit" not in said(*unknown)


def test_verdict_states_count_and_strength(golden: Golden) -> None:
    of_called = [row(row_name(OF_CALLED, statistic=name), of) for name, of in (("median", 33.5), ("highest", 80))]
    few = said(*MEMORISED, *of_called)
    golden(few, "few")
    assert "one of 60,000 images is" in said(called(1), NONE)
    some = said(called(), beyond(0.002, 0.01), NONE)
    golden(some, "some")
    assert "decides the answer" not in some
    many = said(called(), beyond(1e-9, 0.0125), NONE)
    golden(many, "many")


def test_one_count_decides(golden: Golden) -> None:
    sentence = said(called(13), beyond(1e-9, 0.0125), NONE, found(None))
    golden(sentence)
    assert sentence.count("decides") == 1
    assert sentence.index("This count decides the answer.") < sentence.index(
        "show that at least 750 images are memorised (p < 1e-6). This number includes the images counted above; the "
        "others cannot be identified."
    )


def test_gap_names_the_test_of_its_estimator(golden: Golden) -> None:
    large = gap(2.5, 2.0, 3.0, 0.01)
    folds, alone = said(called(), beyond(), large, found()), said(called(), large, config=Density(ALONE))
    golden(folds, "folds")
    assert "one-sided t-test of at most 0.1: p = 0.01" in alone
    assert "randomisation" not in alone
    golden(alone, "alone")


def test_one_partition_can_show_memory_without_interval(golden: Golden) -> None:
    alone = gap(2.5, None, None, 0.001, n=1)
    assert verdict(Density(), table(called(4), alone)).answer == "memorised"
    unsure = verdict(Density(), table(called(), beyond(), alone, found()))
    assert unsure.answer == "undecided"
    golden(unsure.sentence, "unsure.sentence")
    pair = said(called(), gap(2.5, None, None, None, n=1), config=Density(replace(ALONE, repetitions=1)))
    golden(pair, "pair")


def test_few_repetitions_are_named() -> None:
    few = [said(called(), gap(2.5, 1, 4, 0.01, n)) for n in (3, 4)]
    assert ["wide because of few repetitions" in each for each in few] == [True, False]


# Remarks


@pytest.mark.parametrize(("median", "samples", "rough"), [(6.2, 256, True), (25.5, 256, True), (25.6, 256, False)])
def test_few_effective_samples_are_reported(golden: Golden, median: float, samples: int, rough: bool) -> None:
    told = row(EFFECTIVE, median, n=60_000), row(FEW_EFFECTIVE, 0.625, n=60_000)
    plain, said = (verdict(density(samples=samples), table(*MEMORISED, *each)) for each in ((), told))
    assert said.sentence.startswith(plain.sentence)
    assert (said.sentence != plain.sentence) == rough
    golden(said.sentence)
    assert (plain.answer, plain.rows, plain.limits) == (said.answer, said.rows, said.limits)


def test_missing_trainings_are_reported(golden: Golden) -> None:
    lacking = row(row_name("models of an observation, at least", planned=100), 97.0, n=100)
    said = verdict(Density(), table(*MEMORISED, lacking))
    golden(said.sentence)


def test_published_score_has_its_null_value(golden: Golden) -> None:
    rows = called(), row(MATCHED, 0.125), row(PUBLISHED, 4.5, null=4.25)
    said = verdict(Density(), table(*rows))
    golden(said.published)
    assert said.limits == LIMITS
    assert said.rows == (CALLED,)  # the published score decides nothing
    for lacking in (rows[:2], rows[::2]):
        assert verdict(Density(), table(*lacking)).published == ""


def test_control_run_is_named() -> None:
    given = table(*MEMORISED)
    assert "This is a control run" in verdict(density(estimator=KFold(evaluation_split="test")), given).sentence
    assert "This is a control run" not in verdict(Density(), given).sentence


def test_privacy_remark_bounds_no_single_score(golden: Golden) -> None:
    private = Density(replace(ALONE, training=ModelTraining(privacy=DifferentialPrivacy(8.0, 1e-5))))
    given = called()
    promise = "Training was (8, 1e-05)-differentially private, which does not bound a single score"
    assert verdict(private, table(given)).sentence.endswith(f"{promise}.")
    found = table(
        given, row(row_name("largest M of a row left out", row=3), 9.25), row(("rows above epsilon", "{}"), 0.2, n=10)
    )
    assert verdict(private, found.slice(0, 2)).sentence.endswith(f"{promise}.")  # how many are above is unknown
    golden(verdict(private, found).sentence)
    assert "private" not in verdict(Density(ALONE), found).sentence


# No score


@pytest.mark.parametrize(
    ("question", "shown"),
    [
        (KernelDensity(), "a density in one dimension, whose scores are known exactly"),
        (NearDuplicates(), "the closest pairs of training images"),
    ],
)
def test_run_without_models_states_its_content(golden: Golden, question: Question, shown: str) -> None:
    first = row_name("M", point="outlying")
    said = verdict(Density(question), table(row(first, 2.0), row(("equal pairs", "{}"), 0.0)))
    golden(said.sentence)
    assert ("undecided", (first,)) == (said.answer, said.rows)
    golden(said.limits, "said.limits")


@pytest.mark.parametrize("rows", [[], [gap(None, None, None, None, 0), row(CALLED, None, n=0)]])
def test_missing_models_of_one_kind_are_reported(
    golden: Golden,
    rows: list[dict[str, Any]],
) -> None:
    said = verdict(Density(), table(*rows))
    assert said.answer == "undecided"
    golden(said.sentence)
    assert "no model was evaluated" not in said.sentence
    assert said.limits == LIMITS


def certified(config: Density, *rows: dict[str, Any]) -> Certificate:
    made = AUDIT.certify("Which?", config, table(*rows))
    assert made is not None
    return made


def told(*rows: dict[str, Any]) -> Finding:
    made = certified(Density(), *rows)
    assert RULES.explain(Density()) == made.rule
    assert "about 5 of 100 audits would report memorisation" in made.error
    (finding,) = made.findings
    return finding


def test_number_line_counts_identified_images(golden: Golden) -> None:
    finding = told(*MEMORISED)
    golden(finding.sentence)
    assert finding.line is not None
    assert (finding.line.what, finding.line.estimate) == ("images identified as memorised, of 60,000", 3.0)


def test_number_line_has_lower_limit_of_all_images(golden: Golden) -> None:
    finding = told(called(), beyond(0.0001, 0.01), NONE, found())
    golden(finding.sentence)
    assert finding.line is not None
    assert (finding.line.estimate, finding.line.boundaries[0].value) == (600.0, 1.0)


def test_number_line_of_cleared_models_has_gap(golden: Golden) -> None:
    finding = told(called(), beyond(), NONE, found())
    assert finding.answer == "not detected"
    golden(finding.sentence)
    assert finding.line is not None
    factors = finding.line.estimate, finding.line.high, finding.line.boundaries[0].value
    assert factors == pytest.approx((math.exp(0.01), math.exp(0.099), 1.11))
    assert GAP[0] == "generalisation gap of log p"


def test_certificate_states_all_conditions(golden: Golden) -> None:
    made = certified(Density(), called(), beyond(), NONE, found())
    golden(made.rule)
    few = certified(density(repetitions=1, estimator=KFold(4)), called(), beyond(), NONE, found())
    golden(few.rule, "few.rule")


def test_single_rows_have_no_test_of_all_images(golden: Golden) -> None:
    made = certified(Density(ALONE), called(1, 12_345), NONE, found())
    golden(made.rule, "made.rule")
    assert "permutations" not in made.rule
    golden(made.error, "made.error")
    golden(made.findings[0].sentence, "sentence")


def test_certificate_of_control_run_requires_no_action(golden: Golden) -> None:
    null, audit = density(estimator=KFold(evaluation_split="test")), Density()
    alarm, quiet, many = (
        certified(null, *rows) for rows in (MEMORISED, (called(), beyond(), NONE), (called(), beyond(1e-4), NONE))
    )
    assert alarm.findings[0].answer == "memorised"
    for made in (alarm, quiet, many, certified(null)):
        (finding,) = made.findings
        golden(finding.sentence, "finding.sentence")
        assert "training on an image makes" not in finding.sentence
        assert not set(made.steps) & set(certified(audit, *MEMORISED).steps)
        assert "run the actual audit: evaluation_split=train." in made.steps[-1]
    golden(alarm.steps[0], "alarm.steps[0]")
    assert quiet.steps[0].startswith("Keep this page with that of the audit")
    golden(many.findings[0].sentence, "sentence")
    assert quiet.findings[0].line is not None
    assert "counted as training images" in quiet.findings[0].line.what
    assert "This is a control run" not in certified(audit, *MEMORISED).findings[0].sentence
    assert "This is a control run" not in certified(Density(KernelDensity())).findings[0].sentence
