"""Fitting the codes of single observations: what an encoder leaves to be gained by not fitting each of them.

An encoder that answers for all observations gives each q(z | x) that it has learnt to give, and fits worse those that
it saw less like, or not at all. Importance sampling from such a q is rough and low. Here q's mean and log variance are
moved by gradient steps on the evidence lower bound of the one observation, from where the encoder put them, so that log
p is of the decoder.

Cremer, Li & Duvenaud 2018, "Inference suboptimality in variational autoencoders", section 4 (the amortisation gap;
theirs is Adam until it no longer gains); Kim et al. 2018, "Semi-amortized variational autoencoders", algorithm 1.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tasks.models.counter_rng import CounterRng, step_keys
from tasks.models.layers import Layers
from tasks.models.likelihoods import divergence
from tasks.models.vae import Vae

CODES = 4  # of each observation a step, drawn anew
RATE = 0.05  # of Adam
REFINED = -6  # the place for draws, beside those of tasks.models.vae and of tasks.training.density_objective
VALUES = 2**25  # of images decoded at a time


def refine(
    vae: Vae, layers: Layers, x: Tensor, mean: Tensor, log_variance: Tensor, keys: Tensor, steps: int
) -> tuple[Tensor, Tensor]:
    """The mean and log variance of every code after `steps` steps of Adam, both (models, n, latent).

    x is (models or 1, n, features), `keys` (models, n) name each observation's draws. What becomes of one depends
    neither on the other observations nor on the other models.
    """
    models, n, _ = mean.shape
    at_once = max(1, VALUES // (models * CODES * math.prod(vae.preparation.seen_shape)))
    # In autograd no tensor may come from inference mode; a copy made outside it does not.
    with torch.inference_mode(False), torch.enable_grad():
        given = Layers({name: usable(tensor) for name, tensor in layers.tensors.items()})
        parts = []
        for start in range(0, n, at_once):
            some = slice(start, start + at_once)
            first = mean[:, some].clone(), log_variance[:, some].clone()
            parts.append(climb(vae, given, x[:, some].clone(), first, usable(keys[:, some]), steps))
    return torch.cat([part[0] for part in parts], 1), torch.cat([part[1] for part in parts], 1)


def climb(
    vae: Vae, layers: Layers, x: Tensor, first: tuple[Tensor, Tensor], keys: Tensor, steps: int
) -> tuple[Tensor, Tensor]:
    mean, log_variance = (each.requires_grad_() for each in first)
    models, n, latent = mean.shape
    # Adam's steps are of each number by itself, so that a sum of bounds is as good as each bound alone.
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
