"""Diffusion models: noise schedules, losses, and sampling if the exact noise is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import Tensor

from tasks.diffusion.denoising import (
    Denoising,
    add_noise,
    as_bytes,
    averages,
    denoise,
    initial_noise,
    sample_images,
    signal,
    variances,
)
from tasks.diffusion.diffusion_config import Diffusion, ScheduleName, UNet
from tasks.models.counter_rng import CounterRng, member_key
from tasks.models.layers import Mode
from tasks.training.objective import Batch


def test_linear_schedule_is_published_one() -> None:
    values = variances("linear", 1000)
    assert len(values) == 1000
    assert values[0] == 1e-4
    assert values[-1] == 0.02
    np.testing.assert_allclose(np.diff(values), (0.02 - 1e-4) / 999)


def test_cosine_schedule_matches_formula() -> None:
    # alpha_bar_t = f(t) / f(0), before the last step's variance is cut down
    t = np.arange(1, 1000)
    f = np.cos((np.append(0, t) / 1000 + 0.008) / 1.008 * np.pi / 2) ** 2
    np.testing.assert_allclose(signal("cosine", 1000)[:-1], f[1:] / f[0], rtol=1e-9)
    assert variances("cosine", 1000)[-1] == 0.999


@pytest.mark.parametrize("schedule", get_args(ScheduleName))
@pytest.mark.parametrize("steps", [1000, 100])
def test_signal_falls_from_image_to_noise(schedule: ScheduleName, steps: int) -> None:
    signal_shares = signal(schedule, steps)
    assert np.all(np.diff(signal_shares) < 0)
    assert signal_shares[0] > 1 - 2 / steps
    assert 0 < signal_shares[-1] < 1e-4


def test_signal_of_two_steps_by_hand() -> None:
    # variances 1e-4 * 500 and 0.02 * 500, the latter cut to 0.999
    np.testing.assert_allclose(signal("linear", 2), [0.95, 0.95 * 0.001])


TINY = Diffusion(8, UNet((4, 8), 1, (4,), 2), epochs=1, batch=4)
VECTORS = np.array([[0, 1], [2, 3], [4, 5]], np.float32)


def learning(config: Diffusion = TINY, **settings: Any) -> Denoising:
    return Denoising(replace(config, **settings), VECTORS, 10)


def start(model: Denoising, seed: int = 0) -> dict[str, Tensor]:
    result = {}
    for name, values in model.initial(seed).items():
        result[name] = torch.from_numpy(values)[None]
    return result


def batch(rows: int, training: bool = True, seed: int = 0, value: int = 0) -> Batch:
    pixels = torch.full((1, rows, 8 * 8 * 3), value, dtype=torch.uint8)
    draws = CounterRng(torch.tensor([member_key(seed)]))
    return Batch(pixels, torch.arange(rows)[None] % len(VECTORS), Mode(training=training, draws=draws))


def test_noised_image_has_mean_and_variance_of_formula() -> None:
    signal_shares = torch.tensor([[0.9, 0.25]])
    clean = torch.tensor([0.5, -1.0])[:, None, None, None].expand(2, 3, 200, 200)
    noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
    noised = add_noise(clean, noise, signal_shares)
    # 120,000 values: the mean's error is 0.003 at most deviations of 1, the variance's about 0.004
    np.testing.assert_allclose(noised.mean((1, 2, 3)), [0.9**0.5 * 0.5, -0.5], atol=0.01)
    np.testing.assert_allclose(noised.var((1, 2, 3)), [0.1, 0.75], atol=0.012)


def test_network_receives_image_noised_by_drawn_times() -> None:
    class RecordingDenoising(Denoising):
        def noise(self, tensors: Any, noised: Tensor, times: Tensor, vectors: Tensor, mode: Mode) -> Tensor:
            self.inputs = noised, times, vectors
            return torch.zeros_like(noised)

    model = RecordingDenoising(TINY, VECTORS, 10)
    losses = model.losses(start(model), batch(300, value=255))
    noised, times, vectors = model.inputs
    assert losses.shape == (1, 300)
    assert 0 <= int(times.min()) < 50
    assert 950 < int(times.max()) <= 999
    np.testing.assert_array_equal(vectors[0], VECTORS[np.arange(300) % 3])
    # White is 1: without the mean, noise of variance 1 - alpha_bar remains, and the loss is its mean square.
    signal_shares = signal("linear", 1000)[times[0].numpy()][:, None, None, None]
    noise = (noised.numpy() - np.sqrt(signal_shares)) / np.sqrt(1 - signal_shares)
    np.testing.assert_allclose([noise.mean(), noise.var()], [0, 1], atol=0.02)
    np.testing.assert_allclose(losses[0], (noise**2).mean((1, 2, 3)), rtol=1e-3)


def test_draws_depend_on_the_seed() -> None:
    model = learning()
    tensors = start(model)
    first = model.losses(tensors, batch(3, seed=0))
    repeated = model.losses(tensors, batch(3, seed=0))
    other_seed = model.losses(tensors, batch(3, seed=1))
    assert first.tolist() == repeated.tolist() != other_seed.tolist()


def test_moving_average_warms_up_to_its_momentum() -> None:
    model = learning(ema_decay=0.9)
    tensors = start(model)
    for name in model.learned:
        tensors[f"average.{name}"] = torch.zeros_like(tensors[name])
        tensors[name] = torch.ones_like(tensors[name])
    model.after_step(tensors, torch.tensor([0.1], dtype=torch.float64))  # the first of ten steps: 1 - 2 / 11
    assert {np.float32(average.min()) for average in averages(tensors).values()} == {np.float32(9 / 11)}
    for name in model.learned:
        tensors[f"average.{name}"].zero_()
    model.after_step(tensors, torch.tensor([50.0], dtype=torch.float64))  # 500 steps: 1 - 0.9
    maxima = torch.stack([average.max() for average in averages(tensors).values()])
    torch.testing.assert_close(maxima, torch.full_like(maxima, 0.1))


def test_evaluation_uses_averaged_weights() -> None:
    model = learning()
    tensors = start(model)
    before, _ = model.evaluate_rows(tensors, batch(3, training=False))
    tensors["last.bias"] = tensors["last.bias"] + 100
    assert before.tolist() == model.evaluate_rows(tensors, batch(3, training=False))[0].tolist()
    tensors["average.last.bias"] = tensors["average.last.bias"] + 100
    assert model.evaluate_rows(tensors, batch(3, training=False))[0].min() > 5000


def test_bfloat16_loss_approximates_float32_with_float32_gradients() -> None:
    results = {}
    for precision in ("float32", "bfloat16"):
        model = learning(precision=precision)
        torch.manual_seed(0)
        tensors = {}
        for name, weights in start(model).items():
            tensors[name] = (
                (weights + 0.1 * torch.randn_like(weights)).abs() if name.endswith("variance") else weights + 0.05
            )
        leaves = {}
        for name, weights in model.learned.items():
            if weights.learned:
                leaves[name] = tensors[name].requires_grad_()
        loss = model.losses(tensors | leaves, batch(4, value=200)).mean()
        gradients = torch.autograd.grad(loss, list(leaves.values()))
        assert {gradient.dtype for gradient in gradients} == {torch.float32}
        results[precision] = loss.item(), torch.cat([gradient.flatten() for gradient in gradients])
    (exact, slopes), (low, low_slopes) = results["float32"], results["bfloat16"]
    assert exact != low
    assert low == pytest.approx(exact, rel=0.05)
    assert torch.cosine_similarity(slopes, low_slopes, dim=0) > 0.98


KEPT = signal("linear", 1000)


def noise_of_gaussian(x: Tensor, time: int, mean: float, deviation: float) -> Tensor:
    """The expectation of the noise in x at this time, where images are N(mean, deviation^2)."""
    signal_share = KEPT[time]
    return (1 - signal_share) ** 0.5 * (x - signal_share**0.5 * mean) / (signal_share * deviation**2 + 1 - signal_share)


@pytest.mark.parametrize("steps", [1, 2, 7, 1000])
def test_exact_noise_of_one_image_recovers_it(steps: int) -> None:
    image = torch.linspace(-1, 1, 6, dtype=torch.float64)

    def predict(x: Tensor, time: int) -> Tensor:
        return (x - KEPT[time] ** 0.5 * image) / (1 - KEPT[time]) ** 0.5

    drawn_image = denoise(predict, torch.randn(6, dtype=torch.float64), KEPT, steps)
    torch.testing.assert_close(drawn_image, image)


def test_exact_noise_of_gaussian_recovers_it() -> None:
    mean = 0.3
    deviation = 0.5
    noise = torch.linspace(-3, 3, 7, dtype=torch.float64)
    samples = denoise(lambda x, time: noise_of_gaussian(x, time, mean, deviation), noise, KEPT, 1000)
    # The flow is monotone, so it maps each quantile to the same quantile. The discretisation error is about one step.
    np.testing.assert_allclose(samples, mean + deviation * noise, atol=0.02)


def test_two_steps_by_hand() -> None:
    signal_shares = np.array([0.81, 0.25])
    # The network predicts 0.6 x as the noise: at time 1 from 2, x_0 = (2 - sqrt(.75) 1.2) / .5, then at time 0.
    drawn_value = denoise(lambda x, _: 0.6 * x, torch.tensor([2.0], dtype=torch.float64), signal_shares, 2)
    clean = (2 - 0.75**0.5 * 1.2) / 0.5
    between = 0.9 * clean + 0.19**0.5 * 1.2
    np.testing.assert_allclose(drawn_value, [(between - 0.19**0.5 * 0.6 * between) / 0.9])


def test_steps_are_evenly_spaced() -> None:
    times: list[int] = []

    def predict(x: Tensor, time: int) -> Tensor:
        times.append(time)
        return x

    denoise(predict, torch.zeros(1), KEPT, 5)
    assert times == [999, 749, 500, 250, 0]


def test_a_bounded_image_stays_between_black_and_white() -> None:
    drawn_image = denoise(lambda x, _: -x, torch.linspace(-4, 4, 9), KEPT, 20, bounded=True)
    assert drawn_image.abs().max() <= 1
    assert denoise(lambda x, _: -x, torch.linspace(-4, 4, 9), KEPT, 20).abs().max() > 1


@pytest.mark.parametrize("steps", [0, 1001])
def test_invalid_number_of_steps_is_refused(steps: int) -> None:
    with pytest.raises(ValueError, match=f"steps is {steps}; it must be from 1 to 1000, the steps of the diffusion"):
        denoise(lambda x, _: x, torch.zeros(1), KEPT, steps)


def test_images_round_to_nearest_byte() -> None:
    x = torch.tensor([-1.5, -1, 0, 0.5, 1, 2])[:, None, None, None].expand(6, 3, 1, 1)
    assert as_bytes(x)[:, 0, 0, 0].tolist() == [0, 0, 128, 191, 255, 255]


def test_image_does_not_depend_on_its_batch() -> None:
    vectors = np.array([[0, 1], [1, 0], [5, 5]], np.float32)
    model = Denoising(TINY, vectors, 1)
    stream = np.random.default_rng(0)
    weights = {}
    for name, values in model.initial(3).items():
        if name in model.learned:
            weights[name] = values if values.any() else stream.normal(0, 0.05, values.shape).astype(np.float32)
    weights |= {name: np.zeros_like(values) for name, values in weights.items() if name.endswith("mean")}
    images = sample_images(TINY, weights, vectors, ["a", "b", "c"], 4, 7)
    assert images.shape == (3, 8, 8, 3)
    np.testing.assert_array_equal(images, sample_images(TINY, weights, vectors, ["a", "b", "c"], 4, 7))
    np.testing.assert_allclose(images[1:2].astype(int), sample_images(TINY, weights, vectors[1:2], ["b"], 4, 7), atol=1)
    assert np.any(images != sample_images(TINY, weights, vectors, ["a", "b", "c"], 4, 8))
    np.testing.assert_array_equal(initial_noise(0, "a", 8), initial_noise(0, "a", 8))
    assert np.any(initial_noise(0, "a", 8) != initial_noise(0, "b", 8))


def test_weights_of_another_network_are_refused() -> None:
    vectors = np.zeros((1, 2), np.float32)
    model = Denoising(TINY, vectors, 1)
    weights = {name: model.initial(0)[name] for name in model.learned}
    with pytest.raises(ValueError, match=r"vector.weight is \(16, 2\); its network and the vectors, which have 5 numb"):
        sample_images(TINY, weights, np.zeros((1, 5), np.float32), ["a"], 1, 0)
    del weights["last.bias"]
    with pytest.raises(ValueError, match=r"last.bias is absent; .* need \(3,\)"):
        sample_images(TINY, weights, vectors, ["a"], 1, 0)
