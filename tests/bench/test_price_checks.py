"""Prices by operations, compared with the timings stored in bench/results. Nothing is timed."""

from __future__ import annotations

import pytest

from bench.price_checks import FIGURES, tally, tally_by_kind
from bench.prices import price_published
from orchestrator.pricing.hardware import load_rates

CHECKS = [figure for figure in FIGURES if not figure.is_calibration]


def test_nine_tenths_of_timings_are_within_their_intervals() -> None:
    assert str(tally(CHECKS)) == "34 of 36"
    assert {kind: str(count) for kind, count in tally_by_kind(CHECKS).items() if count.hits < count.figures} == {
        "neighbours": "5 of 6",
        "language models, evaluation": "5 of 6",
    }


def test_no_interval_is_wider_than_three() -> None:
    assert max(rates.factor for rates in load_rates().values()) <= 3
    assert {figure.file for figure in FIGURES if figure.factor > 3} == {"shadow-models-cpu"}  # of unmeasured speed


@pytest.mark.parametrize(
    ("audit", "preset", "low", "high"),
    [("density", "mnist3", 0.2, 2.0), ("relational", "table2_squad", 0.05, 20.0), ("deja_vu", "k", 100.0, 10_000.0)],
)
def test_published_preset_has_narrow_price_without_its_data(audit: str, preset: str, low: float, high: float) -> None:
    hours = price_published(audit, preset).gpu_hours
    assert low < hours.expected < high
    assert hours.high <= 3.01 * hours.expected
    assert hours.low >= hours.expected / 3.01
