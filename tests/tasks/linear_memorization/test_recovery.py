"""Recovery after training, against the closed form and known sizes."""

import numpy as np
import pytest
import torch

from tasks.contract.job import marks
from tasks.linear_memorization.gaussian_samples import normal_samples
from tasks.linear_memorization.gradient_flow import (
    RECOVERY,
    Flow,
    Recovery,
    attack_errors,
    curves,
    least_norm,
    recovery,
)
from tests.tasks.linear_memorization.closed_form import converged_weights, kernel_direction


def by_steps(z: np.ndarray, steps: int) -> np.ndarray:
    """Run plain gradient descent from 0."""
    weights = np.zeros(z.shape[1])
    for _ in range(steps):
        weights -= z.T @ (z @ weights - z[:, 0]) / np.linalg.norm(z, 2) ** 2
    return weights


@pytest.mark.parametrize(("n", "d"), [(4, 12), (12, 5)])
def test_gradient_descent_ends_in_the_closed_form(n: int, d: int) -> None:
    z = normal_samples(0, 0, n, d)
    np.testing.assert_allclose(converged_weights(z), by_steps(z, 20_000), atol=1e-8)
    assert (d < n) == (kernel_direction(z) is None)


@pytest.mark.parametrize(("n", "d"), [(1, 1), (8, 8), (5, 30)])
def test_least_norm_solution_equals_closed_form(n: int, d: int) -> None:
    z = np.stack([normal_samples(0, number, n, d) for number in range(3)])
    for samples, w in zip(z, least_norm(torch.from_numpy(z)).numpy(), strict=True):
        np.testing.assert_allclose(w, converged_weights(samples), atol=1e-10)
        kernel = np.linalg.svd(samples)[2][n:]
        np.testing.assert_allclose(kernel @ w, 0, atol=1e-12)


def test_one_sample_with_one_feature_by_hand() -> None:
    # Least norm on 2 w1 + 3 w2 = 2: w = 2 (2, 3) / 13. v = (-1, 2 / 3), |v|^2 = 13 / 9.
    z = torch.tensor([[[2.0, 3.0]]], dtype=torch.float64)
    np.testing.assert_allclose(least_norm(z)[0], [4 / 13, 6 / 13], rtol=1e-14)
    np.testing.assert_allclose(converged_weights(z[0].numpy()), [4 / 13, 6 / 13], rtol=1e-14)
    np.testing.assert_allclose(attack_errors(z)[0, :, 0], [18 / 13 - 2, 0], atol=1e-14)


@pytest.mark.parametrize(("n", "d"), [(1, 1), (20, 20), (20, 21), (20, 60), (300, 2000)])
def test_every_x_is_recovered_to_8_digits(n: int, d: int) -> None:
    z = np.stack([normal_samples(1, number, n, d) for number in range(3)])
    assert attack_errors(torch.from_numpy(z))[:, 1].abs().max() < 1e-8


def test_printed_sign_does_not_solve_equation() -> None:
    z = normal_samples(0, 0, 10, 30)
    x = z[:, 0]
    v = kernel_direction(z)
    assert v is not None
    np.testing.assert_allclose(z @ v, 0, atol=1e-12)
    np.testing.assert_allclose(z @ converged_weights(z), x, atol=1e-12)
    printed = np.concatenate([[1.0], v[1:]])
    np.testing.assert_allclose(z @ printed, 2 * x, atol=1e-12)
    weights = np.eye(31)[0] + printed / (printed @ printed)
    assert np.abs(z @ weights - x).max() > 0.1


def test_every_x_is_recovered_if_features_are_many() -> None:
    table = recovery(Recovery(40, 200, trainings=10), [])
    assert table.schema == RECOVERY
    (row,) = table.to_pylist()
    assert row["samples"] == 40
    assert row["features"] == 200
    assert row["n"] == 10
    assert row["error_median"] <= row["error_max"] < 1e-8
    assert row["recovered"] == 1.0
    assert row["recovered_low"] == 1.0
    assert row["recovered_high"] == 1.0
    assert row["ratio_memorization"] == pytest.approx(1, abs=1e-12)
    assert row["memorization_low"] < row["memorization"] < row["memorization_high"] < 1


def test_nothing_is_recovered_if_features_are_few() -> None:
    (row,) = recovery(Recovery(40, 20, trainings=10), []).to_pylist()
    assert row["error_median"] is None
    assert row["error_max"] is None
    assert row["ratio_memorization"] is None
    assert 0 == row["recovered"] == row["recovered_high"]


@pytest.mark.parametrize("d", [10, 80])
def test_raw_query_ends_at_end_of_curve(d: int) -> None:
    (row,) = recovery(Recovery(20, d, trainings=5), []).to_pylist()
    end = curves(Flow(20, d, trainings=5, last=8), []).to_pylist()[-1]
    for name in ("memorization", "memorization_low", "memorization_high"):
        assert end[name] == pytest.approx(row[name], abs=1e-9)


def test_quotient_recovers_x() -> None:
    raw, ratio = attack_errors(torch.from_numpy(normal_samples(0, 0, 10, 15))[None])[0].abs()
    assert raw.max() > 0.1
    assert ratio.max() < 1e-10


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"features": 0}, "features is 0"), ({"tolerance": 0.0}, "tolerance is 0.0; it must be a finite number above 0")],
)
def test_invalid_configs_are_refused(fields: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recovery(**fields)  # type: ignore[arg-type]


def test_task_has_its_name() -> None:
    assert marks(recovery).name == "linear_memorization.recovery"
    assert marks(recovery).version == 1
