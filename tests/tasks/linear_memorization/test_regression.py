"""The closed form against training, by hand, and against the sign that the paper prints."""

import numpy as np
import pytest

from tasks.linear_memorization.regression import converged_weights, kernel_direction, raw_answers, recover_x


def samples(n: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    z = np.random.default_rng(seed).standard_normal((n, 1 + d))
    return z[:, 0], z[:, 1:]


def trained(x: np.ndarray, y: np.ndarray, steps: int) -> np.ndarray:
    """Plain gradient descent from 0."""
    z = np.column_stack([x, y])
    rate = len(z) / np.linalg.norm(z, 2) ** 2
    weights = np.zeros(z.shape[1])
    for _ in range(steps):
        weights -= rate / len(z) * z.T @ (z @ weights - x)
    return weights


@pytest.mark.parametrize(("n", "d"), [(4, 12), (10, 40), (3, 4), (12, 5)])
def test_gradient_descent_ends_in_the_closed_form(n: int, d: int) -> None:
    x, y = samples(n, d)
    np.testing.assert_allclose(converged_weights(x, y), trained(x, y, 20_000), atol=1e-8)


def test_one_sample_with_one_feature_by_hand() -> None:
    # Least norm on 2 w1 + 3 w2 = 2: w = 2 (2, 3) / 13. v = (-1, 2 / 3), |v|^2 = 13 / 9.
    weights = converged_weights([2.0], [[3.0]])
    np.testing.assert_allclose(weights, [4 / 13, 6 / 13], rtol=1e-14)
    np.testing.assert_allclose(raw_answers(weights, [[3.0]]), [18 / 13], rtol=1e-14)
    np.testing.assert_allclose(recover_x(weights, [[3.0]]), [2.0], rtol=1e-14)


@pytest.mark.parametrize(("n", "d"), [(1, 1), (20, 20), (20, 21), (20, 60), (300, 2000)])
def test_every_x_is_recovered_to_8_digits(n: int, d: int) -> None:
    for seed in range(3):
        x, y = samples(n, d, seed)
        assert np.abs(recover_x(converged_weights(x, y), y) - x).max() < 1e-8


def test_the_sign_that_the_paper_prints_does_not_solve_the_equation() -> None:
    x, y = samples(10, 30)
    z = np.column_stack([x, y])
    v = kernel_direction(x, y)
    assert v is not None
    np.testing.assert_allclose(z @ v, 0, atol=1e-12)
    np.testing.assert_allclose(z @ converged_weights(x, y), x, atol=1e-12)
    printed = np.concatenate([[1.0], v[1:]])
    np.testing.assert_allclose(z @ printed, 2 * x, atol=1e-12)
    weights = np.eye(31)[0] + printed / (printed @ printed)
    assert np.abs(z @ weights - x).max() > 0.1


def test_the_weights_are_orthogonal_to_the_kernel_of_the_samples() -> None:
    x, y = samples(10, 30)
    kernel = np.linalg.svd(np.column_stack([x, y]))[2][10:]
    np.testing.assert_allclose(kernel @ converged_weights(x, y), 0, atol=1e-12)


def test_fewer_features_than_samples_leave_nothing_of_x_in_the_weights() -> None:
    x, y = samples(30, 20)
    assert kernel_direction(x, y) is None
    assert np.eye(21)[0].tolist() == converged_weights(x, y).tolist()
    with pytest.raises(ValueError, match=r"1 - w.e1 is 0; .* no x can be recovered"):
        recover_x(converged_weights(x, y), y)


def test_x_in_the_span_of_few_features_is_recovered_all_the_same() -> None:
    _, y = samples(30, 5)
    x = y @ [1.0, -2.0, 0.5, 0.0, 3.0]
    weights = converged_weights(x, y)
    np.testing.assert_allclose(weights, trained(x, y, 5_000), atol=1e-8)
    np.testing.assert_allclose(recover_x(weights, y), x, atol=1e-10)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([1.0, 2.0], [[1.0]], r"x has the shape \(2,\) and y \(1, 1\)"),
        ([[1.0]], [[1.0]], r"must be \(n,\) and \(n, d\)"),
        ([], np.zeros((0, 3)), "n and d at least 1"),
        ([np.nan], [[1.0]], "not finite"),
    ],
)
def test_what_is_no_set_of_samples_is_refused(x: object, y: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        converged_weights(x, y)  # type: ignore[arg-type]
