"""The answer in words follows from the gain alone, and says what it does not decide."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tasks.audits.density import AUDIT, Density
from tasks.audits.density.verdict import EFFECTIVE, FEW_EFFECTIVE, LIMITS, ROWS, SMALLEST, verdict
from tasks.schemas import SUMMARY
from tasks.training.privacy import Privacy

ALONE = Density(estimator="loo", left_out=10)
GAIN, SHARE, MATCHED, PUBLISHED = ROWS


def row(metric: tuple[str, str], estimate: float | None, **numbers: Any) -> dict[str, Any]:
    named = {"metric": metric[0], "setting": metric[1], "estimate": estimate, "n": 10}
    return dict.fromkeys(SUMMARY.names) | named | numbers


def gain(
    estimate: float | None, low: float | None, high: float | None, p_value: float | None, n: int = 10
) -> dict[str, Any]:
    return row(GAIN, estimate, low=low, high=high, p_value=p_value, n=n, null=0.0)


def table(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), SUMMARY)


@pytest.mark.parametrize(
    ("estimate", "low", "high", "p_value", "answer"),
    [
        (2.5, 2.0, 3.0, 1e-9, "memorised"),
        (2.5, 2.0, 3.0, 0.05, "memorised"),
        (2.5, -1.0, 6.0, 0.01, "memorised"),  # partitions tell more than an interval of few repetitions
        (2.5, 2.0, 3.0, 0.051, "undecided"),
        (0.01, -0.05, 0.099, 0.4, "not seen"),
        (0.01, -0.05, SMALLEST, 0.4, "undecided"),  # an effect that would matter is not excluded at the bound itself
        (-0.5, -0.8, -0.2, 0.999, "not seen"),
        (0.0, 0.0, 0.0, None, "not seen"),  # every model says the same: no partition would give another gain
        (-0.5, -0.8, -0.2, 0.01, "not seen"),
    ],
)
def test_the_gain_decides(estimate: float, low: float, high: float, p_value: float | None, answer: str) -> None:
    said = verdict(Density(), table(gain(estimate, low, high, p_value)))
    assert answer == said.answer
    assert said.sentence.lower().startswith(f"{answer}: training on an image raises its log p by {estimate:.4g} nats")
    assert f"95 % interval {low:.4g} to {high:.4g}, over 10 random partitions into 10 folds" in said.sentence
    assert ((GAIN,), LIMITS) == (said.rows, said.limits)


def test_the_tests_name_is_that_of_the_estimator() -> None:
    given = table(gain(2.5, 2.0, 3.0, 0.01))
    assert "randomisation p = 0.01" in verdict(Density(), given).sentence
    said = verdict(ALONE, given).sentence
    assert "t-test p = 0.01" in said
    assert "randomisation" not in said
    assert "over 10 pairs of models with and without it" in said


def test_a_tiny_p_value_is_a_bound() -> None:
    sentences = [verdict(Density(), table(gain(2.5, 2.0, 3.0, p_value))).sentence for p_value in (0.0, 1e-7, 1e-6)]
    assert ["p < 1e-06", "p < 1e-06", "p = 1e-06"] == [each.split("randomisation ")[1][:9] for each in sentences]


def test_one_partition_has_no_interval_and_may_yet_show_memory() -> None:
    sure = verdict(Density(), table(gain(2.5, None, None, 0.001, n=1)))
    assert "memorised" == sure.answer
    assert "(no interval, over 1 random partition into 10 folds;" in sure.sentence
    unsure = verdict(Density(), table(gain(0.01, None, None, 0.4, n=1)))
    assert "undecided" == unsure.answer
    assert "one repetition has no interval: train more" in unsure.sentence


def test_one_pair_of_models_without_a_row_decides_nothing() -> None:
    said = verdict(replace(ALONE, repetitions=1), table(gain(2.5, None, None, None, n=1)))
    assert "undecided" == said.answer
    assert "over 1 pair of models with and without it; no p-value;" in said.sentence


def test_few_repetitions_are_called_few() -> None:
    assert ["wide for so few" in verdict(Density(), table(gain(2.5, 1, 4, 0.01, n))).sentence for n in (3, 4)] == [
        True,
        False,
    ]


# What stands beside the answer


def smallest(estimate: float) -> dict[str, Any]:
    return row(("smallest possible p-value", "{}"), estimate, n=1)


def test_it_says_how_many_observations_are_memorised_by_themselves() -> None:
    said = verdict(Density(), table(gain(2.5, 2.0, 3.0, 0.001), row(SHARE, 0.025, n=60_000), smallest(1e-7)))
    assert "1,500 of 60,000 observations are memorised by themselves at 5 % false discoveries." in said.sentence
    assert "No p-value" not in said.sentence
    assert (GAIN, SHARE) == said.rows


@pytest.mark.parametrize(
    ("p_value", "lost"),
    [
        (0.25, "no observation by itself could be told from chance"),
        (0.01, "so fewer than 200 memorised observations could not be told from chance"),
        (1e-4, "so fewer than 2 memorised observations could not be told from chance"),
        (5e-5, ""),
    ],
)
def test_it_says_what_the_p_values_could_not_have_shown(p_value: float, lost: str) -> None:
    given = table(gain(2.5, 2.0, 3.0, 0.001), row(SHARE, 0.0, n=1000), smallest(p_value))
    sentence = verdict(Density(), given).sentence
    assert bool(lost) == ("No p-value here can be below" in sentence)
    assert lost in sentence


@pytest.mark.parametrize(("median", "samples", "rough"), [(6.2, 256, True), (25.5, 256, True), (25.6, 256, False)])
def test_it_warns_where_log_p_is_effectively_from_few_samples(median: float, samples: int, rough: bool) -> None:
    told = row(EFFECTIVE, median, n=60_000), row(FEW_EFFECTIVE, 0.625, n=60_000)
    plain, said = (verdict(Density(samples=samples), table(gain(2.5, 2.0, 3.0, 0.01), *each)) for each in ((), told))
    warning = (
        f" Log p is rough: of the 256 codes that it is estimated with half of the observations effectively have "
        f"{median:.3g} or fewer, and 62 % fewer than 10 (median over an observation's models, n = 60,000); a score is "
        f"then of the encoder as well as of the density."
    )
    assert plain.sentence + (warning if rough else "") == said.sentence
    assert (plain.answer, plain.rows, plain.limits) == (said.answer, said.rows, said.limits)


def test_it_says_that_trainings_are_missing() -> None:
    lacking = row(("models of an observation, at least", json.dumps({"planned": 100})), 97.0, n=100)
    said = verdict(Density(), table(gain(2.5, 2.0, 3.0, 0.001), row(SHARE, 0.0, n=10), lacking))
    assert "Some trainings are missing: an observation has 97 models or more of the 100 planned." in said.sentence


def test_the_published_score_stands_beside_what_it_is_without_memory() -> None:
    rows = gain(0.0, -0.05, 0.05, 0.5), row(MATCHED, 0.125), row(PUBLISHED, 4.5, null=4.25)
    said = verdict(Density(), table(*rows))
    assert "The published score has a median of 4.5 nats, and of 4.25 where nothing is memorised" in said.limits
    assert "with as many models on either side it is 0.125" in said.limits
    assert said.limits.endswith(LIMITS)
    assert (GAIN, MATCHED, PUBLISHED) == said.rows
    for lacking in (rows[:2], rows[::2]):
        assert LIMITS == verdict(Density(), table(*lacking)).limits


def test_a_null_run_says_that_it_is_one() -> None:
    given = table(gain(0.0, -0.05, 0.05, 0.5))
    assert "this is a null" in verdict(Density(asked="test"), given).sentence
    assert "this is a null" not in verdict(Density(), given).sentence


def test_differential_privacy_is_said_to_bound_no_single_score() -> None:
    private = replace(ALONE, privacy=Privacy(8.0, 1e-5))
    given = gain(0.0, -0.05, 0.05, 0.5)
    promise = "Training was (8, 1e-05)-differentially private, which bounds no single score"
    assert verdict(private, table(given)).sentence.endswith(f"{promise}.")
    found = table(
        given,
        row(("largest M of a row left out", json.dumps({"row": 3})), 9.25),
        row(("rows above epsilon", "{}"), 0.2, n=10),
    )
    assert verdict(private, found).sentence.endswith(
        f"{promise}: the largest is 9.25 nats, and 2 of 10 are above epsilon."
    )
    assert "private" not in verdict(ALONE, found).sentence


# No gain


@pytest.mark.parametrize(
    ("measures", "shown"),
    [
        (("kernel",), "a density in one dimension, whose scores are known exactly"),
        (("duplicates",), "the closest pairs of training images"),
        (("duplicates", "kernel"), "a density in one dimension, whose scores are known exactly and the closest pairs"),
    ],
)
def test_where_nothing_was_trained_it_says_what_is_shown(measures: Any, shown: str) -> None:
    first = ("M", json.dumps({"point": "outlying"}))
    said = verdict(Density(measures=measures), table(row(first, 2.0), row(("equal pairs", "{}"), 0.0)))
    assert said.sentence.startswith(f"Undecided: no model has been asked. This run shows {shown}")
    assert ("undecided", (first,)) == (said.answer, said.rows)
    assert "Nothing is said of a model" in said.limits


@pytest.mark.parametrize("rows", [[], [gain(None, None, None, None, 0), row(SHARE, None, n=0)]])
def test_where_models_of_one_kind_are_missing_it_does_not_say_that_nothing_was_trained(
    rows: list[dict[str, Any]],
) -> None:
    said = verdict(Density(), table(*rows))
    assert "undecided" == said.answer
    assert "no observation has a finite log p by models that trained on it and by one that did not" in said.sentence
    assert "no model has been asked" not in said.sentence
    assert LIMITS == said.limits


def test_the_audit_offers_its_verdict() -> None:
    assert AUDIT.verdict is not None
    assert "memorised" == AUDIT.verdict(Density(), table(gain(2.5, 2.0, 3.0, 0.001))).answer
