"""The kernel density's scores, from their closed form and from leaving out each point."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from tasks.audits.density.measures.kernel_density import (
    KERNEL,
    POINTS,
    Kernel,
    drawn_points,
    kernel,
    log_density,
    memorisation,
    points,
    rows,
)
from tasks.contract.measure import Tables
from tests.tasks.summary_rows import by_name, with_t


def density(x: float, sample: list[float], bandwidth: float) -> float:
    """The definition, one normal density after another."""
    terms = []
    for point in sample:
        terms.append(math.exp(-((x - point) ** 2) / (2 * bandwidth**2)) / math.sqrt(2 * math.pi))
    return sum(terms) / (len(sample) * bandwidth)


def test_densities_follow_the_definition() -> None:
    config = Kernel(points=7, grid=9, seed=3)
    sample = drawn_points(config).tolist()
    table = kernel(config, ())
    assert table.schema == KERNEL
    for row in table.to_pylist():
        assert density(row["x"], sample, 0.5) == pytest.approx(row["with_point"])
        assert density(row["x"], sample[:-1], 0.5) == pytest.approx(row["without_point"])
        assert density(row["x"], sample, 0.1) == pytest.approx(row["overfitted"])


def test_each_density_integrates_to_one() -> None:
    table = kernel(Kernel(grid=4001), ()).to_pandas()
    for name in ("with_point", "without_point", "overfitted"):
        assert np.trapezoid(table[name], table["x"]) == pytest.approx(1, abs=1e-4)


def test_closed_form_score_agrees_with_leaving_out_points() -> None:
    config = Kernel(points=12, seed=5)
    sample = drawn_points(config).tolist()
    table = points(config, ())
    assert table.schema == POINTS
    for row in table.to_pylist():
        other_points = sample[: row["row"]] + sample[row["row"] + 1 :]
        density_with = density(row["x"], sample, 0.5)
        density_without = density(row["x"], other_points, 0.5)
        assert math.log(density_with / density_without) == pytest.approx(row["m"], rel=1e-9)
        assert (math.log(density_with), math.log(density_without)) == pytest.approx(
            (row["log_p_trained"], row["log_p_held_out"])
        )
        assert row["log_p_trained"] - row["log_p_held_out"] == pytest.approx(row["m"], abs=1e-12)


def test_score_of_two_points_agrees_with_hand_calculation() -> None:
    # At distance d: q = K(d / h) / h, p = (q + K(0) / h) / 2, so M = log((1 + exp(d^2 / 2 h^2)) / 2).
    table = points(Kernel(points=1, gap=3, bandwidth=1.5), ()).to_pylist()
    assert [math.log((1 + math.exp(2)) / 2)] * 2 == pytest.approx([row["m"] for row in table])


@pytest.mark.parametrize("seed", range(20))
def test_the_outlying_point_is_memorised_most(seed: int) -> None:
    table = points(Kernel(seed=seed), ()).to_pandas()
    assert table["outlying"].tolist() == [False] * 20 + [True]
    assert table["m"].argmax() == 20
    assert table["x"][20] == pytest.approx(table["x"][:20].max() + 3)


def test_distant_point_with_density_0_has_a_score() -> None:
    row = points(Kernel(gap=1000.0), ()).to_pylist()[-1]
    other_points = drawn_points(Kernel(gap=1000.0))[:-1]
    exponents = -0.5 * ((row["x"] - other_points) / 0.5) ** 2
    # q = exp(largest) sum exp(rest) / (20 h sqrt(2 pi)); p is K(0) / (21 h) only.
    log_q = exponents.max() + math.log(np.exp(exponents - exponents.max()).sum()) - math.log(20 * 0.5)
    assert row["m"] == pytest.approx(-math.log(21 * 0.5) - log_q)
    assert math.isfinite(row["m"])


def test_point_changes_only_its_neighbourhood() -> None:
    table = kernel(Kernel(), ()).to_pandas()
    far = table["x"] < drawn_points(Kernel())[-1] - 8 * 0.5
    share = table["without_point"][far] / table["with_point"][far]
    assert np.allclose(21 / 20, share, rtol=1e-3)


def test_score_falls_to_its_lower_bound() -> None:
    held_out = np.array([*range(-50, 11), 50.0])
    scores = memorisation(held_out, 21, 0.5)
    assert (np.diff(scores) < 0).all()
    assert math.log(20 / 21) == pytest.approx(scores[-1])


def test_points_are_drawn_by_the_seed() -> None:
    assert kernel(Kernel(), ()).equals(kernel(Kernel(), ()))
    assert not kernel(Kernel(), ()).equals(kernel(Kernel(seed=1), ()))
    assert pytest.approx(log_density(np.array([3.0]), np.zeros(1), 1.0) + 0.5 * math.log(2 * math.pi)) == [-4.5]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"points": 0}, "points is 0; it must be at least 1"),
        ({"grid": 1}, "grid is 1; it must be at least 2"),
        ({"seed": -1}, "seed is -1"),
        ({"gap": 0.0}, "gap is 0.0; it must be a finite number above 0"),
        ({"bandwidth": math.inf}, "bandwidth is inf"),
        ({"overfitted": 0.5}, "overfitted is 0.5; it must be below the bandwidth, 0.5"),
    ],
)
def test_config_out_of_range_is_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Kernel(**settings)  # type: ignore[arg-type]


def test_outlying_point_is_separate_from_the_others_mean() -> None:
    score_rows = [{"m": m, "outlying": m == 7.0} for m in (0.5, 7.0, 0.25, 1.5)]
    summary_rows = by_name(rows(Tables([pa.Table.from_pylist(score_rows, POINTS)]), None))
    assert summary_rows["M", '{"point": "outlying"}'] == [7.0, None, None, 1, "point", *[None] * 3]
    assert summary_rows["M", '{"point": "others"}'] == pytest.approx([*with_t([0.5, 0.25, 1.5]), "point", *[None] * 3])
