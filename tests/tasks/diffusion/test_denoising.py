"""Diffusion models: the noise of their steps, what they learn, and their drawings where the exact noise is known."""

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


def test_the_linear_schedule_is_the_published_one() -> None:
    values = variances("linear", 1000)
    assert (len(values), values[0], values[-1]) == (1000, 1e-4, 0.02)
    np.testing.assert_allclose(np.diff(values), (0.02 - 1e-4) / 999)


def test_the_cosine_schedule_leaves_the_signal_of_its_formula() -> None:
    # alpha_bar_t = f(t) / f(0), before the last step's variance is cut down
    t = np.arange(1, 1000)
    f = np.cos((np.append(0, t) / 1000 + 0.008) / 1.008 * np.pi / 2) ** 2
    np.testing.assert_allclose(signal("cosine", 1000)[:-1], f[1:] / f[0], rtol=1e-9)
    assert variances("cosine", 1000)[-1] == 0.999


@pytest.mark.parametrize("schedule", get_args(ScheduleName))
@pytest.mark.parametrize("steps", [1000, 100])
def test_a_diffusion_begins_at_the_image_and_ends_in_noise_however_many_steps_it_has(
    schedule: ScheduleName, steps: int
) -> None:
    kept = signal(schedule, steps)
    assert np.all(np.diff(kept) < 0)
    assert kept[0] > 1 - 2 / steps
    assert 0 < kept[-1] < 1e-4


def test_the_signal_of_two_steps_by_hand() -> None:
    # variances 1e-4 * 500 and 0.02 * 500, the latter cut to 0.999
    np.testing.assert_allclose(signal("linear", 2), [0.95, 0.95 * 0.001])


TINY = Diffusion(8, UNet((4, 8), 1, (4,), 2), epochs=1, batch=4)
VECTORS = np.array([[0, 1], [2, 3], [4, 5]], np.float32)


def learning(config: Diffusion = TINY, **settings: Any) -> Denoising:
    return Denoising(replace(config, **settings), VECTORS, 10)


def start(model: Denoising, seed: int = 0) -> dict[str, Tensor]:
    return {name: torch.from_numpy(values)[None] for name, values in model.initial(seed).items()}


def batch(rows: int, training: bool = True, seed: int = 0, value: int = 0) -> Batch:
    pixels = torch.full((1, rows, 8 * 8 * 3), value, dtype=torch.uint8)
    draws = CounterRng(torch.tensor([member_key(seed)]))
    return Batch(pixels, torch.arange(rows)[None] % len(VECTORS), Mode(training=training, draws=draws))


def test_a_noised_image_has_the_mean_and_the_variance_of_the_formula() -> None:
    kept = torch.tensor([[0.9, 0.25]])
    clean = torch.tensor([0.5, -1.0])[:, None, None, None].expand(2, 3, 200, 200)
    noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
    noised = add_noise(clean, noise, kept)
    # 120,000 values: the mean's error is 0.003 at most deviations of 1, the variance's about 0.004
    np.testing.assert_allclose(noised.mean((1, 2, 3)), [0.9**0.5 * 0.5, -0.5], atol=0.01)
    np.testing.assert_allclose(noised.var((1, 2, 3)), [0.1, 0.75], atol=0.012)


def test_what_the_network_is_shown_is_the_image_noised_by_the_times_that_are_drawn() -> None:
    class Shown(Denoising):
        def noise(self, tensors: Any, noised: Tensor, times: Tensor, vectors: Tensor, mode: Mode) -> Tensor:
            self.seen = noised, times, vectors
            return torch.zeros_like(noised)

    model = Shown(TINY, VECTORS, 10)
    losses = model.losses(start(model), batch(300, value=255))
    noised, times, vectors = model.seen
    assert losses.shape == (1, 300)
    assert 0 <= int(times.min()) < 50
    assert 950 < int(times.max()) <= 999
    np.testing.assert_array_equal(vectors[0], VECTORS[np.arange(300) % 3])
    # White is 1: what is left after taking the mean away is noise of variance 1 - alpha_bar, the loss its mean square.
    kept = signal("linear", 1000)[times[0].numpy()][:, None, None, None]
    noise = (noised.numpy() - np.sqrt(kept)) / np.sqrt(1 - kept)
    np.testing.assert_allclose([noise.mean(), noise.var()], [0, 1], atol=0.02)
    np.testing.assert_allclose(losses[0], (noise**2).mean((1, 2, 3)), rtol=1e-3)


def test_draws_are_those_of_the_seed_and_of_the_step() -> None:
    model = learning()
    tensors = start(model)
    first, again, other = (model.losses(tensors, batch(3, seed=seed)) for seed in (0, 0, 1))
    assert first.tolist() == again.tolist() != other.tolist()


def test_the_moving_average_takes_early_steps_wholly_and_late_ones_by_its_momentum() -> None:
    model = learning(ema_decay=0.9)
    tensors = start(model)
    for name in model.learned:
        tensors[f"average.{name}"] = torch.zeros_like(tensors[name])
        tensors[name] = torch.ones_like(tensors[name])
    model.after_step(tensors, torch.tensor([0.1], dtype=torch.float64))  # the first of ten steps: 1 - 2 / 11
    assert {np.float32(9 / 11)} == {np.float32(each.min()) for each in averages(tensors).values()}
    for name in model.learned:
        tensors[f"average.{name}"].zero_()
    model.after_step(tensors, torch.tensor([50.0], dtype=torch.float64))  # 500 steps: 1 - 0.9
    found = torch.stack([each.max() for each in averages(tensors).values()])
    torch.testing.assert_close(found, torch.full_like(found, 0.1))


def test_the_averages_are_what_is_evaluated() -> None:
    model = learning()
    tensors = start(model)
    before, _ = model.evaluate_rows(tensors, batch(3, training=False))
    tensors["last.bias"] = tensors["last.bias"] + 100
    assert before.tolist() == model.evaluate_rows(tensors, batch(3, training=False))[0].tolist()
    tensors["average.last.bias"] = tensors["average.last.bias"] + 100
    assert model.evaluate_rows(tensors, batch(3, training=False))[0].min() > 5000


def test_in_bfloat16_the_loss_is_nearly_that_in_float32_and_gradients_are_float32() -> None:
    results = {}
    for precision in ("float32", "bfloat16"):
        model = learning(precision=precision)
        torch.manual_seed(0)
        tensors = {
            name: (each + 0.1 * torch.randn_like(each)).abs() if name.endswith("variance") else each + 0.05
            for name, each in start(model).items()
        }
        leaves = {name: tensors[name].requires_grad_() for name, each in model.learned.items() if each.learned}
        loss = model.losses(tensors | leaves, batch(4, value=200)).mean()
        gradients = torch.autograd.grad(loss, list(leaves.values()))
        assert {torch.float32} == {gradient.dtype for gradient in gradients}
        results[precision] = loss.item(), torch.cat([gradient.flatten() for gradient in gradients])
    (exact, slopes), (low, low_slopes) = results["float32"], results["bfloat16"]
    assert exact != low
    assert low == pytest.approx(exact, rel=0.05)
    assert torch.cosine_similarity(slopes, low_slopes, dim=0) > 0.98


KEPT = signal("linear", 1000)


def noise_of_gaussian(x: Tensor, time: int, mean: float, deviation: float) -> Tensor:
    """The expectation of the noise in x at this time, where images are N(mean, deviation^2)."""
    kept = KEPT[time]
    return (1 - kept) ** 0.5 * (x - kept**0.5 * mean) / (kept * deviation**2 + 1 - kept)


@pytest.mark.parametrize("steps", [1, 2, 7, 1000])
def test_the_noise_of_a_single_image_draws_that_image_in_any_number_of_steps(steps: int) -> None:
    image = torch.linspace(-1, 1, 6, dtype=torch.float64)

    def predict(x: Tensor, time: int) -> Tensor:
        return (x - KEPT[time] ** 0.5 * image) / (1 - KEPT[time]) ** 0.5

    found = denoise(predict, torch.randn(6, dtype=torch.float64), KEPT, steps)
    torch.testing.assert_close(found, image)


def test_the_noise_of_a_gaussian_draws_that_gaussian() -> None:
    mean, deviation = 0.3, 0.5
    begun = torch.linspace(-3, 3, 7, dtype=torch.float64)
    found = denoise(lambda x, time: noise_of_gaussian(x, time, mean, deviation), begun, KEPT, 1000)
    # The same quantile of both: the flow is monotone. What the steps leave out is of the order of one of them.
    np.testing.assert_allclose(found, mean + deviation * begun, atol=0.02)


def test_two_steps_by_hand() -> None:
    kept = np.array([0.81, 0.25])
    # The noise is said to be 0.6 x: at time 1 from 2, x_0 = (2 - sqrt(.75) 1.2) / .5, then at time 0.
    found = denoise(lambda x, _: 0.6 * x, torch.tensor([2.0], dtype=torch.float64), kept, 2)
    clean = (2 - 0.75**0.5 * 1.2) / 0.5
    between = 0.9 * clean + 0.19**0.5 * 1.2
    np.testing.assert_allclose(found, [(between - 0.19**0.5 * 0.6 * between) / 0.9])


def test_steps_are_evenly_apart_from_the_last_to_the_first() -> None:
    seen: list[int] = []

    def predict(x: Tensor, time: int) -> Tensor:
        seen.append(time)
        return x

    denoise(predict, torch.zeros(1), KEPT, 5)
    assert seen == [999, 749, 500, 250, 0]


def test_a_bounded_image_stays_between_black_and_white() -> None:
    found = denoise(lambda x, _: -x, torch.linspace(-4, 4, 9), KEPT, 20, bounded=True)
    assert found.abs().max() <= 1
    assert denoise(lambda x, _: -x, torch.linspace(-4, 4, 9), KEPT, 20).abs().max() > 1


@pytest.mark.parametrize("steps", [0, 1001])
def test_numbers_of_steps_that_cannot_be_are_refused(steps: int) -> None:
    with pytest.raises(ValueError, match=f"steps is {steps}; it must be from 1 to 1000, the steps of the diffusion"):
        denoise(lambda x, _: x, torch.zeros(1), KEPT, steps)


def test_images_become_bytes_to_the_nearest() -> None:
    x = torch.tensor([-1.5, -1, 0, 0.5, 1, 2])[:, None, None, None].expand(6, 3, 1, 1)
    assert as_bytes(x)[:, 0, 0, 0].tolist() == [0, 0, 128, 191, 255, 255]


def test_an_image_begins_alike_whatever_is_drawn_beside_it() -> None:
    vectors = np.array([[0, 1], [1, 0], [5, 5]], np.float32)
    model = Denoising(TINY, vectors, 1)
    stream = np.random.default_rng(0)
    weights = {
        name: values if values.any() else stream.normal(0, 0.05, values.shape).astype(np.float32)
        for name, values in model.initial(3).items()
        if name in model.learned
    }
    weights |= {name: np.zeros_like(values) for name, values in weights.items() if name.endswith("mean")}
    whole = sample_images(TINY, weights, vectors, ["a", "b", "c"], 4, 7)
    assert whole.shape == (3, 8, 8, 3)
    np.testing.assert_array_equal(whole, sample_images(TINY, weights, vectors, ["a", "b", "c"], 4, 7))
    np.testing.assert_allclose(whole[1:2].astype(int), sample_images(TINY, weights, vectors[1:2], ["b"], 4, 7), atol=1)
    assert np.any(whole != sample_images(TINY, weights, vectors, ["a", "b", "c"], 4, 8))
    np.testing.assert_array_equal(initial_noise(0, "a", 8), initial_noise(0, "a", 8))
    assert np.any(initial_noise(0, "a", 8) != initial_noise(0, "b", 8))


def test_weights_of_another_network_are_refused_in_one_line() -> None:
    vectors = np.zeros((1, 2), np.float32)
    model = Denoising(TINY, vectors, 1)
    weights = {name: model.initial(0)[name] for name in model.learned}
    with pytest.raises(ValueError, match=r"vector.weight is \(16, 2\); its network and the vectors, which have 5 numb"):
        sample_images(TINY, weights, np.zeros((1, 5), np.float32), ["a"], 1, 0)
    del weights["last.bias"]
    with pytest.raises(ValueError, match=r"last.bias is absent; .* need \(3,\)"):
        sample_images(TINY, weights, vectors, ["a"], 1, 0)
