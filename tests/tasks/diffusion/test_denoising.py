"""What a diffusion model learns: noised images, the loss, the moving averages, and lower precision."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tasks.diffusion.denoising import Denoising, add_noise, averages
from tasks.diffusion.diffusion_config import Diffusion, UNet
from tasks.diffusion.noise_schedule import signal
from tasks.models.counter_rng import CounterRng, member_key
from tasks.models.layers import Mode
from tasks.training.objective import Batch

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
    assert (1, 300) == losses.shape
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
    model = learning(average=0.9)
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
