"""Prices by operations, compared with the timings stored in bench/results. Nothing is timed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.price_checks import FIGURES, tally, tally_by_kind
from bench.prices import price_published, published_presets
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


def printed_hours() -> dict[tuple[str, str], tuple[float, float, float]]:
    """The GPU hours, expected, low and high, of each row of the documented table of published presets."""
    text = (Path(__file__).resolve().parents[2] / "docs" / "clusters.md").read_text(encoding="utf-8")
    hours = {}
    interval = r"([\d.,]+) \(([\d.,]+) to ([\d.,]+)\)|under 0\.01"
    for row in re.findall(rf"^\| `(\w+)` \| `([\w-]+)` \| (?:{interval}) \|", text, flags=re.M):
        audit, preset, *numbers = row
        expected, low, high = (float(number.replace(",", "") or 0) for number in numbers)
        hours[audit, preset] = (expected, low, high)
    return hours


def test_every_published_preset_has_a_narrow_documented_price() -> None:
    hours = printed_hours()
    assert set(published_presets()) - set(hours) == {("relational", "table2_drop")}  # needs predictions, no training
    for preset, (expected, low, high) in hours.items():
        assert high <= 3.1 * expected + 0.01, preset
        assert low >= expected / 3.1 - 0.01, preset


@pytest.mark.parametrize(("audit", "preset"), [("density", "mnist3"), ("relational", "table2_squad"), ("deja_vu", "k")])
def test_documented_price_is_that_of_the_plan(audit: str, preset: str) -> None:
    expected, *_ = printed_hours()[audit, preset]
    hours = price_published(audit, preset).gpu_hours
    assert expected / 1.5 < hours.expected < 1.5 * expected
    assert hours.expected / 3.01 <= hours.low <= hours.high <= 3.01 * hours.expected
