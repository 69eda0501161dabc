"""The fully connected autoencoder's negative evidence lower bound with its gradients written out, for one model.

Two of `tasks.models.perceptron` in a row, whose gradients are written out to spare a processor autograd's recording.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from tasks.models import perceptron
from tasks.models.likelihoods import Bernoulli, divergence
from tasks.models.matmul import MatMul
from tasks.models.perceptron import Perceptron

# From rows' negative bounds (n,) to the losses computed from them, and each loss's gradient in its bound.
Through = Callable[[Tensor], tuple[Tensor, Tensor]]


def halves(tensors: Mapping[str, Tensor]) -> tuple[Perceptron, Perceptron]:
    """Weight and bias of each layer of the encoder and of the decoder, first to last."""
    count = len(tensors) // 4
    encoder, decoder = (
        [(tensors[f"{half}{number}.weight"], tensors[f"{half}{number}.bias"]) for number in range(1, count + 1)]
        for half in ("encoder", "decoder")
    )
    return encoder, decoder


def negative_bound(
    tensors: Mapping[str, Tensor],
    x: Tensor,
    noise: Tensor,
    shares: Tensor,
    by: MatMul,
    through: Through | None = None,
) -> tuple[Tensor, list[Tensor]]:
    """The rows' negative bounds, weighted by their `shares` (n,) and added up, and its gradient in every tensor.

    KL(q(z | x) || p(z)) - log p(x | z) for binary images x (n, pixels), with z = mean + deviation * noise (n, latent).
    With `through`, the losses that it makes of the bounds are weighted and added up instead.
    """
    encoder, decoder = halves(tensors)
    inner = perceptron.activations(encoder, x, by)
    mean, log_variance = inner[-1].chunk(2, 1)
    deviation = log_variance.mul(0.5).exp_()
    outer = perceptron.activations(decoder, torch.addcmul(mean, deviation, noise), by)
    logits = outer[-1]
    losses = divergence(mean, log_variance) - Bernoulli(logits[None]).log_p(x[None])[0]
    scale = shares[:, None]
    if through is not None:
        losses, in_bounds = through(losses)
        scale = scale * in_bounds[:, None]

    gradient = logits.sigmoid_().sub_(x).mul_(scale)
    of_decoder, gradient = perceptron.with_first(decoder, outer, gradient, by)
    of_code = by.row_gradient(gradient, decoder[0][0])
    of_mean = torch.addcmul(of_code, mean, scale)
    of_log_variance = torch.addcmul(log_variance.expm1().mul_(scale), of_code, noise * deviation).mul_(0.5)
    of_encoder = perceptron.gradients(encoder, inner, torch.cat([of_mean, of_log_variance], 1), by)
    return losses @ shares, [*of_encoder, *of_decoder]
