"""Training a variational autoencoder by the evidence lower bound; its log densities and samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasks.models import importance
from tasks.models.counter_rng import CounterRng
from tasks.models.importance import Estimated, Sampling
from tasks.models.layers import Layers, Mode, Weight, initial
from tasks.models.likelihoods import divergence
from tasks.models.manual_gradients import Through, autoencoder_bound
from tasks.models.matmul import products
from tasks.models.vae import LATENT, Dense, Vae
from tasks.training.objective import Batch

DRAWN = -5  # the place for draws of codes from the prior, beside that of tasks.models.vae
DECODED = 1024  # codes at a time


class Elbo:
    """A variational autoencoder learns the density of images.

    The loss of an image is KL(q(z | x) || p(z)) - log p(x | z) in nats, with one z of q: the negative of a lower bound
    on log p(x), where x is what the model sees of the image in this draw (`vae.preparation`). A minibatch's loss is the
    sum. Labels are not used. Random numbers come from the batch's mode. Kingma & Welling 2014, eq. 10.
    """

    total = True

    stackable = capturable = captures_padding = True

    def __init__(self, vae: Vae) -> None:
        self.vae = vae

    @property
    def name(self) -> str:
        return self.vae.name

    @property
    def weights(self) -> Mapping[str, Weight]:
        return self.vae.weights

    def initial(self, seed: int) -> Mapping[str, NDArray[np.float32]]:
        return initial(self.weights, seed)

    def losses(self, tensors: Mapping[str, Tensor], batch: Batch) -> Tensor:
        return self.layer_losses(Layers(tensors, batch.mode), batch)

    def layer_losses(self, layers: Layers, batch: Batch) -> Tensor:
        """Each row's loss, (models, rows), computed through the given layers, of whatever kind."""
        draws = drawn_from(batch)
        return self.negative_bounds(layers, self.model_inputs(batch, dtype_of(layers.tensors)), draws)

    def model_inputs(self, batch: Batch, dtype: torch.dtype) -> Tensor:
        """What the models see of a batch in its draw: (models, rows, features), the same at every call."""
        return self.vae.preparation.to_model_inputs(batch.pixels, drawn_from(batch), dtype, batch.mode.training)

    def negative_bounds(self, layers: Layers, x: Tensor, draws: CounterRng) -> Tensor:
        """The negative bound of every image as the models see it, (models, rows)."""
        mean, log_variance = self.vae.encode(layers, x)
        z = torch.addcmul(mean, log_variance.mul(0.5).exp(), draws.normal(LATENT, mean.shape[1:], x.dtype))
        return divergence(mean, log_variance) - self.vae.decode(layers, z).log_p(x)

    def evaluate_rows(self, tensors: Mapping[str, Tensor], batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Each row's loss in evaluation, from the one draw that the batch's mode names. Nothing is classified."""
        return self.losses(tensors, batch), None

    def manual_gradient(
        self,
        tensors: Mapping[str, Tensor],
        pixels: Tensor,
        labels: Tensor,  # noqa: ARG002
        shares: Tensor,
        draws: CounterRng,
    ) -> tuple[Tensor, Sequence[Tensor]] | None:
        """The loss and gradients of the fully connected network; None for any other."""
        if not isinstance(self.vae, Dense):
            return None
        x = self.vae.preparation.to_model_inputs(pixels[None], draws, dtype_of(tensors), training=True)[0]
        return self.gradients(tensors, x, shares, draws)

    def gradients(
        self,
        tensors: Mapping[str, Tensor],
        x: Tensor,
        shares: Tensor,
        draws: CounterRng,
        through: Through | None = None,
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """The result of `manual_gradient` for images as one model sees them; the losses are the negative bounds."""
        noise = draws.normal(LATENT, (len(x), self.vae.latent), x.dtype)[0]
        return autoencoder_bound(tensors, x, noise, shares, products(x.device, x.dtype), through)

    def log_p(
        self, tensors: Mapping[str, Tensor], pixels: Tensor, rows: Tensor, members: Tensor, sampling: Sampling
    ) -> Tensor:
        """log p by importance sampling, (models, n)."""
        return self.estimate_log_density(tensors, pixels, rows, members, sampling).log_p

    def estimate_log_density(
        self, tensors: Mapping[str, Tensor], pixels: Tensor, rows: Tensor, members: Tensor, sampling: Sampling
    ) -> Estimated:
        """log p by importance sampling: see `tasks.models.importance`."""
        return importance.estimate_log_density(self.vae, tensors, pixels, rows, members, sampling)

    def check_drawn(self) -> None:
        """Codes of the prior can always be decoded."""

    def sample(self, tensors: Mapping[str, Tensor], members: Tensor, count: int) -> Tensor:
        """The decoder's means for codes from the prior: (models, count, height * width * channels) in [0, 1]."""
        codes = CounterRng(members).normal(DRAWN, (count, self.vae.latent), dtype_of(tensors))
        layers = Layers(tensors, Mode(training=False))
        with torch.inference_mode():
            parts = [
                self.vae.preparation.displayed_pixels(self.vae.decode(layers, some).mean)
                for some in torch.split(codes, DECODED, 1)
            ]
        return torch.cat(parts, 1)


def drawn_from(batch: Batch) -> CounterRng:
    """The random numbers of a batch; ValueError where its mode has none."""
    if batch.mode.draws is None:
        raise ValueError("a bound is of a draw: the batch's mode has no draws")
    return batch.mode.draws


def dtype_of(tensors: Mapping[str, Tensor]) -> torch.dtype:
    return next(iter(tensors.values())).dtype
