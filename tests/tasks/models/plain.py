"""The same autoencoders as torch.nn.Modules, one model each, following table 1."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import torch
from torch import Tensor, nn

from tasks.models.layers import initial
from tasks.models.vae import Convolutional, Dense


class Plain(nn.Module):
    """Encoder and decoder, each from a row of features; the names of their tensors in our order."""

    def __init__(self, vae: Dense | Convolutional) -> None:
        super().__init__()
        self.vae = vae
        channels, height, width = vae.preparation.seen_shape
        if isinstance(vae, Dense):
            widths = (channels * height * width, *vae.hidden)
            ends = (2 * vae.latent, channels * height * width)
            self.encoder = nn.Sequential(*dense(widths), nn.Linear(widths[-1], ends[0]))
            self.decoder = nn.Sequential(*dense((vae.latent, *vae.hidden[::-1])), nn.Linear(widths[1], ends[1]))
        else:
            f = vae.filters
            self.encoder = nn.Sequential(
                nn.Unflatten(1, (channels, height, width)),
                nn.Conv2d(channels, f, 4, 2, 1, bias=False),
                nn.LeakyReLU(0.2),
                *(module for i in (1, 2, 4) for module in enc_block(i * f, 2 * i * f)),
                nn.Flatten(),
                nn.Linear(32 * f, 2 * vae.latent),
            )
            self.decoder = nn.Sequential(
                nn.Unflatten(1, (vae.latent, 1, 1)),
                *dec_block(vae.latent, 8 * f, 2, 1, 0),
                *(module for i in (8, 4, 2) for module in dec_block(i * f, i * f // 2, 4, 2, 1)),
                nn.ConvTranspose2d(f, channels if vae.one_scale else 2 * channels, 4, 2, 1, bias=False),
                nn.Flatten(),
            )
            if vae.one_scale:
                self.log_variance = nn.Parameter(torch.full((1,), -2.0))
        self.double()

    def bound(self, x: Tensor, noise: Tensor) -> Tensor:
        """The negative evidence lower bound of each row."""
        mean, log_variance = self.encoder(x).chunk(2, 1)
        posterior = torch.distributions.Normal(mean, (log_variance / 2).exp())
        z = mean + (log_variance / 2).exp() * noise
        prior = torch.distributions.Normal(torch.zeros_like(mean), torch.ones_like(mean))
        divergence = torch.distributions.kl_divergence(posterior, prior).sum(1)
        return divergence - self.likelihood(x, z)

    def likelihood(self, x: Tensor, z: Tensor) -> Tensor:
        """log p(x | z) of each row."""
        out = self.decoder(z)
        if isinstance(self.vae, Dense):
            return torch.distributions.Bernoulli(logits=out).log_prob(x).sum(1)
        if self.vae.one_scale:
            mean = out
            log_variance = self.log_variance
        else:
            mean, log_variance = out.chunk(2, 1)
            log_variance = log_variance.clamp(min=-7)
        return torch.distributions.Normal(mean, (log_variance / 2).exp()).log_prob(x).sum(1)

    def named(self) -> dict[str, Tensor]:
        """Its tensors in our order: ours are encoder, decoder, each layer's norm after its weight."""
        own_tensors = []
        for name, value in self.state_dict(keep_vars=True).items():
            if "num_batches" not in name:
                own_tensors.append((name, value))
        one_scale = [pair for pair in own_tensors if pair[0] == "log_variance"]
        return dict(
            zip(
                self.vae.weights,
                (value for _, value in [*(p for p in own_tensors if p not in one_scale), *one_scale]),
                strict=True,
            )
        )

    def start(self, tensors: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, value in self.named().items():
                value.copy_(tensors[name])


def dense(widths: tuple[int, ...]) -> list[nn.Module]:
    result = []
    for a, b in pairwise(widths):
        result.extend((nn.Linear(a, b), nn.ReLU()))
    return result


def enc_block(a: int, b: int) -> list[nn.Module]:
    return [nn.Conv2d(a, b, 4, 2, 1, bias=False), nn.BatchNorm2d(b), nn.LeakyReLU(0.2)]


def dec_block(a: int, b: int, kernel: int, stride: int, padding: int) -> list[nn.Module]:
    return [nn.ConvTranspose2d(a, b, kernel, stride, padding, bias=False), nn.BatchNorm2d(b), nn.ReLU()]


def stack(vae: Dense | Convolutional, models: int, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """The initial weights of several models side by side: (models, *shape)."""
    starts = [initial(vae.weights, seed) for seed in range(models)]
    result = {}
    for name in vae.weights:
        result[name] = torch.stack([torch.from_numpy(start[name]) for start in starts]).to(dtype)
    return result
