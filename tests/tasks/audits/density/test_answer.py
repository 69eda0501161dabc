"""The answer follows from the tail; it says in words, and on the certificate, what decided and what did not."""

from __future__ import annotations

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


def test_what_was_planted_is_told_and_that_the_answer_speaks_of_it(golden: Golden) -> None:
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
def test_the_tail_decides(answer: str, rows: tuple[dict[str, Any], ...]) -> None:
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


def test_the_words_of_all_together_change_where_its_rule_does() -> None:
    words = "show no more than chance", "do not show at 0.1 %", "show that at least 600 are"
    for p, which in ((0.051, 0), (0.05, 1), (0.0011, 1), (0.001, 2)):
        sentence = said(called(), beyond(p, 0.01), NONE, found())
        assert [each in sentence for each in words] == [at == which for at in range(3)]
        assert (which == 1) == ("Chance brings as many small p-values in" in sentence)
    assert "observations together" not in said(called(), beyond(None), NONE, found())


def test_what_is_not_known_is_not_told() -> None:
    for rows in ((called(3), beyond(), found()), (called(3), beyond(), gap(None, None, None, None), found())):
        assert "generalisation gap" not in said(*rows)
    assert "of the gap" not in said(called(), beyond(), gap(None, None, None, None, 0), found())
    some = row(row_name(OF_CALLED, statistic="highest"), 9.0)
    assert "matched-count M" not in said(called(3), beyond(), NONE, found(), some)


def test_one_partition_is_no_several() -> None:
    for n, words in ((1, "over 1 random partition into"), (2, "over 2 random partitions into")):
        assert words in said(called(3), beyond(), gap(0.01, -0.05, 0.099, 0.4, n), found())


def test_only_where_some_are_called_it_says_why_a_single_one_could_not_have_been() -> None:
    because = "An observation can be called here because many have small p-values."
    assert [because in said(called(n), beyond(), NONE, found(None)) for n in (3, 0)] == [True, False]


def test_permutations_are_asked_for_only_where_there_are_too_few() -> None:
    wanted = "permutations are not counted together"
    rows = (called(), NONE, found(None)), (called(), beyond(), NONE, found(None))
    assert [wanted in said(*each) for each in rows] == [True, False]
    assert wanted not in said(*rows[0], config=Density(ALONE))


def test_the_training_on_all_data_is_missed_only_where_there_would_be_one() -> None:
    whole = row(row_name("loss", models="whole", split="train"), 100.0)
    missing = "The training on all data is missing"
    assert [missing in said(*MEMORISED, *more) for more in ((whole,), ())] == [False, True]
    assert missing not in said(*MEMORISED, config=Density(ALONE))


def test_a_search_lowers_the_score_by_nats_and_may_give_up_one_of_the_loss() -> None:
    objectives = AUDIT.objectives
    assert objectives is not None
    names = [(each.name, each.unit, each.better) for each in (objectives.memorization, objectives.utility)]
    assert names == [("mean matched-count M", "nats", "lower"), ("test loss", "nats", "lower")]
    assert objectives.allowance == 1.0


def test_negligible_is_one_number_for_observations_and_for_the_gap(golden: Golden) -> None:
    rows = called(), beyond(), gap(0.2, 0.1, 0.4, 0.3), found()
    assert [verdict(density(negligible=n), table(*rows)).answer for n in (0.4, 0.5)] == ["undecided", "not detected"]
    sentence = said(*rows, config=density(negligible=0.5))
    golden(sentence)


def test_memory_that_would_not_be_found_is_not_said_to_be_absent(golden: Golden) -> None:
    rows = called(), beyond(), NONE, found(900.0, 1000.0)
    golden(said(*rows))
    assert verdict(density(detectable=1000.0), table(*rows)).answer == "not detected"
    assert "no upper limit" in said(*rows[:3], found(9.0, None))
    for unknown in (rows[:3], (*rows[:3], found(None))):
        assert "it would have to be found" not in said(*unknown)


def test_it_says_how_many_are_memorised_and_by_how_much(golden: Golden) -> None:
    of_called = [row(row_name(OF_CALLED, statistic=name), of) for name, of in (("median", 33.5), ("highest", 80))]
    few = said(*MEMORISED, *of_called)
    golden(few, "few")
    assert "one of 60,000 observations is" in said(called(1), NONE)
    some = said(called(), beyond(0.002, 0.01), NONE)
    golden(some, "some")
    assert "decides the answer" not in some
    many = said(called(), beyond(1e-9, 0.0125), NONE)
    golden(many, "many")


def test_one_count_decides_and_the_others_are_explained(golden: Golden) -> None:
    sentence = said(called(13), beyond(1e-9, 0.0125), NONE, found(None))
    golden(sentence)
    assert sentence.count("decides") == 1
    assert sentence.index("This count decides the answer.") < sentence.index(
        "show that at least 750 are memorised (p < 1e-6). That number includes those called above; the others cannot "
        "be identified."
    )


def test_the_gap_stands_under_its_own_name_and_that_of_the_estimators_test(golden: Golden) -> None:
    large = gap(2.5, 2.0, 3.0, 0.01)
    folds, alone = said(called(), beyond(), large, found()), said(called(), large, config=Density(ALONE))
    golden(folds, "folds")
    assert "one-tailed t-test p = 0.01" in alone
    assert "randomisation" not in alone
    golden(alone, "alone")


def test_one_partition_has_no_interval_of_the_gap_and_may_yet_show_memory(golden: Golden) -> None:
    alone = gap(2.5, None, None, 0.001, n=1)
    assert verdict(Density(), table(called(4), alone)).answer == "memorised"
    unsure = verdict(Density(), table(called(), beyond(), alone, found()))
    assert unsure.answer == "undecided"
    golden(unsure.sentence, "unsure.sentence")
    pair = said(called(), gap(2.5, None, None, None, n=1), config=Density(replace(ALONE, repetitions=1)))
    golden(pair, "pair")


def test_few_repetitions_are_called_few() -> None:
    few = [said(called(), gap(2.5, 1, 4, 0.01, n)) for n in (3, 4)]
    assert ["wide for so few" in each for each in few] == [True, False]


# What stands beside the answer


@pytest.mark.parametrize(("median", "samples", "rough"), [(6.2, 256, True), (25.5, 256, True), (25.6, 256, False)])
def test_it_warns_where_log_p_is_effectively_from_few_samples(
    golden: Golden, median: float, samples: int, rough: bool
) -> None:
    told = row(EFFECTIVE, median, n=60_000), row(FEW_EFFECTIVE, 0.625, n=60_000)
    plain, said = (verdict(density(samples=samples), table(*MEMORISED, *each)) for each in ((), told))
    assert said.sentence.startswith(plain.sentence)
    assert (said.sentence != plain.sentence) == rough
    golden(said.sentence)
    assert (plain.answer, plain.rows, plain.limits) == (said.answer, said.rows, said.limits)


def test_it_says_that_trainings_are_missing(golden: Golden) -> None:
    lacking = row(row_name("models of an observation, at least", planned=100), 97.0, n=100)
    said = verdict(Density(), table(*MEMORISED, lacking))
    golden(said.sentence)


def test_the_published_score_stands_beside_what_it_is_without_memory(golden: Golden) -> None:
    rows = called(), row(MATCHED, 0.125), row(PUBLISHED, 4.5, null=4.25)
    said = verdict(Density(), table(*rows))
    golden(said.published)
    assert said.limits == LIMITS
    assert said.rows == (CALLED,)  # the published score decides nothing
    for lacking in (rows[:2], rows[::2]):
        assert verdict(Density(), table(*lacking)).published == ""


def test_a_null_run_says_that_it_is_one() -> None:
    given = table(*MEMORISED)
    assert "this is a null" in verdict(density(estimator=KFold(asked="test")), given).sentence
    assert "this is a null" not in verdict(Density(), given).sentence


def test_differential_privacy_is_said_to_bound_no_single_score(golden: Golden) -> None:
    private = Density(replace(ALONE, training=ModelTraining(privacy=DifferentialPrivacy(8.0, 1e-5))))
    given = called()
    promise = "Training was (8, 1e-05)-differentially private, which bounds no single score"
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
def test_where_nothing_was_trained_it_says_what_is_shown(golden: Golden, question: Question, shown: str) -> None:
    first = row_name("M", point="outlying")
    said = verdict(Density(question), table(row(first, 2.0), row(("equal pairs", "{}"), 0.0)))
    golden(said.sentence)
    assert ("undecided", (first,)) == (said.answer, said.rows)
    golden(said.limits, "said.limits")


@pytest.mark.parametrize("rows", [[], [gap(None, None, None, None, 0), row(CALLED, None, n=0)]])
def test_where_models_of_one_kind_are_missing_it_does_not_say_that_nothing_was_trained(
    golden: Golden,
    rows: list[dict[str, Any]],
) -> None:
    said = verdict(Density(), table(*rows))
    assert said.answer == "undecided"
    golden(said.sentence)
    assert "no model has been asked" not in said.sentence
    assert said.limits == LIMITS


def certified(config: Density, *rows: dict[str, Any]) -> Certificate:
    made = AUDIT.certify("Which?", config, table(*rows))
    assert made is not None
    return made


def told(*rows: dict[str, Any]) -> Finding:
    made = certified(Density(), *rows)
    assert RULES.explain(Density()) == made.rule
    assert "Of 100 audits of models that keep nothing, about 5 say memorised" in made.error
    (finding,) = made.findings
    return finding


def test_images_that_are_called_are_counted_on_the_line(golden: Golden) -> None:
    finding = told(*MEMORISED)
    golden(finding.sentence)
    assert finding.line is not None
    assert (finding.line.what, finding.line.estimate) == ("images, of 60,000, that are called memorised", 3.0)


def test_where_all_together_decide_their_p_is_on_the_line(golden: Golden) -> None:
    finding = told(called(), beyond(0.0001, 0.01), NONE, found())
    golden(finding.sentence)
    assert finding.line is not None
    assert (finding.line.estimate, finding.line.boundaries[0].value) == (0.0001, 0.001)


def test_who_is_cleared_is_shown_with_the_average_gap(golden: Golden) -> None:
    finding = told(called(), beyond(), NONE, found())
    assert finding.answer == "not detected"
    golden(finding.sentence)
    assert finding.line is not None
    assert (finding.line.estimate, finding.line.high, finding.line.boundaries[0].value) == (0.01, 0.099, 0.1)
    assert GAP[0] == "generalisation gap of log p"


def test_the_certificate_gives_every_condition_of_the_rules(golden: Golden) -> None:
    made = certified(Density(), called(), beyond(), NONE, found())
    golden(made.rule)
    few = certified(density(repetitions=1, estimator=KFold(4)), called(), beyond(), NONE, found())
    golden(few.rule, "few.rule")


def test_the_test_of_all_together_is_no_rule_of_rows_left_out_one_by_one(golden: Golden) -> None:
    made = certified(Density(ALONE), called(1, 12_345), NONE, found())
    golden(made.rule, "made.rule")
    assert "permutations" not in made.rule
    golden(made.error, "made.error")
    golden(made.findings[0].sentence, "sentence")


def test_a_null_is_told_as_one_and_no_training_data_are_to_be_treated(golden: Golden) -> None:
    null, audit = density(estimator=KFold(asked="test")), Density()
    alarm, quiet, many = (
        certified(null, *rows) for rows in (MEMORISED, (called(), beyond(), NONE), (called(), beyond(1e-4), NONE))
    )
    assert alarm.findings[0].answer == "memorised"
    for made in (alarm, quiet, many, certified(null)):
        (finding,) = made.findings
        golden(finding.sentence, "finding.sentence")
        assert "training on an image raises" not in finding.sentence
        assert not set(made.steps) & set(certified(audit, *MEMORISED).steps)
        assert "run the actual audit: asked=train." in made.steps[-1]
    golden(alarm.steps[0], "alarm.steps[0]")
    assert quiet.steps[0].startswith("Keep this page with that of the audit")
    golden(many.findings[0].sentence, "sentence")
    assert quiet.findings[0].line is not None
    assert "counted as trained on" in quiet.findings[0].line.what
    assert "This is a null" not in certified(audit, *MEMORISED).findings[0].sentence
    assert "This is a null" not in certified(Density(KernelDensity())).findings[0].sentence
