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
BOTH = '{"of": "both ends"}'
TRACED = [1.0, 5.0, 2.0, 8.0, 3.0]


def pair(canary: int, at: int) -> dict[str, Any]:
    row = {"canary": canary, "m": M[at], "twin_m": TWIN[at], "m_effect": M[at] - TWIN[at]}
    effect = {"m_w_probe_effect": M_W[at] - TWIN_M_W[at]}
    return row | {"m_w_probe": M_W[at], "twin_m_w_probe": TWIN_M_W[at]} | effect


ROWS = [pair(canary, at) for at, canary in enumerate((7, 3, 5, 1, 4))]
CHOSEN_ROWS = [
    {"row": row["canary"], "self_influence": TRACED[at], "end": "highest" if TRACED[at] > 2.5 else "lowest"}
    for at, row in enumerate(ROWS)
][::-1]


def test_self_influence_is_correlated_with_the_scores_of_its_own_canary() -> None:
    units = Units(ROWS, [*ROWS, pair(99, 0)], "training", "pair of trainings")  # canary 99 was not traced
    found = by_name(correlation_rows(units, CHOSEN_ROWS, PublishedNumbers(correlation=0.43)))
    for metric, values, null, published in (
        ("M", M, TWIN, 0.43),
        ("M effect", [a - b for a, b in zip(M, TWIN, strict=True)], None, None),
        ("M_w effect", [a - b for a, b in zip(M_W, TWIN_M_W, strict=True)], None, None),
    ):
        row = found[f"correlation of self-influence and {metric}", BOTH]
        nothing = 0.0 if null is None else stats.pearsonr(TRACED, null).statistic
        expected = [stats.pearsonr(TRACED, values).statistic, None, None, 5, "canary", nothing]
        assert expected == pytest.approx(row[:6])
        assert published == row[7]
        # Of all 120 orders as many are as far from 0.
        exact = [abs(stats.pearsonr(order, values).statistic) for order in permutations(TRACED)]
        assert np.mean(np.array(exact) >= abs(row[0]) - 1e-9) == pytest.approx(row[6], abs=0.04)
        ranked = found[f"rank correlation of self-influence and {metric}", BOTH]
        nothing = 0.0 if null is None else stats.spearmanr(TRACED, null).statistic
        assert [stats.spearmanr(TRACED, values).statistic, nothing] == pytest.approx([ranked[0], ranked[5]])
        assert ranked[1] <= ranked[0] <= ranked[2]


def test_the_interval_of_the_rank_correlation_covers_0_where_ends_do_not_differ() -> None:
    rng = np.random.default_rng(2)
    ends = ["highest"] * 15 + ["lowest"] * 15
    covered, nulls = 0, 200
    for _ in range(nulls):
        influence = np.concatenate([rng.lognormal(5, 1, 15), rng.lognormal(-5, 1, 15)])
        found = spearman_estimate(influence.tolist(), rng.normal(0, 1, 30).tolist(), ends, draws=400)
        covered += found.low <= 0 <= found.high
    assert covered / nulls >= 0.9


def test_both_ends_of_self_influence_have_an_effect_of_their_own() -> None:
    found = by_name(
        correlation_rows(Units(ROWS, ROWS, "training", "pair of trainings"), CHOSEN_ROWS, PublishedNumbers())
    )
    for end, places in (("highest", (1, 3, 4)), ("lowest", (0, 2))):
        ours, twins = [M_W[at] for at in places], [TWIN_M_W[at] for at in places]
        p_value = stats.ttest_rel(ours, twins, alternative="greater").pvalue
        effects = with_t([a - b for a, b in zip(ours, twins, strict=True)])
        row = found["M_w effect", f'{{"images": "probe", "self-influence": "{end}"}}']
        assert [*effects, "pair of trainings", 0.0, p_value, None] == pytest.approx(row)
    some = [each for each in CHOSEN_ROWS if each["end"] == "lowest"]
    none = by_name(correlation_rows(Units(ROWS, ROWS, "training", "pair of trainings"), some, PublishedNumbers()))
    assert len(none) == 6 + 1


def test_self_influence_is_correlated_with_m_over_the_chosen_canaries() -> None:
    m = [0.1, 0.2, 0.4, 0.3, 0.6]
    influence = [1.0, 2.0, 3.0, 4.0, 5.0]
    scores = canary_scores(NoSettings(), [trained_pair(i, each, 0.01 * i) for i, each in enumerate(m)])
    chosen = [
        {
            "end": "highest" if i > 2 else "lowest",
            "rank": 1,
            "row": i,
            "label": 0,
            "self_influence": each,
            "squared_slopes": 0.0,
        }
        for i, each in enumerate(influence)
    ]
    table = summary_rows([scores, pa.Table.from_pylist(chosen, CHOSEN)], "table 2, mnist, mlp1, no regulariser")
    row = table["correlation of self-influence and M", BOTH]
    assert [stats.pearsonr(influence, m).statistic, 0.43] == pytest.approx(
        [row["estimate"], row["published"]], abs=1e-6
    )
    assert table["M_w effect", json.dumps({"images": "probe", "self-influence": "highest"})]["n"] == 2


TABLE_2 = "table 2, mnist, mlp1, no regulariser"


def test_an_image_is_traced_without_the_feature_and_with_it() -> None:
    before, after = made_up.influence([3.0, 9.0, 1.0, 7.0]), made_up.influence([3.0, 9.0, 8.0, 7.0])
    chosen = made_up.chosen(2, end="lowest")
    assert chosen.schema == CHOSEN
    table = influence_change(InfluenceChange(RankedImage("lowest", 1)), [chosen, before, after])
    assert table["with_feature"].to_pylist() == [False, True]
    assert table["self_influence"].to_pylist() == [1.0, 8.0]
    assert [round(share, 6) for share in table["share_below"].to_pylist()] == [0.0, 0.75 - 0.25]
    found = summary_rows([table], TABLE_2)
    with_it = json.dumps({"feature": "with", "image": "lowest"})
    without = json.dumps({"feature": "without", "image": "lowest"})
    assert [found["squared slopes", setting]["published"] for setting in (without, with_it)] == [1.0e-13, 7.5e4]
    assert found["self-influence", with_it]["estimate"] == 8.0


def test_the_published_numbers_stand_beside_the_squared_slopes_without_and_with_the_feature() -> None:
    traced = [
        {"end": end, "with_feature": burnt, "self_influence": i, "squared_slopes": s, "share_below": b}
        for end, burnt, i, s, b in (("highest", False, 1.0, 2.0, 0.9), ("highest", True, 3.0, 4.0, 0.95))
    ]
    traced.append({**traced[1], "end": "lowest"})
    found = by_name(influence_rows(traced, PublishedNumbers(highest=(6.6e4, 7.5e4))))
    rest = [None, None, 1, "training", None, None]
    without, feature, lowest = (
        f'{{"feature": "{name}", "image": "{end}"}}'
        for name, end in (("without", "highest"), ("with", "highest"), ("with", "lowest"))
    )
    assert {
        ("self-influence", without): [1.0, *rest, None],
        ("squared slopes", without): [2.0, *rest, 6.6e4],
        ("share of images with less self-influence", without): [0.9, *rest, None],
        ("self-influence", feature): [3.0, *rest, None],
        ("squared slopes", feature): [4.0, *rest, 7.5e4],
        ("share of images with less self-influence", feature): [0.95, *rest, None],
        ("self-influence", lowest): [3.0, *rest, None],
        ("squared slopes", lowest): [4.0, *rest, None],
        ("share of images with less self-influence", lowest): [0.95, *rest, None],
    } == found
