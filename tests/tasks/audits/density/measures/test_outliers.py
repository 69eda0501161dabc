"""Counts of highly memorised observations in bins of U, for scores with known answers."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from tasks.audits.density.highly_memorised import highly_memorised_mask, scored_observations, within_central
from tasks.audits.density.measures.neighbours import Ratios
from tasks.audits.density.measures.outliers import OUTLIERS, Outliers, bin_of, edges, outliers
from tasks.numerics.statistics import jackknife
from tests.tasks.audits.density.made_up import scores

# 40 observations, U from -40 to -1, whose two largest scores belong to U = -40 and U = -15.
U = [float(value) for value in range(-40, 0)]
M = [0.1 * value for value in range(40)]
M[0], M[25] = 90.0, 80.0


def test_bins_count_highly_memorised_and_regular_observations() -> None:
    table = outliers(Outliers(width=10), [scores(U, M)])
    assert table.schema == OUTLIERS
    expected = [(None, -40, 0, 0), (-40, -30, 1, 9), (-30, -20, 0, 10), (-20, -10, 1, 9), (-10, 0, 0, 10)]
    expected.append((0, None, 0, 0))
    bin_rows = table.to_pylist()
    assert expected == [(row["low"], row["high"], row["memorised"], row["regular"]) for row in bin_rows]
    assert [row["memorised_rows"] for row in bin_rows] == [[], [0], [], [25], [], []]
    assert tuple(bin_rows[1][name] for name in ("share", "share_low", "share_high")) == (0.1, None, None)
    assert tuple(bin_rows[0][name] for name in ("share", "share_low", "share_high")) == (None, None, None)


def test_share_of_a_bin_has_a_jackknife_interval() -> None:
    table = scores(U, M)
    rng = np.random.default_rng(0)
    m_without = np.array(M)[:, None] + rng.normal(0, 1.0, (40, 4))
    column = pa.array(m_without.astype(np.float32).tolist(), pa.list_(pa.float32()))
    with_columns = table.set_column(table.schema.get_field_index("matched_without"), "matched_without", column)
    log_p_trained = pa.array([[u] * 4 for u in U], pa.list_(pa.float32()))
    with_columns = with_columns.set_column(table.schema.get_field_index("trained"), "trained", log_p_trained)
    row = outliers(Outliers(width=10), [with_columns]).to_pylist()[1]
    shares = []
    for m in m_without.T:
        shares.append(float(highly_memorised_mask(m.astype(np.float32))[:10].mean()))
    expected = jackknife(0.1, shares)
    assert expected.low is not None
    assert expected.high is not None
    assert [max(0.0, expected.low), min(1.0, expected.high)] == pytest.approx([row["share_low"], row["share_high"]])


def test_open_bins_are_outside_the_central_99_percent() -> None:
    u = np.concatenate([np.linspace(-95, -45, 1000), [-900.0, 60.0]])
    assert edges(u, 10).tolist() == [-100, -90, -80, -70, -60, -50, -40]
    table = outliers(Outliers(width=10), [scores(u.tolist(), [0.0] * 1001 + [1.0])]).to_pylist()
    assert table[0]["low"] is None
    assert table[0]["high"] == -100
    assert table[0]["regular"] == 1
    assert table[-1]["low"] == -40
    assert table[-1]["high"] is None
    assert table[-1]["memorised"] == 1
    assert sum(row["memorised"] + row["regular"] for row in table) == 1002


def test_observations_without_score_are_in_no_bin() -> None:
    table = scores([*U, -5.0, None, math.nan], [*M, None, 200.0, math.nan])
    assert len(scored_observations(table).rows) == 40
    bins = outliers(Outliers(width=10), [table])
    assert outliers(Outliers(width=10), [scores(U, M)]).equals(bins)


def test_infinite_values_have_a_bin() -> None:
    m = np.array([0.0] * 90 + [math.inf] * 10)
    assert highly_memorised_mask(m).tolist() == [False] * 90 + [True] * 10
    assert highly_memorised_mask(np.array([-math.inf] * 99 + [math.inf])).tolist() == [False] * 99 + [True]
    table = outliers(Outliers(width=10), [scores([-math.inf, *U], [-math.inf, *M])]).to_pylist()
    assert table[0]["memorised"] == 0
    assert table[0]["regular"] == 1
    nothing_finite = outliers(Outliers(), [scores([-math.inf] * 3, [-math.inf] * 3)]).to_pylist()
    assert [(row["low"], row["high"], row["regular"]) for row in nothing_finite] == [(None, None, 3)]


def test_examples_are_drawn_by_seed_and_bin() -> None:
    rng = np.random.default_rng(0)
    u = rng.uniform(-100, 0, 2000)
    m = rng.normal(size=2000)
    rows = rng.permutation(5000)[:2000]
    table = scores(u.tolist(), m.tolist(), rows.tolist())
    first = outliers(Outliers(25, seed=1), [table])
    repeated = outliers(Outliers(25, seed=1), [table])
    other_seed = outliers(Outliers(25, seed=2), [table])
    assert first.equals(repeated)
    assert not first.equals(other_seed)
    high = highly_memorised_mask(m)
    for row in first.to_pylist():
        inside = (u >= (-math.inf if row["low"] is None else row["low"])) & (
            u < (math.inf if row["high"] is None else row["high"])
        )
        for group, members in (("memorised", inside & high), ("regular", inside & ~high)):
            assert min(5, row[group]) == len(set(row[f"{group}_rows"]))
            assert set(row[f"{group}_rows"]) <= set(rows[members].tolist())
    assert all(row["regular_rows"] == [] for row in outliers(Outliers(25, shown=0), [table]).to_pylist())


def test_width_with_too_many_bins_is_refused() -> None:
    with pytest.raises(ValueError, match=r"width is 1e-05; the central 99 % of log p would be in .* at most 10000"):
        outliers(Outliers(width=1e-5), [scores(U, M)])


def test_no_observation_gives_only_the_open_bin() -> None:
    table = outliers(Outliers(), [scores([None], [None])])
    assert [tuple(row.values())[:4] for row in table.to_pylist()] == [(None, None, 0, 0)]
    assert within_central(scores([None], [None])).estimate.value is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"width": 0.0}, "width is 0.0"), ({"shown": -1}, "shown is -1; it must be at least 0"), ({"seed": -1}, "seed")],
)
def test_config_out_of_range_is_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Outliers(**settings)  # type: ignore[arg-type]


def test_edges_belong_to_the_bin_above() -> None:
    assert bin_of([-20.5, -20, -10, -0.5, 0, 9.99, 10], 10).tolist() == [-3, -2, -1, -1, 0, 0, 1]


def test_values_lie_within_their_bins_edges() -> None:
    values = np.arange(-3000, 3000) * 0.1
    for width in (0.1, 0.3, 0.7, 1 / 3):
        bins = bin_of(values, width)
        assert ((bins * width <= values) & (values < (bins + 1) * width)).all()


def test_infinity_and_nan_are_in_no_bin() -> None:
    bins = bin_of([np.inf, -np.inf, np.nan], 2)
    assert not np.isfinite(bins).any()


@pytest.mark.parametrize("width", [0, -1, np.inf, np.nan])
@pytest.mark.parametrize("config", [Outliers, Ratios])
def test_bin_width_must_be_positive_and_finite(width: float, config: type[Outliers | Ratios]) -> None:
    with pytest.raises(ValueError, match="it must be a finite number above 0"):
        config(width)
