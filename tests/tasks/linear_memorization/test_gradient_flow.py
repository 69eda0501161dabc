"""The flow against gradient descent in small steps, hand calculations and the law of large random matrices."""

import numpy as np
import pytest
import torch

from tasks.contract.job import marks
from tasks.linear_memorization import gaussian_samples
from tasks.linear_memorization.gaussian_samples import normal_samples
from tasks.linear_memorization.gradient_flow import CURVES, Flow, curve_times, curves, scores, spectrum, weights
from tasks.worker import compute_context
from tasks.worker.compute_context import ComputeContext
from tests.tasks.linear_memorization.closed_form import converged_weights

SIZES = [(1, 1), (5, 3), (4, 4), (5, 5), (3, 9), (9, 2)]


def drawn(n: int, d: int, trainings: int = 2) -> torch.Tensor:
    return torch.from_numpy(np.stack([normal_samples(7, number, n, d) for number in range(trainings)]))


def by_steps(z: np.ndarray, time: float, step: float = 1e-4) -> np.ndarray:
    """Run plain gradient descent, Z (n, d + 1), to w(time) (d + 1,)."""
    w = np.zeros(z.shape[1])
    for _ in range(round(time / step)):
        w -= step / len(z) * z.T @ (z @ w - z[:, 0])
    return w


@pytest.mark.parametrize(("n", "d"), SIZES)
def test_flow_is_limit_of_gradient_descent(n: int, d: int) -> None:
    z = drawn(n, d)
    times = np.array([0.1, 1.0])
    flow, (learned, memorised) = weights(z, times).numpy(), [curve.numpy() for curve in scores(spectrum(z), times)]
    for number, samples in enumerate(z.numpy()):
        x = samples[:, 0]
        query = np.column_stack([np.zeros(n), samples[:, 1:]])
        for index, time in enumerate(times):
            w = by_steps(samples, time)
            np.testing.assert_allclose(flow[number, index], w, atol=1e-3)
            # The scores belong to the flow's weights, up to rounding.
            w = flow[number, index]
            assert 1 - np.mean((samples @ w - x) ** 2) / 2 == pytest.approx(learned[number, index], abs=1e-12)
            assert 1 - np.mean((query @ w - x) ** 2) / 2 == pytest.approx(memorised[number, index], abs=1e-12)


@pytest.mark.parametrize(("n", "d"), SIZES)
def test_flow_ends_in_the_closed_form(n: int, d: int) -> None:
    z = drawn(n, d)
    final_weights = weights(z, np.array([1e9]))[:, 0].numpy()
    for samples, w in zip(z.numpy(), final_weights, strict=True):
        np.testing.assert_allclose(w, converged_weights(samples), atol=1e-9)


def test_one_sample_with_one_feature_by_hand() -> None:
    # z = (2, 3), lambda = 13: w = 2 (2, 3) (1 - exp(-13 t)) / 13.
    times = np.array([0.0, 0.05, 1.0])
    done = 1 - np.exp(-13 * times)
    learned, memorised = scores(spectrum(torch.tensor([[[2.0, 3.0]]], dtype=torch.float64)), times)
    np.testing.assert_allclose(learned[0], 1 - (2 * (1 - done)) ** 2 / 2, rtol=1e-14)
    np.testing.assert_allclose(memorised[0], 1 - (18 / 13 * done - 2) ** 2 / 2, rtol=1e-14)


def test_curves_start_at_score_of_answer_0() -> None:
    z = drawn(6, 10)
    for curve in scores(spectrum(z), np.array([0.0, 1e-300])):
        expected = 1 - (z[:, :, 0] ** 2).mean(1) / 2
        np.testing.assert_allclose(curve, torch.stack([expected, expected], 1), rtol=1e-14)


def test_zero_samples_do_not_contribute() -> None:
    z = drawn(3, 5)
    z[0, :, 0], z[1, :, 1:] = 0, 0
    learned, memorised = scores(spectrum(z), np.array([1.0, 1e6]))
    assert [1.0, 1.0] == learned[0].tolist() == memorised[0].tolist()  # x is 0 and answered by 0
    assert 1 - float((z[1, :, 0] ** 2).mean()) / 2 == pytest.approx(float(memorised[1, 1]), abs=1e-12)


def marchenko_pastur(times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return both curves for large d = n, where lambda = 4 cos^2 a has the density (4 / pi) sin^2 a on (0, pi / 2)."""
    a = (np.arange(20_000) + 0.5) / 20_000 * np.pi / 2
    rates = 4 * np.cos(a) ** 2
    part = np.sin(a) ** 2 / (np.sin(a) ** 2).sum()
    decay = np.exp(-rates * times[:, None])
    squared = decay**2 @ (rates * part)
    crossed = decay @ (rates * part)
    first = 1 - decay @ part
    return 1 - squared / 2, 1 - (squared + 2 * first * crossed + first**2) / 2


def test_large_samples_follow_the_law_of_random_matrices() -> None:
    config = Flow(150, 150, trainings=60, first=-1, last=2, per_decade=4)
    table = curves(config, []).to_pydict()
    for name, expected in zip(("learning", "memorization"), marchenko_pastur(curve_times(config)), strict=True):
        np.testing.assert_allclose(table[name], expected, atol=0.015)
    # Memorization rises to .744 at t = 1.4 and falls back to its initial value.
    assert 1 < table["time"][int(np.argmax(table["memorization"]))] < 2


def test_few_features_forget_and_many_remember() -> None:
    few = curves(Flow(60, 20, trainings=20), []).to_pylist()
    many = curves(Flow(60, 600, trainings=20), []).to_pylist()
    end = few[-1]
    assert end["learning"] == pytest.approx(1, abs=1e-9)
    assert few[0]["memorization"] == pytest.approx(end["memorization"], abs=0.02)
    rising = [row["memorization"] for row in many]
    assert rising == sorted(rising)
    assert many[-1]["memorization"] > 0.98
    for row in many:  # both rise together
        assert row["learning"] == pytest.approx(row["memorization"], abs=0.05)


def test_table_has_means_with_intervals_over_trainings() -> None:
    config = Flow(5, 8, seed=3, trainings=4, first=-1, last=1, per_decade=2)
    table = curves(config, [])
    assert table.schema == CURVES
    assert table["time"].to_pylist() == [0.1, pytest.approx(10**-0.5), 1.0, pytest.approx(10**0.5), 10.0]
    z = torch.from_numpy(np.stack([normal_samples(3, number, 5, 8) for number in range(4)]))
    _, memorised = scores(spectrum(z), curve_times(config))
    row = table.to_pylist()[2]
    assert float(memorised[:, 2].mean()) == pytest.approx(row["memorization"])
    half = 3.182446 * float(memorised[:, 2].std()) / 2  # t(3) at 97.5 %
    assert (row["memorization_high"] - row["memorization_low"]) / 2 == pytest.approx(half, rel=1e-6)
    assert row["samples"] == 5
    assert row["features"] == 8
    assert row["n"] == 4
    alone = curves(Flow(5, 8, trainings=1), []).to_pylist()[0]
    assert alone["learning_low"] is None
    assert alone["memorization_high"] is None


def test_training_is_independent_of_its_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    config = Flow(6, 9, trainings=7)
    together = curves(config, [])
    monkeypatch.setattr(gaussian_samples, "fitting", lambda *_: 2)
    assert together.equals(curves(config, []))
    few = Flow(6, 9, trainings=1)
    first = scores(spectrum(torch.from_numpy(normal_samples(0, 0, 6, 9))[None]), curve_times(few))[0][0]
    np.testing.assert_allclose(curves(few, [])["learning"], first, rtol=1e-12)


def test_stack_fits_share_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.worker.hardware.available_memory", lambda: 8 * 8 * 1000)
    assert gaussian_samples.fitting(100, on_gpu=False) == 10
    assert gaussian_samples.fitting(10_000, on_gpu=False) == 1
    with compute_context.use_context(ComputeContext(sharers=2)):
        assert gaussian_samples.fitting(100, on_gpu=False) == 5


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"samples": 0}, "samples is 0; it must be at least 1"),
        ({"trainings": 0}, "trainings is 0"),
        ({"first": 4.0}, "first is 4.0 and last 4.0"),
        ({"per_decade": 0}, "per_decade is 0"),
    ],
)
def test_invalid_configs_are_refused(fields: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Flow(**fields)  # type: ignore[arg-type]


def test_task_has_its_name() -> None:
    assert marks(curves).name == "linear_memorization.curves"
    assert marks(curves).version == 1
