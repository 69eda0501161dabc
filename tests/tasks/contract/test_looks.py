"""Looks at one question: their error rates, and the sentence about them in an answer."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from scipy import stats

from tasks.audits.membership import AUDIT as MEMBERSHIP
from tasks.audits.membership import Membership
from tasks.audits.unique_feature import AUDIT as UNIQUE_FEATURE
from tasks.audits.unique_feature import UniqueFeature
from tasks.audits.unique_feature.pairs.canary_scores import EFFECT
from tasks.audits.unique_feature.pairs.canary_verdicts import BEYOND, CALLED, MEMORISED, MEMORISED_BETS, TOTAL_BETS
from tasks.contract.circumstances import Circumstances
from tasks.contract.looks import CLEARING_ERROR, Look, clearing_level, coverage, widen_interval
from tasks.contract.power import SMALLEST
from tasks.contract.schemas import SUMMARY
from tasks.contract.summaries import format_setting
from tests.support.settings import with_settings

CALLS = {"false discovery rate": 0.05, "others": 399}


def summary_of_pairs(
    estimate: float, half_width: float, n: int, total_bets: float | None, called_share: float = 0.0
) -> Any:
    blank = dict.fromkeys(SUMMARY.names)
    ends = {"low": estimate - half_width, "high": estimate + half_width}
    rows = [
        blank | {"metric": EFFECT[0], "setting": EFFECT[1], "estimate": estimate, **ends, "n": n, "unit": "pair"},
        blank | {"metric": CALLED, "setting": format_setting(CALLS), "estimate": called_share, "n": n},
        blank | {"metric": BEYOND, "setting": format_setting({"p": 0.05}), "estimate": 0.0, "n": n, "p_value": 0.5},
    ]
    setting = format_setting({"nats": SMALLEST, **CALLS})
    rows.append(blank | {"metric": MEMORISED, "setting": setting, "estimate": called_share, "n": n})
    if total_bets is not None:
        for metric in (TOTAL_BETS, MEMORISED_BETS):
            rows.append(blank | {"metric": metric, "setting": "{}", "estimate": total_bets, "n": n})
    return pa.Table.from_pylist(rows, SUMMARY)


def answer_at(look: int, summary: pa.Table, **settings: Any) -> Any:
    verdict = UNIQUE_FEATURE.answer(with_settings(UniqueFeature(), settings), summary, Circumstances(look=Look(look)))
    assert verdict is not None
    return verdict


def test_clearing_levels_sum_to_one_error() -> None:
    assert sum(clearing_level(number) for number in range(1, 40)) <= CLEARING_ERROR
    assert clearing_level(1) == 0.025
    assert coverage(1) == 0.95


@pytest.mark.parametrize("number", [2, 3, 5])
def test_widened_interval_is_students(number: int) -> None:
    error = 0.3
    n = 8
    row = {"metric": "effect", "estimate": 1.0, "n": n}
    first = error * stats.t(n - 1).isf(clearing_level(1))
    later = error * stats.t(n - 1).isf(clearing_level(number))
    wide = widen_interval({**row, "low": 1.0 - first, "high": 1.0 + first}, number)
    assert (wide["low"], wide["high"]) == pytest.approx((1.0 - later, 1.0 + later))


def test_widened_share_stays_within_0_and_1() -> None:
    wide = widen_interval({"metric": "share found", "estimate": 0.98, "low": 0.9, "high": 0.999, "n": 30}, 4)
    assert wide["high"] == 1.0
    assert wide["low"] < 0.9


@pytest.mark.parametrize(
    ("summary", "answers"),
    [
        (summary_of_pairs(0.0, 0.09, 12, 1.0), ["not detected", "undecided", "undecided"]),  # weak evidence
        (summary_of_pairs(0.0, 0.03, 12, 1.0), ["not detected", "not detected", "not detected"]),
        (summary_of_pairs(0.3, 0.19, 12, 1.0), ["memorised", "undecided", "undecided"]),  # the effect alone
        (summary_of_pairs(0.3, 0.19, 12, 25.0), ["memorised", "memorised", "memorised"]),  # and the bets
        (summary_of_pairs(0.3, 0.19, 12, None), ["memorised", "undecided", "undecided"]),  # no rank to bet on
        (summary_of_pairs(0.2, 0.05, 12, None), ["memorised", "memorised", "memorised"]),
        (summary_of_pairs(0.0, 0.2, 12, 1.0, called_share=1 / 12), ["memorised", "undecided", "undecided"]),
    ],
)
def test_later_looks_need_bets_and_wider_intervals(summary: pa.Table, answers: list[str]) -> None:
    assert [answer_at(look, summary).answer for look in (1, 2, 3)] == answers


def test_answer_and_certificate_state_look_and_sum() -> None:
    summary = summary_of_pairs(0.0, 0.03, 12, 1.0)
    circumstances = Circumstances(look=Look(3))
    verdict = answer_at(3, summary)
    stated = "look 3 at these pairs. Over all looks, at most 13 of 100 such audits would accuse a model without memory."
    assert stated in verdict.sentence
    assert "98.75 % interval" in verdict.sentence
    assert "95 % interval" not in verdict.sentence
    certificate = UNIQUE_FEATURE.certify("Is it?", UniqueFeature(), summary, circumstances=circumstances)
    assert certificate is not None
    assert stated in certificate.error
    assert certificate.findings[0].line is not None
    assert certificate.findings[0].line.coverage == 98.75


@pytest.mark.parametrize(
    ("audit", "config", "look", "error"),
    [
        (UNIQUE_FEATURE, UniqueFeature(), Look(1), 8),
        (UNIQUE_FEATURE, UniqueFeature(), Look(7), 13),
        (UNIQUE_FEATURE, UniqueFeature(), Look(1, cells=3), 24),
        (UNIQUE_FEATURE, UniqueFeature(), Look(2, streams=2), 13),  # another seed, after the first look's rules
        (UNIQUE_FEATURE, UniqueFeature(), Look(3, streams=3), 18),
        (UNIQUE_FEATURE, with_settings(UniqueFeature(), drawn=True, stopping_level=0.05), Look(7), 5),
        (UNIQUE_FEATURE, with_settings(UniqueFeature(), drawn=True, stopping_level=0.05), Look(3, streams=3), 15),
        (MEMBERSHIP, Membership(), Look(1), 5),
        (MEMBERSHIP, Membership(), Look(3), 15),
        (MEMBERSHIP, Membership(), Look(1, cells=3), 15),
        (MEMBERSHIP, Membership(), Look(9, cells=9), 100),
    ],
)
def test_summed_error_counts_looks_and_cells(audit: Any, config: Any, look: Look, error: float) -> None:
    assert audit.summed_error(config, look) == error


def test_cells_of_sweep_state_adjusted_rate() -> None:
    summary = summary_of_pairs(0.0, 0.03, 12, 1.0)
    circumstances = Circumstances(look=Look(1, cells=3))
    certificate = UNIQUE_FEATURE.certify("Is it?", UniqueFeature(), summary, circumstances=circumstances)
    assert certificate is not None
    assert "one of 3 cells of a sweep. Over all cells, at most 24 of 100 such sweeps" in certificate.error
