"""A target beside the query and the calibration models: rho, the floor, the separation and the decision on them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from tasks import seeds
from tasks.audits.forgetting.comparison import Comparison, compared
from tasks.audits.forgetting.confidence_matrix import Array, ConfidenceMatrix, confidence_matrix
from tasks.audits.forgetting.rho import ratio
from tasks.audits.forgetting.trainings import Model
from tests.tasks.audits.forgetting import made_up

QUERY, CALIBRATION, TARGET = made_up.models(np.random.default_rng(3), 3, 2, 40)


def asked(query: Array, calibration: Array, target: Array, score: str = "published", margin: float = 0.1) -> Comparison:
    there = confidence_matrix(made_up.tables(query, calibration, target))
    return compared(there, there.replicates("target", 0), score, margin, 100, seed=5)  # type: ignore[arg-type]


def ks(first: Array, second: Array) -> float:
    return float(stats.ks_2samp(first, second).statistic)


def test_the_separation_and_the_floor_are_those_of_scipys_distances() -> None:
    found = asked(QUERY, CALIBRATION, TARGET)
    apart = [ks(q, c) for q in QUERY for c in CALIBRATION]
    among = [ks(*pair) for pair in itertools.combinations(QUERY, 2)]
    assert [np.mean(among), min(apart) - max(among)] == pytest.approx([found.floor, found.separation])
    to_target = np.mean([ks(q, t) for q in QUERY for t in TARGET])
    assert to_target / np.mean(apart) == pytest.approx(found.ratio.rho.value)


def test_all_targets_meet_the_resamples_that_the_seed_gives() -> None:
    found = asked(QUERY, CALIBRATION, TARGET).ratio.rho
    chance = seeds.generator(5, "resamples of images")
    assert ratio(QUERY, CALIBRATION, TARGET, None, 100, chance).rho == found


def test_the_score_and_the_margin_are_those_that_were_asked_for() -> None:
    published, one_sided = (asked(QUERY[:, ::-1], QUERY, TARGET, score) for score in ("published", "one-sided"))
    assert published.floor != one_sided.floor
    assert published.ratio.rho.value != one_sided.ratio.rho.value
    sure = asked(QUERY, CALIBRATION, TARGET)
    assert sure.separation is not None
    assert sure.separation > 0
    low = sure.ratio.rho.low
    assert low is not None
    answers = [asked(QUERY, CALIBRATION, TARGET, margin=1 - low + off).decision.answer for off in (0.01, -0.01)]
    assert ["forgotten", "undecided"] == answers


def test_without_calibration_models_or_a_second_query_model_nothing_is_known_of_the_separation() -> None:
    alone = asked(QUERY[:1], CALIBRATION, TARGET)
    assert (None, None) == (alone.floor, alone.separation)
    without = asked(QUERY, CALIBRATION[:0], TARGET)
    assert (None, None) == (without.separation, without.ratio.rho.value)
    assert without.floor == asked(QUERY, CALIBRATION, TARGET).floor
    there: ConfidenceMatrix = confidence_matrix(made_up.tables(QUERY[:0], CALIBRATION, TARGET))
    with pytest.raises(ValueError, match="there are 0 query"):
        compared(there, [Model("target", 0, 0)], "published", 0.1, 10, 1)
