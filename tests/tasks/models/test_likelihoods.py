from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import distributions
from torch.distributions import kl_divergence

from tasks.models.likelihoods import (
    LEAST_DEVIATION,
    VIEW,
    WIDER,
    Bernoulli,
    Binary,
    Gaussian,
    Logit,
    OutlierDensity,
    divergence,
    fixed_inputs,
    log_sigmoids,
    observation_keys,
)

F64 = torch.float64


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("learning", [True, False])
@pytest.mark.parametrize("features", [64, 36, 7])
def test_bernoulli_pixels_have_torchs_density_and_gradients(features: int, learning: bool) -> None:
    logits = (4 * numbers(3, 2 * 5, features)).requires_grad_(learning)
    x = (numbers(3, 2, features, seed=1) > 0).double()
    log_p = Bernoulli(logits).log_p(x)
    expected = distributions.Bernoulli(logits=logits).log_prob(x.repeat_interleave(5, 1)).sum(-1)
    torch.testing.assert_close(expected, log_p, atol=1e-12, rtol=0)
    if learning:
        gradients = []
        for value in (expected, log_p):
            gradients.append(torch.autograd.grad(value.square().sum(), logits)[0])
        torch.testing.assert_close(*gradients, atol=1e-11, rtol=0)


def test_three_bernoulli_pixels_by_hand() -> None:
    logits = torch.tensor([[[math.log(3), 0.0, -math.log(4)]]], dtype=F64)  # 3/4, 1/2, 1/5
    x = torch.tensor([[[1.0, 0.0, 1.0]]], dtype=F64)
    assert math.log(3 / 4 * 1 / 2 * 1 / 5) == pytest.approx(float(Bernoulli(logits).log_p(x)), abs=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_unlikely_pixels_do_not_underflow(dtype: torch.dtype) -> None:
    x = torch.full((4, 64), 5.0, dtype=dtype)
    x[1] = -3  # the product of 32 of these is below the smallest float32
    x[2] = -1000  # one of these is below the smallest float64
    x[3, 0] = -math.inf
    expected = torch.nn.functional.logsigmoid(x.double()).sum(-1)
    torch.testing.assert_close(expected, log_sigmoids(x).double(), atol=1e-5, rtol=1e-6)


def test_nan_stays_nan() -> None:
    x = torch.zeros(2, 64)
    x[0, 3] = math.nan
    assert log_sigmoids(x).isnan().tolist() == [True, False]


def test_products_of_sigmoids_are_as_exact_as_logarithms() -> None:
    x = (6 * numbers(200, 1024).abs()).float()
    exact = torch.nn.functional.logsigmoid(x.double()).sum(-1)
    assert float((log_sigmoids(x) - exact).abs().max()) < 2e-5  # nats


@pytest.mark.parametrize("shared", [True, False])
def test_gaussian_pixels_have_torchs_density(shared: bool) -> None:
    mean = numbers(3, 2 * 5, 7)
    x = numbers(3, 2, 7, seed=1)
    log_variance = numbers(3, 1, 1, seed=2) if shared else numbers(3, 2 * 5, 7, seed=2)
    normal = distributions.Normal(mean, (log_variance / 2).exp())
    expected = normal.log_prob(x.repeat_interleave(5, 1)).sum(-1)
    torch.testing.assert_close(expected, Gaussian(mean, log_variance).log_p(x), atol=1e-12, rtol=0)


def test_divergence_from_prior_equals_torchs() -> None:
    mean = numbers(3, 2, 7)
    log_variance = numbers(3, 2, 7, seed=1)
    posterior = distributions.Normal(mean, (log_variance / 2).exp())
    prior = distributions.Normal(torch.zeros_like(mean), torch.ones_like(mean))
    expected = kl_divergence(posterior, prior).sum(-1)
    torch.testing.assert_close(expected, divergence(mean, log_variance), atol=1e-12, rtol=0)


def test_divergence_of_one_number_by_hand() -> None:
    # N(3, 4) from N(0, 1): (9 + 4 - 1 - log 4) / 2
    value = divergence(torch.tensor([3.0], dtype=F64), torch.tensor([math.log(4)], dtype=F64))
    assert 6 - math.log(2) == pytest.approx(float(value), abs=1e-14)


def images(*rows: list[int]) -> np.ndarray:
    return np.array(rows, np.uint8).reshape(len(rows), 1, -1, 1)


def test_binary_pixel_mixes_mean_of_images_with_coin() -> None:
    # The sums of shares are 1, 1.2 and 0 of two images: q = 2/4, 2.2/4 and 1/4, half of each and a quarter more.
    broad = OutlierDensity(Binary((1, 3, 1), padding=0), images([255, 51, 0], [0, 255, 0]))
    p = [0.5, 0.525, 0.375]
    x = torch.tensor([[[1.0, 0, 0], [0, 1, 1]]], dtype=F64)
    expected = [math.log(p[0] * (1 - p[1]) * (1 - p[2])), math.log((1 - p[0]) * p[1] * p[2])]
    torch.testing.assert_close(torch.tensor([expected], dtype=F64), broad.log_p(x))


def test_frame_is_part_of_the_density() -> None:
    broad = OutlierDensity(Binary((1, 1, 1), padding=1), images([255], [255]))
    x = torch.zeros(1, 1, 9, dtype=F64)
    x[..., 4] = 1
    assert math.log(0.625 * 0.625**8) == pytest.approx(float(broad.log_p(x)))


def test_probabilities_of_all_binary_images_sum_to_one() -> None:
    broad = OutlierDensity(
        Binary((2, 3, 1), padding=0), np.random.default_rng(0).integers(0, 256, (5, 2, 3, 1), dtype=np.uint8)
    )
    all_images = torch.tensor(list(itertools.product([0.0, 1.0], repeat=6)), dtype=F64)[None]
    assert pytest.approx(float(broad.log_p(all_images).exp().sum())) == 1


def test_real_pixel_has_mean_and_twice_the_deviation() -> None:
    preparation = Logit((1, 2, 1))
    pixels = images([0, 100], [255, 100], [30, 100])
    inputs = fixed_inputs(
        preparation, torch.from_numpy(pixels.reshape(3, 2)), observation_keys(VIEW, torch.arange(3)), F64
    )
    deviation = WIDER * float(inputs[:, 0].std(correction=0))
    assert deviation > LEAST_DEVIATION > WIDER * float(inputs[:, 1].std(correction=0))
    x = torch.tensor([[[0.3, -0.2]]], dtype=F64)
    normal = torch.distributions.Normal(inputs.mean(0), torch.tensor([deviation, LEAST_DEVIATION], dtype=F64))
    torch.testing.assert_close(normal.log_prob(x).sum(-1), OutlierDensity(preparation, pixels).log_p(x))


def test_density_is_separate_for_models_and_rows() -> None:
    for preparation in (Binary((4, 4, 1)), Logit((4, 4, 3))):
        pixels = np.random.default_rng(0).integers(0, 256, (9, *preparation.shape), dtype=np.uint8)
        x = torch.rand(3, 5, math.prod(preparation.seen_shape)).round()
        broad = OutlierDensity(preparation, pixels)
        separate = torch.stack([torch.stack([broad.log_p(row[None, None])[0, 0] for row in model]) for model in x])
        torch.testing.assert_close(separate, broad.log_p(x))
