"""Importance sampling of log p, with codes fitted separately to each observation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Distribution

from tasks.models.counter_rng import CounterRng, step_keys
from tasks.models.importance import Chunk, Sampling, code_keys, estimate_log_density, mean_of
from tasks.models.layers import ZERO, Layers, Weight
from tasks.models.likelihoods import Binary, Gaussian, Logit, fixed_inputs, observation_keys
from tasks.models.tf32 import round_to_tf32
from tasks.models.vae import LATENT, Convolutional, Dense, Vae, celeba, cifar10, outline_weights
from tasks.numerics.precision import DecoderPrecision
from tests.tasks.models.plain import Plain, stack

MODELS = 3
N = 5
F64 = torch.float64
SMALL = Dense(Binary((6, 6, 1), padding=1), 3, (7, 5))
MEMBERS = torch.tensor([11, 12, 13])
ROWS = torch.tensor([40, 7, 3, 1000, 8])
NARROW = {"celeba": replace(celeba(), filters=2), "cifar10": replace(cifar10(), filters=2)}
Autoencoder = Dense | Convolutional


def log_p(*arguments: Any) -> Tensor:
    return estimate_log_density(*arguments).log_p


def pixels(vae: Vae, n: int = N) -> Tensor:
    stream = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (n, math.prod(vae.preparation.shape)), dtype=torch.uint8, generator=stream)


def estimate_by_definition(vae: Autoencoder, tensors: dict[str, Tensor], sampling: Sampling) -> Tensor:
    """Estimates by torch.distributions, one model and observation after another."""
    estimates = torch.empty(MODELS, N, dtype=F64)
    for m in range(MODELS):
        plain = Plain(vae).eval()
        plain.start({name: tensor[m] for name, tensor in tensors.items()})
        keys = observation_keys(sampling.seed, ROWS)
        x = fixed_inputs(vae.preparation, pixels(vae), step_keys(MEMBERS[m], keys) if sampling.afresh else keys, F64)
        for i in range(N):
            mean, log_variance = plain.encoder(x[i : i + 1])[0].chunk(2)
            key = code_keys(MEMBERS[m : m + 1], ROWS[i : i + 1])[0]
            z = mean + (log_variance / 2).exp() * CounterRng(key).normal(LATENT, (sampling.samples, vae.latent), F64)[0]
            posterior = torch.distributions.Normal(mean, (log_variance / 2).exp())
            prior = torch.distributions.Normal(torch.zeros_like(mean), torch.ones_like(mean))
            likelihood = plain.likelihood(x[i].expand(sampling.samples, -1), z)
            weights = likelihood + prior.log_prob(z).sum(1) - posterior.log_prob(z).sum(1)
            estimates[m, i] = torch.logsumexp(weights, 0) - math.log(sampling.samples)
        estimates[m] += vae.preparation.to_pixels(x)
    return estimates.detach()


@pytest.mark.parametrize("afresh", [True, False])
@pytest.mark.parametrize("vae", [SMALL, NARROW["celeba"], NARROW["cifar10"]], ids=["small", *NARROW])
def test_estimate_equals_plain_definition(vae: Autoencoder, afresh: bool) -> None:
    tensors = stack(vae, MODELS)
    sampling = Sampling(9, seed=4, afresh=afresh)
    expected = estimate_by_definition(vae, tensors, sampling)
    estimate = log_p(vae, tensors, pixels(vae), ROWS, MEMBERS, sampling)
    assert estimate.shape == (MODELS, N)
    torch.testing.assert_close(expected, estimate, atol=1e-10, rtol=1e-14)
    distinct = [len(view.unique()) for view in (observation_keys(4, ROWS), estimate)]
    assert distinct == [N, MODELS * N]


def test_float32_error_is_below_a_ten_thousandth_nat() -> None:
    tensors = stack(SMALL, MODELS)
    sampling = Sampling(64)
    single = {name: tensor.float() for name, tensor in tensors.items()}
    exact = log_p(SMALL, tensors, pixels(SMALL), ROWS, MEMBERS, sampling)
    single_estimate = log_p(SMALL, single, pixels(SMALL), ROWS, MEMBERS, sampling)
    assert float((exact - single_estimate).abs().max()) < 1e-4


LOWER: list[tuple[Autoencoder, DecoderPrecision, float]] = [
    (SMALL, "tf32", 0.003),
    (SMALL, "bfloat16", 0.02),
    (NARROW["cifar10"], "tf32", 0.003),
]


@pytest.mark.parametrize(("vae", "precision", "error"), LOWER, ids=["small-tf32", "small-bfloat16", "cifar10-tf32"])
def test_lower_precision_approximates_float32(vae: Autoencoder, precision: DecoderPrecision, error: float) -> None:
    exact_tensors = stack(vae, MODELS)
    tensors = {name: tensor.float() for name, tensor in exact_tensors.items()}
    lower = Sampling(64, precision=precision)
    single = log_p(vae, tensors, pixels(vae), ROWS, MEMBERS, Sampling(64))
    estimate = log_p(vae, tensors, pixels(vae), ROWS, MEMBERS, lower)
    assert 0 < float((single - estimate).abs().max()) < error
    exact = log_p(vae, exact_tensors, pixels(vae), ROWS, MEMBERS, Sampling(64))
    assert torch.equal(exact, log_p(vae, exact_tensors, pixels(vae), ROWS, MEMBERS, lower))


def test_tf32_keeps_eleven_bits() -> None:
    values = torch.tensor([1 + 2**-10, 1 + 2**-11, -1 - 2**-11 - 2**-20, 1 + 2**-12, torch.inf, torch.nan])
    expected = torch.tensor([1 + 2**-10, 1 + 2**-10, -1 - 2**-10, 1, torch.inf, torch.nan])
    torch.testing.assert_close(round_to_tf32(values), expected, atol=0, rtol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("samples", "chunk"),
    [*((9, [chunk]) for chunk in (Chunk(1, 1, 1), Chunk(4, 2, 3), Chunk(3, 9, 9), Chunk(9, 2, 100))), (600, [])],
)
def test_work_division_does_not_change_the_estimate(samples: int, chunk: list[Chunk]) -> None:
    """Chunks are given or, for many samples, chosen automatically; effective samples belong to each observation."""
    arguments = (SMALL, stack(SMALL, MODELS), pixels(SMALL), ROWS, MEMBERS, Sampling(samples))
    entire = estimate_log_density(*arguments, Chunk(N, N, samples))
    divided = estimate_log_density(*arguments, *chunk)
    torch.testing.assert_close(entire.log_p, divided.log_p, atol=1e-12, rtol=0)
    torch.testing.assert_close(entire.effective_samples, divided.effective_samples)
    assert entire.effective_samples is not None
    assert entire.effective_samples.shape == (MODELS, N)
    assert 1 <= float(entire.effective_samples.min()) < float(entire.effective_samples.max()) <= samples * (1 + 1e-12)
    assert torch.equal(log_p(*arguments, Chunk(N, N, samples)), entire.log_p)


@pytest.mark.parametrize(("refine", "atol"), [(0, 1e-12), (5, 1e-9)])
def test_estimate_is_independent_of_other_models_and_observations(refine: int, atol: float) -> None:
    tensors = misplaced_encoders(SMALL) if refine else stack(SMALL, MODELS)
    sampling = Sampling(9, refine=refine)
    arguments = (SMALL, tensors, pixels(SMALL), ROWS, MEMBERS, sampling)
    together = log_p(*arguments)
    one = {name: tensor[1:2] for name, tensor in tensors.items()}
    rows = [4, 2]
    alone = log_p(SMALL, one, pixels(SMALL)[rows], ROWS[rows], MEMBERS[1:2], sampling)
    torch.testing.assert_close(together[1:2, rows], alone, atol=atol, rtol=0)
    torch.testing.assert_close(together, log_p(*arguments, Chunk(3, 2, 4)), atol=atol, rtol=0)


class Linear:
    """z ~ N(0, I), x = W z + b + N(0, s^2): an autoencoder with known distributions.

    x is N(b, W W^T + s^2 I). If the columns of W are orthogonal, z given x is N(S W^T (x - b) / s^2, S) with the
    diagonal S = 1 / (1 + W^T W / s^2).
    """

    preparation = Logit((1, 4, 1))
    latent = 2

    @cached_property
    def weights(self) -> Mapping[str, Weight]:
        return outline_weights(self)

    def encode(self, layers: Layers, x: Tensor) -> tuple[Tensor, Tensor]:
        mean = layers.dense("encoder", x, 2, ZERO)
        return mean, layers.weight("log_variance", (2,), ZERO)[:, None].expand_as(mean)

    def decode(self, layers: Layers, z: Tensor) -> Gaussian:
        return Gaussian(layers.dense("decoder", z, 4, ZERO), layers.weight("scale", (1,), ZERO)[:, None])


def linear(models: int, widened: float) -> tuple[dict[str, Tensor], Distribution]:
    """The tensors, with encoder deviations `widened` times the posterior's, and the distribution of x."""
    w = torch.tensor([[1, 2], [-1, 1], [0.5, 1], [0.5, -3]], dtype=F64)
    assert (w.T @ w)[0, 1] == 0
    b = torch.tensor([0.3, -0.2, 0.1, 0.5], dtype=F64)
    s2 = torch.tensor([0.4], dtype=F64)
    of_z = 1 / (1 + w.square().sum(0) / s2)
    a = of_z[:, None] * w.T / s2
    tensors = {
        "encoder.weight": a,
        "encoder.bias": -a @ b,
        "log_variance": (of_z * widened**2).log(),
        "decoder.weight": w,
        "decoder.bias": b,
        "scale": s2.log(),
    }
    x = torch.distributions.MultivariateNormal(b, w @ w.T + s2 * torch.eye(4, dtype=F64))
    return {name: tensor.expand(models, *tensor.shape) for name, tensor in tensors.items()}, x


@pytest.mark.parametrize("widened", [1, 1.3])
def test_density_of_linear_gaussian_autoencoder_is_exact(widened: float) -> None:
    vae = Linear()
    models = 400
    sampling = Sampling(64)
    tensors, distribution = linear(models, widened)
    members = torch.arange(models)
    estimate = log_p(vae, tensors, pixels(vae), ROWS, members, sampling)
    x = fixed_inputs(vae.preparation, pixels(vae), observation_keys(0, ROWS), F64)
    exact = distribution.log_prob(x) + vae.preparation.to_pixels(x)
    if widened == 1:  # then every weight is p(x)
        torch.testing.assert_close(exact.expand(models, -1), estimate, atol=1e-10, rtol=0)
    ratios = (estimate - exact).exp()  # an estimate of p(x) has no bias
    error = ratios.std(0) / math.sqrt(models)
    assert bool(((ratios.mean(0) - 1).abs() <= 4.5 * error + 1e-10).all())
    assert float(error.max()) < 0.01


def test_estimate_rises_to_density_with_more_samples() -> None:
    vae = Linear()
    models = 2000
    widened = 1.5
    tensors, distribution = linear(models, widened)
    members = torch.arange(models)
    x = fixed_inputs(vae.preparation, pixels(vae), observation_keys(0, ROWS), F64)
    exact = distribution.log_prob(x) + vae.preparation.to_pixels(x)
    gaps = []
    errors = []
    for samples in (1, 4, 16):
        below = exact - log_p(vae, tensors, pixels(vae), ROWS, members, Sampling(samples))
        gaps.append(float(below.mean()))
        errors.append(float(below.std()) / math.sqrt(models * N))
    # With one code it is the evidence lower bound: the gap is the divergence of the encoder from the posterior,
    # (c^2 - 1 - 2 log c) / 2 in each of two dimensions.
    assert abs(gaps[0] - (widened**2 - 1 - 2 * math.log(widened))) < 4 * errors[0]
    # With N codes the gap is the relative variance of a weight over 2 N.
    variance = widened**4 / (2 * widened**2 - 1) - 1
    assert gaps[-1] == pytest.approx(variance / (2 * 16), rel=0.1, abs=4 * errors[-1])
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] > 3 * errors[-1]


def values(*log_values: float) -> Callable[[slice], Tensor]:
    return lambda part: torch.tensor([list(log_values)], dtype=F64)[:, part]


@pytest.mark.parametrize("at_once", [1, 2, 3, 4])
def test_running_mean_in_log_space_is_exact(at_once: int) -> None:
    assert math.log((1 + 2 + 3 + 4) / 4) == pytest.approx(
        float(mean_of(values(0, math.log(2), math.log(3), math.log(4)), 4, at_once)[0]), abs=1e-14
    )
    assert 5000 + math.log(2 / 4) == pytest.approx(
        float(mean_of(values(5000, -math.inf, 5000, -5000), 4, at_once)[0]), abs=1e-10
    )


@pytest.mark.parametrize("at_once", [1, 3])
def test_zero_weights_give_minus_infinity_and_nan_remains(at_once: int) -> None:
    assert -math.inf == float(mean_of(values(-math.inf, -math.inf, -math.inf), 3, at_once)[0])
    assert math.isnan(float(mean_of(values(0, math.nan, 0), 3, at_once)[0]))


def test_impossible_observation_does_not_affect_its_neighbours() -> None:
    tensors = stack(SMALL, 1)
    tensors["decoder3.bias"][0, 27] = -math.inf  # this pixel is never 1
    black = torch.zeros(1, 36, dtype=torch.uint8)
    white = torch.full((1, 36), 255, dtype=torch.uint8)
    arguments = (SMALL, tensors, torch.cat([black, white]), ROWS[:2], MEMBERS[:1], Sampling(9))
    estimate = log_p(*arguments, Chunk(2, 2, 2))
    assert -math.inf == estimate[0, 1]
    assert -100 < float(estimate[0, 0]) < 0


def test_zero_samples_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^samples is 0; it must be at least 1$"):
        Sampling(0)


@pytest.mark.parametrize("at_once", [1, 2, 3, 4])
@pytest.mark.parametrize("shift", [0.0, -7000.0, 7000.0])
def test_effective_number_ranges_from_one_to_all(at_once: int, shift: float) -> None:
    def effective(*log_values: float) -> float:
        return float(mean_of(values(*(log_value + shift for log_value in log_values)), 4, at_once)[1])

    assert pytest.approx(effective(1, 1, 1, 1)) == 4
    assert pytest.approx(effective(0, 900, 1, 2)) == 1
    assert pytest.approx(effective(3, -math.inf, 3, -900)) == 2
    # (1 + 2 + 3 + 4)^2 / (1 + 4 + 9 + 16)
    assert pytest.approx(effective(0, math.log(2), math.log(3), math.log(4))) == 100 / 30
    assert effective(-math.inf, -math.inf, -math.inf, -math.inf) == 0


@pytest.mark.parametrize("widened", [1.0, 1.5])
def test_every_sample_counts_if_encoder_is_posterior(widened: float) -> None:
    # For z from N(0, c^2) instead of N(0, 1), in two dimensions, E[w]^2 / E[w^2] = (2 c^2 - 1) / c^4.
    vae = Linear()
    samples = 1000
    members = torch.arange(20)
    effective_samples = estimate_log_density(
        vae, linear(20, widened)[0], pixels(vae), ROWS, members, Sampling(samples)
    ).effective_samples
    assert effective_samples is not None
    expected = samples * (2 * widened**2 - 1) / widened**4
    assert expected == pytest.approx(float(effective_samples.mean()), rel=1e-9 if widened == 1 else 0.02)


def misplaced_encoders(vae: Vae) -> dict[str, Tensor]:
    """Models whose encoders place every code far from the posterior."""
    tensors = stack(vae, MODELS)
    last = "encoder3" if isinstance(vae, Dense) else "posterior"
    bias = next(name for name in tensors if name.startswith(last) and "bias" in name)
    tensors[bias] = tensors[bias] + 2.0
    return tensors


@pytest.mark.parametrize("vae", [SMALL, NARROW["cifar10"]], ids=["dense", "convolutional"])
def test_fitted_codes_raise_effective_samples(vae: Vae) -> None:
    arguments = vae, misplaced_encoders(vae), pixels(vae), ROWS, MEMBERS
    plain = estimate_log_density(*arguments, Sampling(64, refine=0))
    fitted = estimate_log_density(*arguments, Sampling(64, refine=60))
    assert fitted.effective_samples is not None
    assert plain.effective_samples is not None
    assert plain.encoder_effective_samples is None
    assert torch.equal(plain.effective_samples, fitted.encoder_effective_samples)
    assert (fitted.effective_samples > 2 * plain.effective_samples).double().mean() > 0.7


def test_fitted_codes_approach_estimate_of_many_samples() -> None:
    arguments = SMALL, misplaced_encoders(SMALL), pixels(SMALL), ROWS, MEMBERS
    plain = estimate_log_density(*arguments, Sampling(64, refine=0))
    fitted = estimate_log_density(*arguments, Sampling(64, refine=60))
    exact = estimate_log_density(*arguments, Sampling(10_000)).log_p
    assert float((fitted.log_p - exact).abs().mean()) < float((plain.log_p - exact).abs().mean())


def test_zero_refinement_steps_keep_the_estimate() -> None:
    arguments = SMALL, misplaced_encoders(SMALL), pixels(SMALL), ROWS, MEMBERS
    assert torch.equal(log_p(*arguments, Sampling(9)), log_p(*arguments, Sampling(9, refine=0)))
    with pytest.raises(ValueError, match="refine is -1; it must be at least 0"):
        Sampling(refine=-1)


def test_tensors_from_inference_mode_can_be_fitted() -> None:
    tensors = misplaced_encoders(SMALL)
    arguments = pixels(SMALL), ROWS, MEMBERS, Sampling(9, refine=3)
    with torch.inference_mode():
        inside = log_p(SMALL, {name: tensor.clone() for name, tensor in tensors.items()}, *arguments)
    assert torch.equal(inside, log_p(SMALL, tensors, *arguments))
