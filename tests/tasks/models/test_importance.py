"""Codes that are fitted to each observation: nearer to the posterior, and of that observation alone."""

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
from tasks.models.vae import LATENT, Convolutional, Dense, Vae, celeba, cifar10, outline_weights
from tests.tasks.models.plain import Plain, stack

MODELS, N = 3, 5
F64 = torch.float64
SMALL = Dense(Binary((6, 6, 1), padding=1), 3, (7, 5))
MEMBERS = torch.tensor([11, 12, 13])
ROWS = torch.tensor([40, 7, 3, 1000, 8])
NARROW = {"celeba": replace(celeba(), filters=2), "cifar10": replace(cifar10(), filters=2)}
Autoencoder = Dense | Convolutional


def log_p(*given: Any) -> Tensor:
    return estimate_log_density(*given).log_p


def pixels(vae: Vae, n: int = N) -> Tensor:
    stream = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (n, math.prod(vae.preparation.shape)), dtype=torch.uint8, generator=stream)


def plainly(vae: Autoencoder, tensors: dict[str, Tensor], sampling: Sampling) -> Tensor:
    """Every code's weight by torch.distributions, all at once, one model and observation after another."""
    found = torch.empty(MODELS, N, dtype=F64)
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
            found[m, i] = torch.logsumexp(weights, 0) - math.log(sampling.samples)
        found[m] += vae.preparation.to_pixels(x)
    return found.detach()


@pytest.mark.parametrize("afresh", [True, False])
@pytest.mark.parametrize("vae", [SMALL, NARROW["celeba"], NARROW["cifar10"]], ids=["small", *NARROW])
def test_an_estimate_is_the_plain_definitions(vae: Autoencoder, afresh: bool) -> None:
    tensors, sampling = stack(vae, MODELS), Sampling(9, seed=4, afresh=afresh)
    expected = plainly(vae, tensors, sampling)
    found = log_p(vae, tensors, pixels(vae), ROWS, MEMBERS, sampling)
    assert found.shape == (MODELS, N)
    torch.testing.assert_close(expected, found, atol=1e-10, rtol=1e-14)
    alike = [len(view.unique()) for view in (observation_keys(4, ROWS), found)]
    assert alike == [N, MODELS * N]


def test_float32_is_within_a_ten_thousandth_of_a_nat() -> None:
    tensors, sampling = stack(SMALL, MODELS), Sampling(64)
    single = {name: tensor.float() for name, tensor in tensors.items()}
    exact, found = (log_p(SMALL, each, pixels(SMALL), ROWS, MEMBERS, sampling) for each in (tensors, single))
    assert float((exact - found).abs().max()) < 1e-4


def test_bfloat16_is_near() -> None:
    tensors = {name: tensor.float() for name, tensor in stack(SMALL, MODELS).items()}
    both = [
        log_p(SMALL, tensors, pixels(SMALL), ROWS, MEMBERS, replace(Sampling(64), decoder=decoder))  # type: ignore[arg-type]
        for decoder in ("as trained", "bfloat16")
    ]
    assert 0 < float((both[0] - both[1]).abs().max()) < 0.02


@pytest.mark.parametrize(
    ("samples", "chunk"),
    [*((9, [each]) for each in (Chunk(1, 1, 1), Chunk(4, 2, 3), Chunk(3, 9, 9), Chunk(9, 2, 100))), (600, [])],
)
def test_how_the_work_is_cut_makes_no_difference(samples: int, chunk: list[Chunk]) -> None:
    """By hand or, where it is more than fits a cache, by itself; an effective number is each observation's own."""
    given = (SMALL, stack(SMALL, MODELS), pixels(SMALL), ROWS, MEMBERS, Sampling(samples))
    whole, cut = estimate_log_density(*given, Chunk(N, N, samples)), estimate_log_density(*given, *chunk)
    torch.testing.assert_close(whole.log_p, cut.log_p, atol=1e-12, rtol=0)
    torch.testing.assert_close(whole.effective_samples, cut.effective_samples)
    assert whole.effective_samples is not None
    assert whole.effective_samples.shape == (MODELS, N)
    assert 1 <= float(whole.effective_samples.min()) < float(whole.effective_samples.max()) <= samples * (1 + 1e-12)
    assert torch.equal(log_p(*given, Chunk(N, N, samples)), whole.log_p)


@pytest.mark.parametrize(("refine", "atol"), [(0, 1e-12), (5, 1e-9)])
def test_an_estimate_depends_on_no_other_model_or_observation(refine: int, atol: float) -> None:
    tensors, sampling = lost(SMALL) if refine else stack(SMALL, MODELS), Sampling(9, refine=refine)
    given = (SMALL, tensors, pixels(SMALL), ROWS, MEMBERS, sampling)
    together = log_p(*given)
    one = {name: tensor[1:2] for name, tensor in tensors.items()}
    some = [4, 2]
    alone = log_p(SMALL, one, pixels(SMALL)[some], ROWS[some], MEMBERS[1:2], sampling)
    torch.testing.assert_close(together[1:2, some], alone, atol=atol, rtol=0)
    torch.testing.assert_close(together, log_p(*given, Chunk(3, 2, 4)), atol=atol, rtol=0)


class Linear:
    """z ~ N(0, I), x = W z + b + N(0, s^2): an autoencoder of which everything is known.

    x is N(b, W W^T + s^2 I). Where the columns of W are orthogonal, z given x is N(S W^T (x - b) / s^2, S) with the
    diagonal S = 1 / (1 + W^T W / s^2).
    """

    preparation, latent = Logit((1, 4, 1)), 2

    @cached_property
    def weights(self) -> Mapping[str, Weight]:
        return outline_weights(self)

    def encode(self, layers: Layers, x: Tensor) -> tuple[Tensor, Tensor]:
        mean = layers.dense("encoder", x, 2, ZERO)
        return mean, layers.weight("log_variance", (2,), ZERO)[:, None].expand_as(mean)

    def decode(self, layers: Layers, z: Tensor) -> Gaussian:
        return Gaussian(layers.dense("decoder", z, 4, ZERO), layers.weight("scale", (1,), ZERO)[:, None])


def linear(models: int, widened: float) -> tuple[dict[str, Tensor], Distribution]:
    """Its tensors, the encoder's deviations `widened` beyond the true posterior's; and the distribution of x."""
    w = torch.tensor([[1, 2], [-1, 1], [0.5, 1], [0.5, -3]], dtype=F64)
    assert (w.T @ w)[0, 1] == 0
    b, s2 = torch.tensor([0.3, -0.2, 0.1, 0.5], dtype=F64), torch.tensor([0.4], dtype=F64)
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
def test_the_density_of_a_linear_gaussian_autoencoder_is_the_known_one(widened: float) -> None:
    vae, models, sampling = Linear(), 400, Sampling(64)
    tensors, distribution = linear(models, widened)
    members = torch.arange(models)
    found = log_p(vae, tensors, pixels(vae), ROWS, members, sampling)
    x = fixed_inputs(vae.preparation, pixels(vae), observation_keys(0, ROWS), F64)
    known = distribution.log_prob(x) + vae.preparation.to_pixels(x)
    if widened == 1:  # then every weight is p(x)
        torch.testing.assert_close(known.expand(models, -1), found, atol=1e-10, rtol=0)
    ratios = (found - known).exp()  # an estimate of p(x) has no bias
    error = ratios.std(0) / math.sqrt(models)
    assert bool(((ratios.mean(0) - 1).abs() <= 4.5 * error + 1e-10).all())
    assert float(error.max()) < 0.01


def test_an_estimate_is_a_lower_bound_that_rises_to_the_density_with_more_samples() -> None:
    vae, models, widened = Linear(), 2000, 1.5
    tensors, distribution = linear(models, widened)
    members = torch.arange(models)
    x = fixed_inputs(vae.preparation, pixels(vae), observation_keys(0, ROWS), F64)
    known = distribution.log_prob(x) + vae.preparation.to_pixels(x)
    gaps, errors = [], []
    for samples in (1, 4, 16):
        below = known - log_p(vae, tensors, pixels(vae), ROWS, members, Sampling(samples))
        gaps.append(float(below.mean()))
        errors.append(float(below.std()) / math.sqrt(models * N))
    # Of one code it is the evidence lower bound: below by the divergence of the encoder's normal from the posterior,
    # (c^2 - 1 - 2 log c) / 2 in each of two dimensions.
    assert abs(gaps[0] - (widened**2 - 1 - 2 * math.log(widened))) < 4 * errors[0]
    # Of many it is below by the variance of a weight relative to its mean, over 2 N.
    variance = widened**4 / (2 * widened**2 - 1) - 1
    assert gaps[-1] == pytest.approx(variance / (2 * 16), rel=0.1, abs=4 * errors[-1])
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] > 3 * errors[-1]


def values(*log_values: float) -> Callable[[slice], Tensor]:
    return lambda part: torch.tensor([list(log_values)], dtype=F64)[:, part]


@pytest.mark.parametrize("at_once", [1, 2, 3, 4])
def test_a_running_mean_in_log_space_is_the_mean(at_once: int) -> None:
    assert math.log((1 + 2 + 3 + 4) / 4) == pytest.approx(
        float(mean_of(values(0, math.log(2), math.log(3), math.log(4)), 4, at_once)[0]), abs=1e-14
    )
    assert 5000 + math.log(2 / 4) == pytest.approx(
        float(mean_of(values(5000, -math.inf, 5000, -5000), 4, at_once)[0]), abs=1e-10
    )


@pytest.mark.parametrize("at_once", [1, 3])
def test_no_weight_at_all_is_minus_infinity_and_not_a_number_stays_one(at_once: int) -> None:
    assert -math.inf == float(mean_of(values(-math.inf, -math.inf, -math.inf), 3, at_once)[0])
    assert math.isnan(float(mean_of(values(0, math.nan, 0), 3, at_once)[0]))


def test_an_impossible_observation_has_minus_infinity_and_its_neighbours_what_they_had() -> None:
    tensors = stack(SMALL, 1)
    tensors["decoder3.bias"][0, 27] = -math.inf  # this pixel is never 1
    black, white = torch.zeros(1, 36, dtype=torch.uint8), torch.full((1, 36), 255, dtype=torch.uint8)
    given = (SMALL, tensors, torch.cat([black, white]), ROWS[:2], MEMBERS[:1], Sampling(9))
    found = log_p(*given, Chunk(2, 2, 2))
    assert -math.inf == found[0, 1]
    assert -100 < float(found[0, 0]) < 0


def test_a_sampling_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^samples is 0; it must be at least 1$"):
        Sampling(0)


@pytest.mark.parametrize("at_once", [1, 2, 3, 4])
@pytest.mark.parametrize("shift", [0.0, -7000.0, 7000.0])
def test_the_effective_number_is_all_of_equal_weights_and_one_of_a_weight_that_outweighs_all(
    at_once: int, shift: float
) -> None:
    def effective(*log_values: float) -> float:
        return float(mean_of(values(*(each + shift for each in log_values)), 4, at_once)[1])

    assert pytest.approx(effective(1, 1, 1, 1)) == 4
    assert pytest.approx(effective(0, 900, 1, 2)) == 1
    assert pytest.approx(effective(3, -math.inf, 3, -900)) == 2
    # (1 + 2 + 3 + 4)^2 / (1 + 4 + 9 + 16)
    assert pytest.approx(effective(0, math.log(2), math.log(3), math.log(4))) == 100 / 30
    assert effective(-math.inf, -math.inf, -math.inf, -math.inf) == 0


@pytest.mark.parametrize("widened", [1.0, 1.5])
def test_where_the_encoder_is_the_posterior_every_sample_counts(widened: float) -> None:
    # Of z from N(0, c^2) in place of N(0, 1), in two dimensions, E[w]^2 / E[w^2] = (2 c^2 - 1) / c^4.
    vae, samples, members = Linear(), 1000, torch.arange(20)
    found = estimate_log_density(
        vae, linear(20, widened)[0], pixels(vae), ROWS, members, Sampling(samples)
    ).effective_samples
    assert found is not None
    expected = samples * (2 * widened**2 - 1) / widened**4
    assert expected == pytest.approx(float(found.mean()), rel=1e-9 if widened == 1 else 0.02)


def lost(vae: Vae) -> dict[str, Tensor]:
    """Models whose encoders put every code far from where its image is likely."""
    tensors = stack(vae, MODELS)
    last = "encoder3" if isinstance(vae, Dense) else "posterior"
    bias = next(name for name in tensors if name.startswith(last) and "bias" in name)
    tensors[bias] = tensors[bias] + 2.0
    return tensors


@pytest.mark.parametrize("vae", [SMALL, NARROW["cifar10"]], ids=["dense", "convolutional"])
def test_fitted_codes_count_for_more(vae: Vae) -> None:
    given = vae, lost(vae), pixels(vae), ROWS, MEMBERS
    plain, fitted = (estimate_log_density(*given, Sampling(64, refine=steps)) for steps in (0, 60))
    assert fitted.effective_samples is not None
    assert plain.effective_samples is not None
    assert plain.encoder_effective_samples is None
    assert torch.equal(plain.effective_samples, fitted.encoder_effective_samples)
    assert (fitted.effective_samples > 2 * plain.effective_samples).double().mean() > 0.7


def test_fitted_codes_are_nearer_to_the_log_p_that_many_of_the_encoders_find() -> None:
    given = SMALL, lost(SMALL), pixels(SMALL), ROWS, MEMBERS
    plain, fitted = (estimate_log_density(*given, Sampling(64, refine=steps)) for steps in (0, 60))
    exact = estimate_log_density(*given, Sampling(10_000)).log_p
    assert float((fitted.log_p - exact).abs().mean()) < float((plain.log_p - exact).abs().mean())


def test_no_step_leaves_the_estimate_as_it_was() -> None:
    given = SMALL, lost(SMALL), pixels(SMALL), ROWS, MEMBERS
    assert torch.equal(log_p(*given, Sampling(9)), log_p(*given, Sampling(9, refine=0)))
    with pytest.raises(ValueError, match="refine is -1; it must be at least 0"):
        Sampling(refine=-1)


def test_models_that_come_from_inference_mode_can_be_fitted() -> None:
    tensors = lost(SMALL)
    given = pixels(SMALL), ROWS, MEMBERS, Sampling(9, refine=3)
    with torch.inference_mode():
        inside = log_p(SMALL, {name: tensor.clone() for name, tensor in tensors.items()}, *given)
    assert torch.equal(inside, log_p(SMALL, tensors, *given))
