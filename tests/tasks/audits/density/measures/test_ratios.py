"""Ratios in bins of the score and by group, of made-up tables."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tasks.audits.density.measures.ratios import RATIOS, Ratios, ratios, rows
from tasks.measure import Tables
from tests.tasks.audits.density.made_up_scores import neighbours, scores
from tests.tasks.summary_rows import by_name


def test_bins_of_the_score_have_a_mean_and_a_standard_error() -> None:
    m = [-0.5, 0.0, 1.9, 2.0, 7.0]
    table = ratios(Ratios(width=2), [scores([0.0] * 5, m), neighbours([1.0, 0.8, 1.0, 1.2, 0.9])])
    assert table.schema == RATIOS
    bins = [row for row in table.to_pylist() if row["group"] == "bin"]
    assert [(-2, 0, 1), (0, 2, 2), (2, 4, 1), (6, 8, 1)] == [(row["low"], row["high"], row["n"]) for row in bins]
    assert [1.0, 0.9, 1.2, 0.9] == pytest.approx([row["mean"] for row in bins])
    # 0.8 and 1.0: s = sqrt(0.02), over sqrt(2).
    assert [None, pytest.approx(0.1), None, None] == [row["standard_error"] for row in bins]
    assert all(row["quantiles"] is None for row in bins)


def test_groups_split_at_the_95_percent_quantile_of_the_score_and_not_at_095_nats() -> None:
    m = [10.0 + row for row in range(100)]
    rho = [0.5 + 0.01 * row for row in range(100)]
    found = {row["group"]: row for row in ratios(Ratios(50), [scores([0.0] * 100, m), neighbours(rho)]).to_pylist()}
    high, regular = found["memorised"], found["regular"]
    assert (5, 95) == (high["n"], regular["n"])
    assert (1.47, 0.97) == pytest.approx((high["mean"], regular["mean"]))
    assert (101, 101) == (len(high["quantiles"]), len(regular["quantiles"]))
    assert [1.45, 1.47, 1.49] == pytest.approx([high["quantiles"][at] for at in (0, 50, 100)])
    assert [0.5, 0.735, 1.44] == pytest.approx([regular["quantiles"][at] for at in (0, 25, 100)])
    assert (None, None) == (high["low"], high["high"])
    assert high["standard_error"] == pytest.approx(np.std(rho[95:], ddof=1) / math.sqrt(5))


def test_rows_are_matched_by_their_number_and_those_without_score_or_ratio_left_out() -> None:
    given = scores([0.0] * 4, [1.0, 3.0, None, 5.0], rows=[9, 2, 4, 6])
    found = ratios(Ratios(2), [given, neighbours([0.1, 0.2, 0.4, None, 0.9], rows=[0, 2, 4, 6, 9])]).to_pylist()
    assert [(0, 0.9), (2, 0.2)] == [(row["low"], row["mean"]) for row in found if row["group"] == "bin"]
    # The largest score of the three has no ratio: nobody is left that is highly memorised.
    groups = [(row["group"], row["n"], row["quantiles"] is None) for row in found if row["group"] != "bin"]
    assert [("memorised", 0, True), ("regular", 2, False)] == groups


def test_an_infinite_score_is_in_its_group_and_in_no_bin() -> None:
    given = scores([0.0] * 3, [1.0, math.inf, -math.inf])
    found = ratios(Ratios(2), [given, neighbours([0.5, 0.7, 0.9])]).to_pylist()
    assert [1] == [row["n"] for row in found if row["group"] == "bin"]
    assert [1, 2] == [row["n"] for row in found if row["group"] != "bin"]
    assert 0.7 == found[1]["mean"]


def test_scores_without_neighbours_are_refused() -> None:
    with pytest.raises(ValueError, match="observation 2 has a score, but its neighbours are not in their table"):
        ratios(Ratios(), [scores([0.0] * 3, [1.0, 2.0, 3.0]), neighbours([1.0, 1.0])])
    with pytest.raises(ValueError, match="width is 0; it must be a finite number above 0"):
        Ratios(0)


def test_the_mean_ratio_is_told_of_both_groups() -> None:
    given = scores([0.0] * 40, [float(row) for row in range(40)])
    near = neighbours([1.0] * 38 + [1.5, 2.0])
    found = by_name(rows(Tables([given, near, ratios(Ratios(), [given, near])]), None))
    assert {
        ("neighbour ratio", '{"observations": "memorised"}'): [1.75, None, None, 0, "repetition", *[None] * 3],
        ("neighbour ratio", '{"observations": "regular"}'): [1.0, None, None, 0, "repetition", *[None] * 3],
    } == found
    assert {} == by_name(rows(Tables([given, near]), None))
