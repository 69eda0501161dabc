"""Learning to generate images, by the evidence lower bound of a variational autoencoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasks.models import autoencoder
from tasks.models.draws import Draws
from tasks.models.layers import Layers, Weight, initial
from tasks.models.likelihoods import divergence
from tasks.models.products import products
from tasks.models.vae import LATENT, Dense, Vae
from tasks.training.learning import Batch


class Generation:
    """A variational autoencoder learns the density of images.

    The loss of an image is KL(q(z | x) || p(z)) - log p(x | z) in nats, with one z of q: the negative of a lower bound
    on log p(x), where x is what the model sees of the image in this draw (`vae.preparation`). A minibatch's is the sum.
    Kingma & Welling 2014, eq. 10. Labels bear on nothing. What is random comes from the batch's mode.
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
        draws, dtype = batch.mode.draws, next(iter(tensors.values())).dtype
        if draws is None:
            raise ValueError("a bound is of a draw: the batch's mode has no draws")
        layers = Layers(tensors, batch.mode)
        x = self.vae.preparation.seen(batch.pixels, draws, dtype, batch.mode.training)
        mean, log_variance = self.vae.encode(layers, x)
        z = torch.addcmul(mean, log_variance.mul(0.5).exp(), draws.normal(LATENT, mean.shape[1:], dtype))
        return divergence(mean, log_variance) - self.vae.decode(layers, z).log_p(x)

    def assessed(self, tensors: Mapping[str, Tensor], batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Each row's loss in evaluation, of the one draw that the batch's mode names. Nothing is classified."""
        return self.losses(tensors, batch), None

    def by_hand(
        self,
        tensors: Mapping[str, Tensor],
        pixels: Tensor,
        labels: Tensor,  # noqa: ARG002
        shares: Tensor,
        draws: Draws,
    ) -> tuple[Tensor, Sequence[Tensor]] | None:
        """The fully connected network's."""
        if not isinstance(self.vae, Dense):
            return None
        dtype = tensors["encoder1.weight"].dtype
        x = self.vae.preparation.seen(pixels[None], draws, dtype, training=True)[0]
        noise = draws.normal(LATENT, (len(x), self.vae.latent), dtype)[0]
        return autoencoder.negative_bound(tensors, x, noise, shares, products(pixels.device, dtype))
