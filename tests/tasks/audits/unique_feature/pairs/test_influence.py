"""Self-influence of canaries, compared with their scores and with the published numbers."""

from __future__ import annotations

import json
from itertools import permutations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from tasks.audits.unique_feature.pairs.canary_scores import canary_scores
from tasks.audits.unique_feature.pairs.canary_selection import CHOSEN, RankedImage
from tasks.audits.unique_feature.pairs.influence import (
    InfluenceChange,
    correlation_rows,
    influence_change,
    influence_rows,
    spearman_estimate,
)
from tasks.audits.unique_feature.pairs.units import Units
from tasks.audits.unique_feature.presets import PublishedNumbers
from tasks.contract.job import NoSettings
from tests.tasks.audits.unique_feature import made_up
from tests.tasks.audits.unique_feature.made_up import pair as trained_pair
from tests.tasks.audits.unique_feature.made_up import summary_rows
from tests.tasks.summary_rows import by_name, with_t

M = [0.1, 0.4, 0.2, 0.5, 0.9]
TWIN = [0.3, 0.1, 0.2, 0.4, 0.25]
M_W = [0.5, 0.1, 0.4, 0.2, 0.7]
TWIN_M_W = [0.1, 0.2, 0.05, 0.3, 0.1]
BOTH_ENDS = '{"of": "both ends"}'
INFLUENCES = [1.0, 5.0, 2.0, 8.0, 3.0]


def pair(canary: int, index: int) -> dict[str, Any]:
    row = {"canary": canary, "m": M[index], "twin_m": TWIN[index], "m_effect": M[index] - TWIN[index]}
    effect = {"m_w_probe_effect": M_W[index] - TWIN_M_W[index]}
    return row | {"m_w_probe": M_W[index], "twin_m_w_probe": TWIN_M_W[index]} | effect


ROWS = [pair(canary, at) for at, canary in enumerate((7, 3, 5, 1, 4))]
CHOSEN_ROWS = [
    {"row": row["canary"], "self_influence": INFLUENCES[at], "end": "highest" if INFLUENCES[at] > 2.5 else "lowest"}
    for at, row in enumerate(ROWS)
][::-1]


def test_self_influence_is_correlated_with_scores() -> None:
    units = Units(ROWS, [*ROWS, pair(99, 0)], "training", "pair of trainings")  # canary 99 was not traced
    summary_rows = by_name(correlation_rows(units, CHOSEN_ROWS, PublishedNumbers(correlation=0.43)))
    for metric, values, null, published in (
        ("M", M, TWIN, 0.43),
        ("M effect", [a - b for a, b in zip(M, TWIN, strict=True)], None, None),
        ("M_w effect", [a - b for a, b in zip(M_W, TWIN_M_W, strict=True)], None, None),
    ):
        row = summary_rows[f"correlation of self-influence and {metric}", BOTH_ENDS]
        null_correlation = 0.0 if null is None else stats.pearsonr(INFLUENCES, null).statistic
        expected = [stats.pearsonr(INFLUENCES, values).statistic, None, None, 5, "canary", null_correlation]
        assert expected == pytest.approx(row[:6])
        assert published == row[7]
        # Compared with all 120 orders.
        exact = []
        for order in permutations(INFLUENCES):
            exact.append(abs(stats.pearsonr(order, values).statistic))
        assert np.mean(np.array(exact) >= abs(row[0]) - 1e-9) == pytest.approx(row[6], abs=0.04)
        ranked = summary_rows[f"rank correlation of self-influence and {metric}", BOTH_ENDS]
        null_correlation = 0.0 if null is None else stats.spearmanr(INFLUENCES, null).statistic
        assert [stats.spearmanr(INFLUENCES, values).statistic, null_correlation] == pytest.approx(
            [ranked[0], ranked[5]]
        )
        assert ranked[1] <= ranked[0] <= ranked[2]


def test_rank_correlation_interval_covers_0_without_effect() -> None:
    rng = np.random.default_rng(2)
    ends = ["highest"] * 15 + ["lowest"] * 15
    covered = 0
    nulls = 200
    for _ in range(nulls):
        influence = np.concatenate([rng.lognormal(5, 1, 15), rng.lognormal(-5, 1, 15)])
        estimate = spearman_estimate(influence.tolist(), rng.normal(0, 1, 30).tolist(), ends, draws=400)
        covered += estimate.low <= 0 <= estimate.high
    assert covered / nulls >= 0.9


def test_both_ends_have_separate_effects() -> None:
    summary_rows = by_name(
        correlation_rows(Units(ROWS, ROWS, "training", "pair of trainings"), CHOSEN_ROWS, PublishedNumbers())
    )
    for end, indices in (("highest", (1, 3, 4)), ("lowest", (0, 2))):
        canary_scores_of_end = [M_W[index] for index in indices]
        control_scores = [TWIN_M_W[index] for index in indices]
        p_value = stats.ttest_rel(canary_scores_of_end, control_scores, alternative="greater").pvalue
        effects = with_t([a - b for a, b in zip(canary_scores_of_end, control_scores, strict=True)])
        row = summary_rows["M_w effect", f'{{"images": "probe", "self-influence": "{end}"}}']
        assert row == pytest.approx([*effects, "pair of trainings", 0.0, p_value, None])
    lowest_rows = []
    for chosen_row in CHOSEN_ROWS:
        if chosen_row["end"] == "lowest":
            lowest_rows.append(chosen_row)
    partial_summary = by_name(
        correlation_rows(Units(ROWS, ROWS, "training", "pair of trainings"), lowest_rows, PublishedNumbers())
    )
    assert len(partial_summary) == 6 + 1


def test_self_influence_is_correlated_over_chosen_canaries() -> None:
    m = [0.1, 0.2, 0.4, 0.3, 0.6]
    influence = [1.0, 2.0, 3.0, 4.0, 5.0]
    scores = canary_scores(NoSettings(), [trained_pair(i, m_value, 0.01 * i) for i, m_value in enumerate(m)])
    influence_rows_of_canaries = []
    for i, m_value in enumerate(influence):
        influence_rows_of_canaries.append(
            {
                "end": "highest" if i > 2 else "lowest",
                "rank": 1,
                "row": i,
                "label": 0,
                "self_influence": m_value,
                "squared_slopes": 0.0,
            }
        )
    table = summary_rows(
        [scores, pa.Table.from_pylist(influence_rows_of_canaries, CHOSEN)], "table 2, mnist, mlp1, no regulariser"
    )
    row = table["correlation of self-influence and M", BOTH_ENDS]
    assert [row["estimate"], row["published"]] == pytest.approx(
        [stats.pearsonr(influence, m).statistic, 0.43], abs=1e-6
    )
    assert table["M_w effect", json.dumps({"images": "probe", "self-influence": "highest"})]["n"] == 2


TABLE_2 = "table 2, mnist, mlp1, no regulariser"


def test_image_is_traced_without_and_with_the_feature() -> None:
    before, after = made_up.influence([3.0, 9.0, 1.0, 7.0]), made_up.influence([3.0, 9.0, 8.0, 7.0])
    chosen_image = made_up.chosen_rows(2, end="lowest")
    assert chosen_image.schema == CHOSEN
    table = influence_change(InfluenceChange(RankedImage("lowest", 1)), [chosen_image, before, after])
    assert table["with_feature"].to_pylist() == [False, True]
    assert table["self_influence"].to_pylist() == [1.0, 8.0]
    assert [round(share, 6) for share in table["share_below"].to_pylist()] == [0.0, 0.75 - 0.25]
    summary_by_name = summary_rows([table], TABLE_2)
    with_it = json.dumps({"feature": "with", "image": "lowest"})
    without_feature = json.dumps({"feature": "without", "image": "lowest"})
    assert summary_by_name["squared slopes", without_feature]["published"] == 1.0e-13
    assert summary_by_name["squared slopes", with_it]["published"] == 7.5e4
    assert summary_by_name["self-influence", with_it]["estimate"] == 8.0


def test_published_slopes_are_shown_without_and_with_feature() -> None:
    traced_rows = []
    for end, burnt, i, s, b in (("highest", False, 1.0, 2.0, 0.9), ("highest", True, 3.0, 4.0, 0.95)):
        traced_rows.append(
            {"end": end, "with_feature": burnt, "self_influence": i, "squared_slopes": s, "share_below": b}
        )
    traced_rows.append({**traced_rows[1], "end": "lowest"})
    summary_by_name = by_name(influence_rows(traced_rows, PublishedNumbers(highest=(6.6e4, 7.5e4))))
    constant_values = [None, None, 1, "training", None, None]
    without_feature, feature, lowest = (
        f'{{"feature": "{name}", "image": "{end}"}}'
        for name, end in (("without", "highest"), ("with", "highest"), ("with", "lowest"))
    )
    assert summary_by_name == {
        ("self-influence", without_feature): [1.0, *constant_values, None],
        ("squared slopes", without_feature): [2.0, *constant_values, 6.6e4],
        ("share of images with less self-influence", without_feature): [0.9, *constant_values, None],
        ("self-influence", feature): [3.0, *constant_values, None],
        ("squared slopes", feature): [4.0, *constant_values, 7.5e4],
        ("share of images with less self-influence", feature): [0.95, *constant_values, None],
        ("self-influence", lowest): [3.0, *constant_values, None],
        ("squared slopes", lowest): [4.0, *constant_values, None],
        ("share of images with less self-influence", lowest): [0.95, *constant_values, None],
    }
