"""The smallest detectable effect of a plan, and the power that it states."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from scipy import stats

from tasks.audits import deja_vu, density, forgetting, membership, relational, text, unique_feature
from tasks.audits.membership.power import record_resolution
from tasks.audits.text.power import insertion_resolution, rank_resolution
from tasks.audits.text.question import Secrets
from tasks.contract.power import Power, Resolution, mean_rate, smallest_size
from tasks.numerics.t_test import t_rate

AUDITS = (deja_vu, density, forgetting, membership, relational, text, unique_feature)
MEMBERSHIP = membership.PRESETS["quickstart"]
TEXT = text.PRESETS["quickstart"]


@pytest.mark.parametrize(("smallest", "finds_one"), [(0.0005, True), (0.00051, False), (0.0, True)])
def test_one_record_is_detectable_at_its_share(smallest: float, finds_one: bool) -> None:
    resolution = Resolution(smallest, 100, 0.05, "records", "with 100 records train 14 models")
    assert resolution.finds_one == finds_one
    assert bool(resolution.explain()) == (not finds_one)
    assert [line.endswith("To clear, with 100 records train 14 models.") for line in resolution.warn()] == (
        [] if finds_one else [True]
    )


@pytest.mark.parametrize(
    ("models", "records", "finds_one", "advised"),
    [
        (16, 643, True, 16),  # 12,870 halves
        (16, 644, False, 18),
        (16, 2_000, False, 18),
        (16, 10_000, False, 22),
        (32, 20_000, True, 22),  # more halves are drawn for 20,000 records
        (8, 100, False, 14),
    ],
)
def test_sufficient_number_of_models_is_advised(models: int, records: int, finds_one: bool, advised: int) -> None:
    resolution = record_resolution(replace(MEMBERSHIP.question, models=models), records)
    assert resolution.finds_one == finds_one
    assert resolution.advice == f"train at least {advised} models for {records:,} records"


def test_ranks_resolve_one_secret_if_fine_enough() -> None:
    assert rank_resolution(Secrets(), 0.05, 25).finds_one
    assert not rank_resolution(Secrets(), 0.05, 26).finds_one
    assert rank_resolution(Secrets(), 0.05, 26).advice == "rank 26 secrets among at least 520 (references=519)"
    assert not insertion_resolution(0.05, 5, 98).finds_one
    assert insertion_resolution(0.05, 5, 99).finds_one


@pytest.mark.parametrize("audit", AUDITS, ids=lambda audit: audit.__name__.rpartition(".")[2])
@pytest.mark.parametrize("preset", ["quickstart", "smoke"])
def test_every_audit_states_its_power(audit: Any, preset: str) -> None:
    for config in audit.AUDIT.cells(preset):
        (power,) = audit.AUDIT.describe_power(config)
        assert 0 <= power.share <= 1
        assert power.line.startswith(f"power: detects {power.size} in ")


def test_advice_is_given_only_below_goal() -> None:
    assert Power("a", 0.85, "train 24 models").line == "power: detects a in 85 % of audits; for 95 % train 24 models"
    assert Power("a", 0.95, "train 24 models").line == "power: detects a in 95 % of audits"
    assert Power("a", 0.2).line == "power: detects a in 20 % of audits"


def test_size_grows_until_it_suffices() -> None:
    assert smallest_size(4, 2, lambda size: size >= 9) == 10
    assert smallest_size(100, 1, lambda size: size >= 111, factor=1.1) == 121
    assert smallest_size(1, 1, lambda size: False) is None


@pytest.mark.parametrize(("freedom", "shift", "level"), [(5, 2.0, 0.025), (14, 3.8, 1e-4), (40, 1.0, 0.05)])
def test_power_of_t_test_matches_scipy(freedom: int, shift: float, level: float) -> None:
    expected = stats.nct.sf(stats.t.isf(level, freedom), freedom, shift)
    assert t_rate(shift, freedom, level) == pytest.approx(expected, abs=0.003)


def test_interval_accuses_null_at_its_level() -> None:
    assert mean_rate(0.0, 1.0) == pytest.approx(0.025)
    assert mean_rate(1.959964, 1.0) == pytest.approx(0.5)
