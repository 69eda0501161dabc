"""What is recovered at the end of training, against the closed form and the known sizes."""

import numpy as np
import pytest
import torch

from tasks.job import marks
from tasks.linear_memorization.gaussian_samples import normal_samples
from tasks.linear_memorization.gradient_flow import Flow, curves
from tasks.linear_memorization.recovery import RECOVERY, Recovery, attack_errors, least_norm, recovery
from tasks.linear_memorization.regression import converged_weights


@pytest.mark.parametrize(("n", "d"), [(1, 1), (8, 8), (5, 30)])
def test_the_solution_of_least_norm_is_the_closed_form(n: int, d: int) -> None:
    z = np.stack([normal_samples(0, number, n, d) for number in range(3)])
    for each, w in zip(z, least_norm(torch.from_numpy(z)).numpy(), strict=True):
        np.testing.assert_allclose(w, converged_weights(each[:, 0], each[:, 1:]), atol=1e-10)


def test_every_x_is_recovered_where_features_are_many() -> None:
    table = recovery(Recovery(40, 200, trainings=10), [])
    assert RECOVERY == table.schema
    (row,) = table.to_pylist()
    assert (40, 200, 10) == (row["samples"], row["features"], row["n"])
    assert row["error_median"] <= row["error_max"] < 1e-8
    assert (1.0, 1.0, 1.0) == (row["recovered"], row["recovered_low"], row["recovered_high"])
    assert row["ratio_memorization"] == pytest.approx(1, abs=1e-12)
    assert row["memorization_low"] < row["memorization"] < row["memorization_high"] < 1


def test_nothing_is_recovered_where_features_are_few() -> None:
    (row,) = recovery(Recovery(40, 20, trainings=10), []).to_pylist()
    assert (None, None, None) == (row["error_median"], row["error_max"], row["ratio_memorization"])
    assert 0 == row["recovered"] == row["recovered_high"]


@pytest.mark.parametrize("d", [10, 80])
def test_the_raw_query_ends_where_the_curve_ends(d: int) -> None:
    (row,) = recovery(Recovery(20, d, trainings=5), []).to_pylist()
    end = curves(Flow(20, d, trainings=5, last=8), []).to_pylist()[-1]
    for name in ("memorization", "memorization_low", "memorization_high"):
        assert end[name] == pytest.approx(row[name], abs=1e-9)


def test_the_quotient_recovers_what_the_raw_query_only_scales() -> None:
    raw, ratio = attack_errors(torch.from_numpy(normal_samples(0, 0, 10, 15))[None])[0].abs()
    assert raw.max() > 0.1
    assert ratio.max() < 1e-10


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"features": 0}, "features is 0"), ({"tolerance": 0.0}, "tolerance is 0.0; it must be a finite number above 0")],
)
def test_configs_that_mean_nothing_are_refused(fields: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recovery(**fields)  # type: ignore[arg-type]


def test_the_task_has_its_name() -> None:
    assert ("linear_memorization.recovery", 1) == (marks(recovery).name, marks(recovery).version)
