"""Estimate the log density of observations under variational autoencoders by importance sampling.

log p(x) = log (1 / N) sum over n of p(x | z_n) p(z_n) / q(z_n | x), with z_n drawn from the encoder's q(z | x). Its
expectation is a lower bound that rises to log p(x) with N. Burda et al. 2016, "Importance weighted autoencoders", eq.
8; van den Burg & Williams 2021, eq. 9.

The weights w_n = p(x | z_n) p(z_n) / q(z_n | x) show how reliable a sum is: the effective number of samples, (sum of
w)^2 / (sum of w^2), is N if all weights are equal and 1 if one weight dominates. Kong 1992, "A note on importance
sampling using standardized weights"; Owen 2013, "Monte Carlo theory, methods and examples", section 9.3.

Each pair of a model and an observation has its own key for drawing codes, so an estimate depends neither on other
estimates nor on how the work is divided. The sum is a running log-sum-exp over chunks, and only the codes of one chunk
are decoded at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import torch
from torch import Tensor

from tasks.contract.ranges import AtLeast, Ranged
from tasks.models.counter_rng import CounterRng, site_key, step_keys
from tasks.models.layers import Layers
from tasks.models.likelihoods import Preparation, divergence, fixed_inputs, observation_keys
from tasks.models.manual_gradients import halves
from tasks.models.tf32 import Tf32Layers
from tasks.models.vae import LATENT, Dense, Vae
from tasks.numerics.precision import DecoderPrecision

if TYPE_CHECKING:
    from tasks.models.decoder_kernels import Decoder

Codes = tuple[Tensor, Tensor]  # means and log variances of q(z | x), each (models, n, latent)

# Rows that a CPU encodes and decodes at a time, so that their values stay in its cache.
ENCODED = 64
DECODED = 1024


@dataclass(frozen=True)
class Sampling(Ranged):
    """How log densities are estimated.

    `seed` determines the draws for an observation (its binary pixels, or the noise on its bytes). They are the same for
    all models, unless they are drawn `afresh` for each model, as published. The encoder's codes are first fitted to
    each observation in `refine` steps.

    `precision` is that of the decoder's products; all other operations use float32. In float32, the largest error of an
    estimate on 256 MNIST images was 3e-5 nats, with a mean of -107 nats. In bfloat16, the error was 0.03 nats (root
    mean square; 0.12 at most), compared with a Monte Carlo deviation of 0.8 for 256 samples. Estimates with weights in
    float64, which tests use, ignore `precision`.
    """

    samples: Annotated[int, AtLeast(1)] = 256
    seed: int = 0
    afresh: bool = False
    precision: DecoderPrecision = "float32"
    refine: Annotated[int, AtLeast(0)] = 0


@dataclass(frozen=True, eq=False)
class Estimated:
    """Log densities in nats, and the effective numbers of samples of their estimates, (models, n) float64.

    The effective numbers are from 1 to the number of samples, 0 if all weights are zero, and None without sampling. If
    codes were fitted to each observation, `encoder_effective_samples` are the effective numbers with the encoder's
    codes. `way` is how codes were decoded: "triton" by GPU kernels (`tasks.models.decoder_kernels`), or "torch".
    """

    log_p: Tensor
    effective_samples: Tensor | None
    encoder_effective_samples: Tensor | None = None
    way: str = "torch"


@dataclass(frozen=True)
class Chunk:
    """The amount of work that is computed at a time for every model."""

    encoded: int  # observations that are encoded
    points: int  # of these, observations whose codes are decoded
    samples: int  # codes per observation


def estimate_log_density(
    vae: Vae,
    tensors: Mapping[str, Tensor],
    pixels: Tensor,
    rows: Tensor,
    members: Tensor,
    sampling: Sampling,
    chunk: Chunk | None = None,
) -> Estimated:
    """Estimate the log density of every observation's bytes under every model, and its effective number of samples.

    Both are (models, n) float64, the former in nats. `tensors` are (models, *shape) and `pixels` (n, height * width *
    channels) uint8. `rows` (n,) int64 are the observations' numbers in their data set, and `members` (models,) int64
    are the models' keys. Both select streams of random numbers. The log density is -inf if all weights of an
    observation are zero.
    """
    models = len(members)
    n = len(pixels)
    dtype = next(iter(tensors.values())).dtype
    fused = fused_decoder(vae, tensors, sampling.precision)
    chunk = chunk or fitting(pixels.device, models, n, sampling.samples, vae, fused is not None)
    decoder = decoder_layers(tensors, sampling.precision)
    log_densities = torch.empty(models, n, dtype=torch.float64, device=pixels.device)
    effective = torch.empty_like(log_densities)
    unfitted = torch.empty_like(log_densities) if sampling.refine else None
    with torch.inference_mode():
        for start in range(0, n, chunk.encoded):
            part = slice(start, start + chunk.encoded)
            x = model_inputs(vae.preparation, pixels[part], rows[part], members, sampling, dtype)
            keys = code_keys(members, rows[part])
            codes = vae.encode(Layers(tensors), x.expand(models, -1, -1))

            def average_chunks(codes: Codes, x: Tensor = x, keys: Tensor = keys) -> tuple[Tensor, Tensor]:
                if fused is None:
                    weights = _log_weights(vae, codes, decoder, x, keys, sampling)
                else:
                    weights = _fused_log_weights(fused, codes, x, keys)
                parts = []
                for first in range(0, x.shape[1], chunk.points):
                    parts.append(
                        mean_of(partial(weights, slice(first, first + chunk.points)), sampling.samples, chunk.samples)
                    )
                return torch.cat([mean for mean, _ in parts], 1), torch.cat([number for _, number in parts], 1)

            if unfitted is not None:
                unfitted[:, part] = average_chunks(codes)[1]
                codes = refine(vae, Layers(tensors), x, *codes, keys, sampling.refine)
            log_densities[:, part], effective[:, part] = average_chunks(codes)
            log_densities[:, part] += vae.preparation.to_pixels(x)
    return Estimated(log_densities, effective, unfitted, "torch" if fused is None else "triton")


def code_keys(members: Tensor, rows: Tensor) -> Tensor:
    """Return the keys (models, n) for the codes of every model (models,) and observation (n,).

    They are distinct from the keys used in training.
    """
    return step_keys((members ^ site_key(LATENT))[:, None], rows)


def fused_decoder(vae: Vae, tensors: Mapping[str, Tensor], precision: DecoderPrecision) -> Decoder | None:
    """Return the decoders as GPU kernels, or None if torch has to compute them.

    Kernels require a GPU, Triton, a fully connected network and float32 weights.
    """
    first = next(iter(tensors.values()))
    if not (has_kernels(first.device) and isinstance(vae, Dense) and first.dtype == torch.float32):
        return None
    from tasks.models.decoder_kernels import Decoder, fits

    if not fits(math.prod(vae.preparation.seen_shape), precision):
        return None
    return Decoder(halves(tensors)[1], precision)


def has_kernels(device: torch.device) -> bool:
    """Return whether GPU kernels can run on this device. They require Triton, which comes with torch for CUDA."""
    return device.type == "cuda" and find_spec("triton") is not None


def decoder_layers(tensors: Mapping[str, Tensor], precision: DecoderPrecision) -> Layers:
    """Return layers whose products have this precision, or that of the tensors if they are float64."""
    first = next(iter(tensors.values()))
    if precision == "float32" or first.dtype == torch.float64:
        return Layers(tensors)
    if precision == "tf32":
        return Tf32Layers(tensors)
    return Layers({name: tensor.bfloat16() for name, tensor in tensors.items()})


def model_inputs(
    preparation: Preparation,
    pixels: Tensor,
    rows: Tensor,
    members: Tensor,
    sampling: Sampling,
    dtype: torch.dtype,
) -> Tensor:
    """Return the models' inputs (1, n, features), or (models, n, features) if each model has its own draws."""
    keys = observation_keys(sampling.seed, rows)
    if not sampling.afresh:
        return fixed_inputs(preparation, pixels, keys, dtype)[None]
    return torch.stack([fixed_inputs(preparation, pixels, step_keys(member, keys), dtype) for member in members])


def _log_weights(
    vae: Vae, q: Codes, decoder: Layers, x: Tensor, keys: Tensor, sampling: Sampling
) -> Callable[[slice, slice], Tensor]:
    """Return a function that computes log p(x | z) + log p(z) - log q(z | x) for slices of points and codes.

    Its results are (models, n, codes) float64. q contains the means and log variances of the codes, x is (models or 1,
    n, features) and `keys` is (models, n).
    """
    models, n = keys.shape
    mean, log_variance = q
    noise = (
        CounterRng(keys.flatten())
        .normal(LATENT, (sampling.samples, vae.latent), x.dtype)
        .view(models, n, -1, vae.latent)
    )
    z = torch.addcmul(mean[:, :, None], log_variance.mul(0.5).exp_()[:, :, None], noise)
    # The constants of the two normal densities cancel out.
    of_codes = 0.5 * (noise.square_() - z.square()).sum(-1, dtype=torch.float64)
    of_codes += 0.5 * log_variance.sum(-1, dtype=torch.float64)[:, :, None]
    codes = z.to(next(iter(decoder.tensors.values())).dtype)

    def weights_of(points: slice, samples: slice) -> Tensor:
        selected_codes = codes[:, points, samples]
        likelihood = vae.decode(decoder, selected_codes.flatten(1, 2)).log_p(x[:, points])
        return likelihood.view(selected_codes.shape[:3]) + of_codes[:, points, samples]

    return weights_of


def _fused_log_weights(decoder: Decoder, q: Codes, x: Tensor, keys: Tensor) -> Callable[[slice, slice], Tensor]:
    """Return the function of `_log_weights`, computed by GPU kernels with the same codes."""
    from tasks.models.decoder_kernels import draw_codes

    mean, log_variance = q

    def weights_of(points: slice, samples: slice) -> Tensor:
        codes, of_codes = draw_codes(
            *(keys[:, points], mean[:, points], log_variance[:, points]),
            *(LATENT, samples),
            rounded=decoder.precision == "tf32",
        )
        return of_codes.add_(decoder.log_likelihoods(x[:, points], codes))

    return weights_of


def mean_of(log_values: Callable[[slice], Tensor], count: int, at_once: int) -> tuple[Tensor, Tensor]:
    """Return the logarithm of the mean of exp(values), and the effective number, (sum of exp)^2 / sum of exp^2.

    Both are computed over `count` values on the last axis, in parts of `at_once`. The effective number is 0 if all
    values are -inf.
    """
    total: Tensor | None = None
    squares: Tensor | None = None
    for start in range(0, count, at_once):
        values = log_values(slice(start, min(start + at_once, count)))
        part = torch.logsumexp(values, -1)
        square = torch.logsumexp(2 * values, -1)
        total = part if total is None else torch.logaddexp(total, part)
        if squares is None:
            squares = square
        else:
            squares = torch.logaddexp(squares, square)
    assert total is not None
    assert squares is not None
    return total - math.log(count), (2 * total - squares).exp().masked_fill(total == -math.inf, 0.0)


def fitting(target_device: torch.device, models: int, n: int, samples: int, vae: Vae, is_fused: bool) -> Chunk:
    """Return the chunk size for this device, such that a chunk fits into a processor's cache or a GPU's free memory.

    GPU kernels store no logits and are fastest with all codes of an observation at once.
    """
    if target_device.type != "cuda":
        return Chunk(ENCODED, max(1, DECODED // samples), min(samples, DECODED))
    values = min(2**29, torch.cuda.mem_get_info(target_device)[0] // 64)
    if is_fused:
        assert isinstance(vae, Dense)
        at_once = max(1, min(n, values // (models * samples * 2 * max(vae.hidden))))
        return Chunk(max(at_once, min(n, 2048)), at_once, samples)
    points = max(1, min(n, 2048, values // (models * samples * vae.latent * 2)))
    of_a_code = models * points * math.prod(vae.preparation.seen_shape)
    return Chunk(points, points, max(1, min(samples, values // of_a_code)))


CODES = 4  # per observation and step; new ones are drawn in each step
RATE = 0.05  # learning rate of Adam
REFINED = -6  # random number site, distinct from those in tasks.models.vae and tasks.training.density_objective
VALUES = 2**25  # image values decoded at a time


def refine(
    vae: Vae, layers: Layers, x: Tensor, mean: Tensor, log_variance: Tensor, keys: Tensor, steps: int
) -> tuple[Tensor, Tensor]:
    """Fit the mean and log variance of every code, both (models, n, latent), with `steps` steps of Adam.

    A single encoder for all observations yields a poor q(z | x) for observations unlike the training data. Importance
    sampling from such a q is imprecise and underestimates log p. Gradient steps on the evidence lower bound of each
    single observation therefore move q's mean and log variance away from the encoder's values, so that log p depends
    only on the decoder. Cremer, Li & Duvenaud 2018, "Inference suboptimality in variational autoencoders", section 4
    (the amortisation gap; they run Adam until it no longer improves); Kim et al. 2018, "Semi-amortized variational
    autoencoders", algorithm 1.

    x is (models or 1, n, features), and `keys` (models, n) identify each observation's draws. The result for an
    observation depends neither on other observations nor on other models.
    """
    models, n, _ = mean.shape
    at_once = max(1, VALUES // (models * CODES * math.prod(vae.preparation.seen_shape)))
    # Autograd rejects tensors created in inference mode, but accepts copies made outside it.
    with torch.inference_mode(False), torch.enable_grad():
        frozen_layers = Layers({name: usable(tensor) for name, tensor in layers.tensors.items()})
        parts = []
        for start in range(0, n, at_once):
            batch = slice(start, start + at_once)
            first = mean[:, batch].clone(), log_variance[:, batch].clone()
            parts.append(_climb(vae, frozen_layers, x[:, batch].clone(), first, usable(keys[:, batch]), steps))
    return torch.cat([part[0] for part in parts], 1), torch.cat([part[1] for part in parts], 1)


def _climb(
    vae: Vae, layers: Layers, x: Tensor, first: tuple[Tensor, Tensor], keys: Tensor, steps: int
) -> tuple[Tensor, Tensor]:
    mean, log_variance = (parameter.requires_grad_() for parameter in first)
    models, n, latent = mean.shape
    # Adam updates each number independently, so a sum of bounds is equivalent to separate bounds.
    adam = torch.optim.Adam([mean, log_variance], lr=RATE)
    for step in range(steps):
        draws = CounterRng(step_keys(keys.flatten(), torch.full((models * n,), step, device=keys.device)))
        noise = draws.normal(REFINED, (CODES, latent), x.dtype).view(models, n, CODES, latent)
        z = torch.addcmul(mean[:, :, None], log_variance.mul(0.5).exp()[:, :, None], noise)
        likelihood = vae.decode(layers, z.flatten(1, 2)).log_p(x).view(models, n, CODES).mean(-1)
        bound = likelihood - divergence(mean, log_variance)
        mean.grad, log_variance.grad = torch.autograd.grad(-bound.sum(), (mean, log_variance))
        adam.step()
    return mean.detach(), log_variance.detach()


def usable(tensor: Tensor) -> Tensor:
    return tensor.clone() if tensor.is_inference() else tensor.detach()
