"""What stands around the scores, from small tables whose numbers are known."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from tasks.audits.density.estimates.around import duplicates, neighbours, outliers, points, ratios
from tests.tasks.audits.density import made_up_scores
from tests.tasks.summary_rows import by_name, with_t, with_wilson


def test_the_highly_memorised_within_the_central_nine_tenths_are_counted() -> None:
    # Of 40 observations the 38th and 39th have the largest M; the central 90 % of U are 2 to 37.
    u = [float(at) for at in range(40)]
    inside = by_name(outliers(made_up_scores.scores(u, [9.0 if at in (2, 37) else 0.0 for at in range(40)])))
    name = ("highly memorised within the central log p", '{"share": 0.9}')
    assert {name: [*with_wilson(2, 2), "observation", None, None, None]} == {
        name: pytest.approx(row) for name, row in inside.items()
    }
    one = by_name(outliers(made_up_scores.scores(u, [9.0 if at in (20, 39) else 0.0 for at in range(40)])))
    assert [*with_wilson(1, 2), "observation", None, None, None] == pytest.approx(one[name])


def test_the_ratio_of_distances_is_correlated_with_m_by_pearson_and_by_spearman() -> None:
    m, rho = [0.1, 0.9, 0.3, 2.0, 0.5, np.inf], [1.0, 1.25, 0.75, 1.5, 1.75, 9.0]
    near = made_up_scores.neighbours([*rho[::-1], None], [5, 4, 3, 2, 1, 0, 6])
    found = by_name(neighbours(made_up_scores.scores([0.0] * 6, m), near))
    pearson = stats.pearsonr(m[:5], rho[:5])
    interval = pearson.confidence_interval(0.95)
    row = found["correlation of M and the neighbour ratio", '{"by": "Pearson"}']
    expected = [pearson.statistic, interval.low, interval.high, 5, "observation", 0.0, pearson.pvalue, None]
    assert expected == pytest.approx(row)
    spearman = stats.spearmanr(m[:5], rho[:5])
    row = found["correlation of M and the neighbour ratio", '{"by": "Spearman"}']
    assert [spearman.statistic, 5, 0.0, spearman.pvalue] == pytest.approx([row[0], row[3], row[5], row[6]])
    copies = [*with_wilson(1, 7), "observation", 0.0, None, None]
    assert copies == pytest.approx(found["observations that a sample equals", "{}"])


def test_the_mean_ratio_is_told_of_both_groups_and_of_no_bin() -> None:
    table = [{"group": group, "mean": mean, "n": n} for group, mean, n in (("bin", 1.0, 4), ("memorised", 1.5, 5))]
    table.append({"group": "regular", "mean": None, "n": 0})
    assert {
        ("neighbour ratio", '{"observations": "memorised"}'): [1.5, None, None, 5, "observation", *[None] * 3],
        ("neighbour ratio", '{"observations": "regular"}'): [None, None, None, 0, "observation", *[None] * 3],
    } == by_name(ratios(pa.Table.from_pylist(table)))


def test_equal_images_are_the_listed_pairs_at_no_distance() -> None:
    found = by_name(duplicates(pa.table({"distance": [0.0, 0.5, 0.0]})))
    assert {
        ("distance of the closest pair", "{}"): [0.0, None, None, 1, "pair of images", *[None] * 3],
        ("equal pairs", '{"listed": 3}'): [2.0, None, None, 3, "pair of images", *[None] * 3],
    } == found
    none = by_name(duplicates(pa.table({"distance": pa.array([], pa.float64())})))
    assert [None, 0] == [none["distance of the closest pair", "{}"][at] for at in (0, 3)]


def test_the_outlying_point_stands_apart_from_the_mean_of_the_others() -> None:
    found = by_name(points(pa.table({"m": [0.5, 7.0, 0.25, 1.5], "outlying": [False, True, False, False]})))
    assert [7.0, None, None, 1, "point", *[None] * 3] == found["M", '{"point": "outlying"}']
    assert [*with_t([0.5, 0.25, 1.5]), "point", *[None] * 3] == pytest.approx(found["M", '{"point": "others"}'])
