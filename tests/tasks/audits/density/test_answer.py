"""The answer follows from the tail; its sentences and the certificate state the reasons."""

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


EXCESS_NAME = row_name(BEYOND_CHANCE, **{"p-value at most": 0.05})
DETECTION_NAME = row_name(LEAST_FOUND, share=0.8)


def row(metric: tuple[str, str], estimate: float | None, **numbers: Any) -> dict[str, Any]:
    columns = {"metric": metric[0], "setting": metric[1], "estimate": estimate, "n": 10}
    return dict.fromkeys(SUMMARY.names) | columns | numbers


def gap(estimate: float | None, low: float | None, high: float | None, p_value: float | None, n: int = 10) -> Any:
    return row(GAP, estimate, low=low, high=high, p_value=p_value, n=n, null=0.0)


def called_row(count: int = 0, n: int = 60_000) -> dict[str, Any]:
    return row(CALLED, count / n, n=n)


def beyond_row(p_value: float | None = 0.5, low: float = 0.0) -> dict[str, Any]:
    return row(EXCESS_NAME, low, low=low, high=1.0, p_value=p_value)


def detection_limit(nats: float | None = 7.5, high: float | None = 9.25) -> dict[str, Any]:
    return row(DETECTION_NAME, nats, high=high if nats else None, n=100)


NO_GAP = gap(0.01, -0.05, 0.099, 0.4)  # no memorisation on average
MEMORISED = (called_row(3), beyond_row(), NO_GAP, detection_limit())


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
        # one of 60,000, which does not change a mean
        ("memorised", (called_row(1), beyond_row(), NO_GAP, detection_limit())),
        # many images that cannot be identified
        ("memorised", (called_row(), beyond_row(0.001, 0.01), NO_GAP, detection_limit())),
        ("undecided", (called_row(), beyond_row(0.0011, 0.01), NO_GAP, detection_limit())),
        ("undecided", (called_row(), beyond_row(0.05), NO_GAP, detection_limit())),
        ("not detected", (called_row(), beyond_row(0.051), NO_GAP, detection_limit())),
        ("not detected", (called_row(), beyond_row(), gap(-0.5, -0.8, -0.2, 0.01), detection_limit())),
        ("not assessable", (called_row(), beyond_row(), NO_GAP, detection_limit(), tied_row(0.051, 60, "observation"))),
        (
            "memorised",
            (called_row(1), beyond_row(), NO_GAP, detection_limit(), tied_row(0.9, 60, "observation")),
        ),  # worst ranks accuse
        ("not detected", (called_row(), beyond_row(), NO_GAP, detection_limit(), tied_row(0.05, 60, "observation"))),
        # a single memorised image could not have been detected
        ("undecided", (called_row(), beyond_row(), NO_GAP, detection_limit(None))),
        ("not detected", (called_row(), beyond_row(), NO_GAP, detection_limit(9.0, 10.0))),
        # the limit exceeds the tolerated memory
        ("undecided", (called_row(), beyond_row(), NO_GAP, detection_limit(9.0, 10.1))),
        ("undecided", (called_row(), beyond_row(), NO_GAP, detection_limit(9.0, None))),
        ("undecided", (called_row(), beyond_row(), NO_GAP, detection_limit(900.0, 1000.0))),
        # the upper limit is not negligible
        ("undecided", (called_row(), beyond_row(), gap(0.01, -0.05, 0.1, 0.4), detection_limit())),
        # a gap does not show memorisation of an image
        ("undecided", (called_row(), beyond_row(), gap(2.5, 2.0, 3.0, 1e-9), detection_limit())),
        # certain, but negligible
        ("not detected", (called_row(), beyond_row(), gap(0.01, 0.005, 0.015, 0.99), detection_limit())),
        ("undecided", (called_row(), beyond_row(), gap(0.01, None, None, 0.4, 1), detection_limit())),
        ("undecided", (called_row(), beyond_row(), detection_limit())),
        ("undecided", (called_row(), NO_GAP, detection_limit())),  # too few permutations to count p-values together
        ("memorised", (called_row(1), NO_GAP, detection_limit())),
    ],
)
def test_tail_decides_answer(answer: str, rows: tuple[dict[str, Any], ...]) -> None:
    answer_page = verdict(Density(), table(*rows))
    assert answer == answer_page.answer
    assert answer_page.sentence.startswith(answer.capitalize() + ": ")
    deciding = []
    for decisive_row in rows:
        if decisive_row["metric"] != TIED:
            deciding.append(name_of(decisive_row))
    if answer == "not assessable":
        deciding.insert(0, (TIED, "{}"))
    if not rows[0]["estimate"] and answer == "memorised":
        deciding[:2] = deciding[1::-1]  # the count of all images comes first if it decides
    assert [*answer_page.rows] == deciding
    assert answer_page.limits == LIMITS


def sentence_of(*rows: dict[str, Any], config: Density = Density()) -> str:  # noqa: B008
    """The answer's sentences."""
    return verdict(config, table(*rows)).sentence


def test_sentence_on_all_images_follows_its_rule() -> None:
    phrases = (
        "consistent with no memorisation",
        "do not show memorisation at the 0.1 % level",
        "at least 600 images are",
    )
    for p, expected in ((0.051, 0), (0.05, 1), (0.0011, 1), (0.001, 2)):
        sentence = sentence_of(called_row(), beyond_row(p, 0.01), NO_GAP, detection_limit())
        assert [phrase in sentence for phrase in phrases] == [index == expected for index in range(3)]
        assert ("By chance alone," in sentence) == (expected == 1)
    assert "Taken together" not in sentence_of(called_row(), beyond_row(None), NO_GAP, detection_limit())


def test_unknown_rows_are_not_described() -> None:
    for rows in (
        (called_row(3), beyond_row(), detection_limit()),
        (called_row(3), beyond_row(), gap(None, None, None, None), detection_limit()),
    ):
        assert "Generalisation gap" not in sentence_of(*rows)
    assert "of the gap" not in sentence_of(
        called_row(), beyond_row(), gap(None, None, None, None, 0), detection_limit()
    )
    called_statistic = row(row_name(OF_CALLED, statistic="highest"), 9.0)
    assert "matched-count M" not in sentence_of(
        called_row(3), beyond_row(), NO_GAP, detection_limit(), called_statistic
    )


def test_partition_has_singular_and_plural() -> None:
    for n, words in ((1, "1 random partition into"), (2, "2 random partitions into")):
        assert words in sentence_of(called_row(3), beyond_row(), gap(0.01, -0.05, 0.099, 0.4, n), detection_limit())


def test_detection_by_count_is_explained() -> None:
    reason = "Images are detected here because many have small p-values."
    assert reason in sentence_of(called_row(3), beyond_row(), NO_GAP, detection_limit(None))
    assert reason not in sentence_of(called_row(0), beyond_row(), NO_GAP, detection_limit(None))


def test_too_few_permutations_are_reported() -> None:
    remark = "P-values are counted together only with"
    rows = (called_row(), NO_GAP, detection_limit(None)), (called_row(), beyond_row(), NO_GAP, detection_limit(None))
    assert [remark in sentence_of(*summary_rows) for summary_rows in rows] == [True, False]
    assert remark not in sentence_of(*rows[0], config=Density(ALONE))


def test_missing_model_of_all_data_is_reported() -> None:
    whole_loss = row(row_name("loss", models="whole", split="train"), 100.0)
    missing_model = "The model of all data is missing"
    assert [missing_model in sentence_of(*MEMORISED, *more) for more in ((whole_loss,), ())] == [False, True]
    assert missing_model not in sentence_of(*MEMORISED, config=Density(ALONE))


def test_search_lowers_score_within_loss_allowance() -> None:
    objectives = AUDIT.objectives
    assert objectives is not None
    names = []
    for objective in (objectives.memorization, objectives.utility):
        names.append((objective.name, objective.unit, objective.better))
    assert names == [("mean matched-count M", "nats", "lower"), ("test loss", "nats", "lower")]
    assert objectives.allowance == 1.0


def test_negligible_applies_to_images_and_gap(golden: Golden) -> None:
    rows = called_row(), beyond_row(), gap(0.2, 0.1, 0.4, 0.3), detection_limit()
    assert verdict(density(negligible=0.4), table(*rows)).answer == "undecided"
    assert verdict(density(negligible=0.5), table(*rows)).answer == "not detected"
    sentence = sentence_of(*rows, config=density(negligible=0.5))
    golden(sentence)


def test_high_detection_limit_is_undecided(golden: Golden) -> None:
    rows = called_row(), beyond_row(), NO_GAP, detection_limit(900.0, 1000.0)
    golden(sentence_of(*rows))
    assert verdict(density(detectable=1000.0), table(*rows)).answer == "not detected"
    assert "no upper limit" in sentence_of(*rows[:3], detection_limit(9.0, None))
    for without_limit in (rows[:3], (*rows[:3], detection_limit(None))):
        assert "no upper limit" not in sentence_of(*without_limit)


def test_verdict_states_count_and_strength(golden: Golden) -> None:
    of_called = []
    for name, estimate in (("median", 33.5), ("highest", 80)):
        of_called.append(row(row_name(OF_CALLED, statistic=name), estimate))
    few_sentence = sentence_of(*MEMORISED, *of_called)
    golden(few_sentence, "few")
    assert "one of 60,000 images became" in sentence_of(called_row(1), NO_GAP)
    some_sentence = sentence_of(called_row(), beyond_row(0.002, 0.01), NO_GAP)
    golden(some_sentence, "some")
    assert "decides the answer" not in some_sentence
    many_sentence = sentence_of(called_row(), beyond_row(1e-9, 0.0125), NO_GAP)
    golden(many_sentence, "many")


def test_one_count_decides(golden: Golden) -> None:
    sentence = sentence_of(called_row(13), beyond_row(1e-9, 0.0125), NO_GAP, detection_limit(None))
    golden(sentence)
    assert sentence.count("decides") == 1
    assert sentence.index("This count decides the answer.") < sentence.index(
        "show that at least 750 images are memorised (p < 1e-6). This number includes the images counted above; the "
        "others cannot be identified."
    )


def test_gap_names_the_test_of_its_estimator(golden: Golden) -> None:
    large = gap(2.5, 2.0, 3.0, 0.01)
    folds_sentence = sentence_of(called_row(), beyond_row(), large, detection_limit())
    alone_sentence = sentence_of(called_row(), large, config=Density(ALONE))
    golden(folds_sentence, "folds")
    assert "one-sided t-test of at most 0.1: p = 0.01" in alone_sentence
    assert "randomisation" not in alone_sentence
    golden(alone_sentence, "alone")


def test_one_partition_can_show_memory_without_interval(golden: Golden) -> None:
    single_gap = gap(2.5, None, None, 0.001, n=1)
    assert verdict(Density(), table(called_row(4), single_gap)).answer == "memorised"
    unsure_verdict = verdict(Density(), table(called_row(), beyond_row(), single_gap, detection_limit()))
    assert unsure_verdict.answer == "undecided"
    golden(unsure_verdict.sentence, "unsure.sentence")
    pair_sentence = sentence_of(
        called_row(), gap(2.5, None, None, None, n=1), config=Density(replace(ALONE, repetitions=1))
    )
    golden(pair_sentence, "pair")


def test_few_repetitions_are_named() -> None:
    sentences = [sentence_of(called_row(), gap(2.5, 1, 4, 0.01, n)) for n in (3, 4)]
    assert ["wide because of few repetitions" in sentence for sentence in sentences] == [True, False]


# Remarks


@pytest.mark.parametrize(("median", "samples", "rough"), [(6.2, 256, True), (25.5, 256, True), (25.6, 256, False)])
def test_few_effective_samples_are_reported(golden: Golden, median: float, samples: int, rough: bool) -> None:
    effective_rows = row(EFFECTIVE, median, n=60_000), row(FEW_EFFECTIVE, 0.625, n=60_000)
    plain, remarked = (
        verdict(density(samples=samples), table(*MEMORISED, *extra_rows)) for extra_rows in ((), effective_rows)
    )
    assert remarked.sentence.startswith(plain.sentence)
    assert (remarked.sentence != plain.sentence) == rough
    golden(remarked.sentence)
    assert plain.answer == remarked.answer
    assert plain.rows == remarked.rows
    assert plain.limits == remarked.limits


def test_missing_trainings_are_reported(golden: Golden) -> None:
    lacking_models = row(row_name("models of an observation, at least", planned=100), 97.0, n=100)
    answer = verdict(Density(), table(*MEMORISED, lacking_models))
    golden(answer.sentence)


def test_published_score_has_its_null_value(golden: Golden) -> None:
    rows = called_row(), row(MATCHED, 0.125), row(PUBLISHED, 4.5, null=4.25)
    answer = verdict(Density(), table(*rows))
    golden(answer.published)
    assert answer.limits == LIMITS
    assert answer.rows == (CALLED,)  # the published score does not affect the decision
    for fewer_rows in (rows[:2], rows[::2]):
        assert verdict(Density(), table(*fewer_rows)).published == ""


def test_control_run_is_named() -> None:
    summary_table = table(*MEMORISED)
    assert "This is a control run" in verdict(density(estimator=KFold(evaluation_split="test")), summary_table).sentence
    assert "This is a control run" not in verdict(Density(), summary_table).sentence


def test_privacy_remark_bounds_no_single_score(golden: Golden) -> None:
    private = Density(replace(ALONE, training=ModelTraining(privacy=DifferentialPrivacy(8.0, 1e-5))))
    called_images = called_row()
    promise = "Training was (8, 1e-05)-differentially private, which does not bound a single score"
    assert verdict(private, table(called_images)).sentence.endswith(f"{promise}.")
    scored = table(
        called_images,
        row(row_name("largest M of a row left out", row=3), 9.25),
        row(("rows above epsilon", "{}"), 0.2, n=10),
    )
    assert verdict(private, scored.slice(0, 2)).sentence.endswith(f"{promise}.")  # the number of rows above is unknown
    golden(verdict(private, scored).sentence)
    assert "private" not in verdict(Density(ALONE), scored).sentence


# No score


@pytest.mark.parametrize(
    ("question", "content"),
    [
        (KernelDensity(), "a density in one dimension, whose scores are known exactly"),
        (NearDuplicates(), "the closest pairs of training images"),
    ],
)
def test_run_without_models_states_its_content(golden: Golden, question: Question, content: str) -> None:
    first = row_name("M", point="outlying")
    answer = verdict(Density(question), table(row(first, 2.0), row(("equal pairs", "{}"), 0.0)))
    golden(answer.sentence)
    assert answer.answer == "undecided"
    assert answer.rows == (first,)
    golden(answer.limits, "said.limits")


@pytest.mark.parametrize("rows", [[], [gap(None, None, None, None, 0), row(CALLED, None, n=0)]])
def test_missing_models_of_one_kind_are_reported(
    golden: Golden,
    rows: list[dict[str, Any]],
) -> None:
    answer = verdict(Density(), table(*rows))
    assert answer.answer == "undecided"
    golden(answer.sentence)
    assert "no model was evaluated" not in answer.sentence
    assert answer.limits == LIMITS


def certificate_of(config: Density, *rows: dict[str, Any]) -> Certificate:
    certificate = AUDIT.certify("Which?", config, table(*rows))
    assert certificate is not None
    return certificate


def finding_of(*rows: dict[str, Any]) -> Finding:
    certificate = certificate_of(Density(), *rows)
    assert RULES.explain(Density()) == certificate.rule
    assert "about 5 of 100 audits would report memorisation" in f"{certificate.error} {certificate.other_errors}"
    (finding,) = certificate.findings
    return finding


def test_undecided_certificate_states_its_reason(golden: Golden) -> None:
    large_gap = gap(2.5, 2.0, 3.0, 0.01)
    golden(finding_of(called_row(), beyond_row(), large_gap, detection_limit()).sentence, "large average")
    golden(finding_of(called_row(), beyond_row(0.01, 0.01), NO_GAP, detection_limit()).sentence, "many small p-values")
    golden(finding_of(called_row(), beyond_row(), NO_GAP, detection_limit(None)).sentence, "too few repetitions")


def test_number_line_counts_identified_images(golden: Golden) -> None:
    finding = finding_of(*MEMORISED)
    golden(finding.sentence)
    assert finding.line is not None
    assert finding.line.what == "images identified as memorised, of 60,000"
    assert finding.line.estimate == 3.0


def test_number_line_has_lower_limit_of_all_images(golden: Golden) -> None:
    finding = finding_of(called_row(), beyond_row(0.0001, 0.01), NO_GAP, detection_limit())
    golden(finding.sentence)
    assert finding.line is not None
    assert finding.line.estimate == 600.0
    assert finding.line.boundaries[0].value == 1.0


def test_number_line_of_cleared_models_has_gap(golden: Golden) -> None:
    finding = finding_of(called_row(), beyond_row(), NO_GAP, detection_limit())
    assert finding.answer == "not detected"
    golden(finding.sentence)
    assert finding.line is not None
    factors = finding.line.estimate, finding.line.high, finding.line.boundaries[0].value
    assert factors == pytest.approx((math.exp(0.01), math.exp(0.099), 1.11))
    assert GAP[0] == "generalisation gap of log p"


def test_certificate_states_all_conditions(golden: Golden) -> None:
    certificate = certificate_of(Density(), called_row(), beyond_row(), NO_GAP, detection_limit())
    golden(certificate.rule)
    few_partitions = certificate_of(
        density(repetitions=1, estimator=KFold(4)), called_row(), beyond_row(), NO_GAP, detection_limit()
    )
    golden(few_partitions.rule, "few.rule")


def test_single_rows_have_no_test_of_all_images(golden: Golden) -> None:
    certificate = certificate_of(Density(ALONE), called_row(1, 12_345), NO_GAP, detection_limit())
    golden(certificate.rule, "made.rule")
    assert "permutations" not in certificate.rule
    golden(certificate.error, "made.error")
    golden(certificate.other_errors, "made.other_errors")
    golden(certificate.examined, "made.examined")
    golden(certificate.findings[0].sentence, "sentence")


def test_certificate_of_control_run_requires_no_action(golden: Golden) -> None:
    null = density(estimator=KFold(evaluation_split="test"))
    audit = Density()
    alarm, quiet, many_images = (
        certificate_of(null, *rows)
        for rows in (MEMORISED, (called_row(), beyond_row(), NO_GAP), (called_row(), beyond_row(1e-4), NO_GAP))
    )
    assert alarm.findings[0].answer == "memorised"
    for certificate in (alarm, quiet, many_images, certificate_of(null)):
        (finding,) = certificate.findings
        golden(finding.sentence, "finding.sentence")
        assert "training on an image makes" not in finding.sentence
        assert not set(certificate.steps) & set(certificate_of(audit, *MEMORISED).steps)
        assert "run the actual audit (`evaluation_split=train`)." in certificate.steps[-1]
    golden(alarm.steps[0], "alarm.steps[0]")
    assert quiet.steps[0].startswith("Keep this page with that of the audit")
    golden(many_images.findings[0].sentence, "sentence")
    assert quiet.findings[0].line is not None
    assert "counted as training images" in quiet.findings[0].line.what
    assert "This is a control run" not in certificate_of(audit, *MEMORISED).findings[0].sentence
    assert "This is a control run" not in certificate_of(Density(KernelDensity())).findings[0].sentence
