"""A target beside the query and the calibration models: rho and the floor."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from tasks.audits.forgetting.comparison import Comparison, compare_target
from tasks.audits.forgetting.confidence_matrix import Array, confidence_matrix
from tasks.audits.forgetting.trainings import ModelId
from tests.tasks.audits.forgetting import made_up

QUERY, CALIBRATION, TARGET = made_up.models(np.random.default_rng(3), 3, 2, 40)


def asked(query: Array, calibration: Array, target: Array, score: str = "published") -> Comparison:
    there = confidence_matrix(made_up.tables(query, calibration, target))
    return compare_target(there, there.replicates("target", 0), score)  # type: ignore[arg-type]


def ks(first: Array, second: Array) -> float:
    return float(stats.ks_2samp(first, second).statistic)


def test_rho_and_the_floor_are_those_of_scipys_distances() -> None:
    found = asked(QUERY, CALIBRATION, TARGET)
    apart = [ks(q, c) for q in QUERY for c in CALIBRATION]
    among = [ks(*pair) for pair in itertools.combinations(QUERY, 2)]
    assert np.mean(among) == pytest.approx(found.floor)
    to_target = np.mean([ks(q, t) for q in QUERY for t in TARGET])
    assert to_target / np.mean(apart) == pytest.approx(found.ratio.rho.value)


def test_the_score_is_the_one_that_was_asked_for() -> None:
    published, one_sided = (asked(QUERY[:, ::-1], QUERY, TARGET, score) for score in ("published", "one-sided"))
    assert published.floor != one_sided.floor
    assert published.ratio.rho.value != one_sided.ratio.rho.value


def test_a_single_query_model_has_no_floor_and_without_calibration_models_there_is_no_rho() -> None:
    assert asked(QUERY[:1], CALIBRATION, TARGET).floor is None
    without = asked(QUERY, CALIBRATION[:0], TARGET)
    assert without.ratio.rho.value is None
    assert without.floor == asked(QUERY, CALIBRATION, TARGET).floor
    there = confidence_matrix(made_up.tables(QUERY[:0], CALIBRATION, TARGET))
    with pytest.raises(ValueError, match="there are 0 query"):
        compare_target(there, [ModelId("target", 0, 0)], "published")
