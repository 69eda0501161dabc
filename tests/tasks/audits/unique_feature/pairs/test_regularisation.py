"""Comparison of the scores of regularised and plain networks as independent samples."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from scipy import stats

from tasks.audits.unique_feature.pairs.canary_scores import canary_scores
from tasks.audits.unique_feature.pairs.regularisation import REGULARISED, comparison_rows, regularisation, rows
from tasks.audits.unique_feature.pairs.units import Units
from tasks.audits.unique_feature.presets import PublishedCell
from tasks.audits.unique_feature.summary import summary
from tasks.contract.job import NoSettings
from tasks.contract.measure import Tables
from tests.tasks.audits.unique_feature.made_up import pair
from tests.tasks.summary_rows import by_name


def units(m: list[float | None], effects: list[float]) -> Units:
    rows: list[dict[str, Any]] = [
        {"m": m_value, "m_effect": effect, "m_w_probe_effect": effect**2}
        for m_value, effect in zip(m, effects, strict=True)
    ]
    return Units([], rows, "training", "pair of trainings")


def difference_of_means(first: list[float], second: list[float]) -> list[Any]:
    test_result = stats.ttest_ind(first, second, equal_var=False)
    low, high = test_result.confidence_interval(0.95)
    centre = sum(first) / len(first) - sum(second) / len(second)
    return [centre, low, high, len(first) + len(second), test_result.pvalue]


def test_regularised_networks_are_compared_by_welchs_test() -> None:
    first = units([0.2, -0.5, 0.7, None, 0.4], [0.1, 0.3, 0.2, 0.6, 0.5])
    plain = units([0.1, 0.0, 0.15, 0.3], [0.0, -0.2, 0.4, 0.05])
    comparison_table = pa.Table.from_pylist(list(comparison_rows(first, plain)), REGULARISED)
    summary_rows = by_name(rows(Tables([comparison_table]), None))
    squared = []
    for effects in ([0.1, 0.3, 0.2, 0.6, 0.5], [0.0, -0.2, 0.4, 0.05]):
        squared.append([e**2 for e in effects])
    for name, unit, samples in (
        (("M where positive, less plain", "{}"), "training", ([0.2, 0.7, 0.4], [0.1, 0.15, 0.3])),
        (("M effect, less plain", "{}"), "pair of trainings", ([0.1, 0.3, 0.2, 0.6, 0.5], [0.0, -0.2, 0.4, 0.05])),
        (("M_w effect, less plain", '{"images": "probe"}'), "pair of trainings", (squared[0], squared[1])),
    ):
        *estimate, p_value = difference_of_means(*samples)
        assert summary_rows[name] == pytest.approx([*estimate, unit, 0.0, p_value, None])
    assert len(summary_rows) == 3


def test_regularised_network_is_compared_with_the_plain_one() -> None:
    scores = []
    for values in ((0.3, 0.5, -1), (0.1, 0.2)):
        scores.append(canary_scores(NoSettings(), [pair(i, m, 0.0) for i, m in enumerate(values)]))
    table = summary(PublishedCell(), [scores[0], regularisation(NoSettings(), scores)]).to_pylist()
    (row,) = (row for row in table if row["metric"] == "M where positive, less plain")
    expected = stats.ttest_ind([0.3, 0.5], [0.1, 0.2], equal_var=False)
    assert [row["estimate"], row["n"], row["p_value"]] == pytest.approx([0.25, 4, expected.pvalue], abs=1e-5)
