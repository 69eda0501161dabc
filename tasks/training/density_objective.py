"""Objectives for learning a density: their interface, variational autoencoders, and mixtures with an outlier component.

In a mixture, the network need not fit atypical images: for every code, a broad density of images has the share pi.

    p(x | z) = (1 - pi) p_vae(x | z) + pi p_broad(x)

Since the prior integrates to one, the density of images is the same mixture:

    p(x) = integral of p(z) p(x | z) dz = (1 - pi) p_vae(x) + pi p_broad(x)

Van den Burg & Williams 2021, "On memorization in probabilistic deep generative models", section 5, suggest the idea;
the mixture, its training and the broad density (`tasks.models.likelihoods`) were developed for Engram.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasks.datasets.images import Splits
from tasks.datasets.picture_rows import Sliceable, whole_split
from tasks.models import importance
from tasks.models.catalog import DensityModel
from tasks.models.counter_rng import CounterRng
from tasks.models.custom import is_own
from tasks.models.importance import Estimated, Sampling
from tasks.models.layers import Layers, Mode, Weight, initial
from tasks.models.likelihoods import OutlierDensity, divergence
from tasks.models.manual_gradients import Through, autoencoder_bound
from tasks.models.vae import LATENT, Dense, Vae, celeba, cifar10, mnist
from tasks.numerics.matmul import products
from tasks.training.custom_density import CustomDensity
from tasks.training.objective import Batch, Objective

DRAWN = -5  # random number site of codes drawn from the prior, in addition to the sites of tasks.models.vae
DECODED = 1024  # codes decoded at a time


class Elbo:
    """The objective of a variational autoencoder.

    The loss of an image is KL(q(z | x) || p(z)) - log p(x | z) in nats, with one z drawn from q, where x is the model's
    input for the image in this draw (`vae.preparation`). It is the negative of a lower bound on log p(x). The loss of a
    minibatch is the sum. Labels are not used. Random numbers come from the batch's mode. Kingma & Welling 2014, eq. 10.
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
        draws = drawn_from(batch)
        return self.negative_bounds(layers, self.model_inputs(batch, _dtype_of(layers.tensors)), draws)

    def model_inputs(self, batch: Batch, dtype: torch.dtype) -> Tensor:
        """Return the models' inputs for a batch in its draw, (models, rows, features).

        They are the same in every call.
        """
        return self.vae.preparation.to_model_inputs(batch.pixels, drawn_from(batch), dtype, batch.mode.training)

    def negative_bounds(self, layers: Layers, x: Tensor, draws: CounterRng) -> Tensor:
        """Return the negative bound of every input, (models, rows)."""
        mean, log_variance = (code.to(x.dtype) for code in self.vae.encode(layers, x))
        z = torch.addcmul(mean, log_variance.mul(0.5).exp(), draws.normal(LATENT, mean.shape[1:], x.dtype))
        return divergence(mean, log_variance) - self.vae.decode(layers, z).log_p(x)

    def evaluate_rows(self, tensors: Mapping[str, Tensor], batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Return each row's evaluation loss, from the draw of the batch's mode, and no classification."""
        return self.losses(tensors, batch), None

    def manual_gradient(
        self,
        tensors: Mapping[str, Tensor],
        pixels: Tensor,
        labels: Tensor,  # noqa: ARG002
        shares: Tensor,
        draws: CounterRng,
    ) -> tuple[Tensor, Sequence[Tensor]] | None:
        """Return the loss and gradients of the fully connected network, or None for any other network."""
        if not isinstance(self.vae, Dense):
            return None
        x = self.vae.preparation.to_model_inputs(pixels[None], draws, _dtype_of(tensors), training=True)[0]
        return self.gradients(tensors, x, shares, draws)

    def gradients(
        self,
        tensors: Mapping[str, Tensor],
        x: Tensor,
        shares: Tensor,
        draws: CounterRng,
        through: Through | None = None,
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """Return the result of `manual_gradient` for the inputs of one model. The losses are the negative bounds."""
        noise = draws.normal(LATENT, (len(x), self.vae.latent), x.dtype)[0]
        return autoencoder_bound(tensors, x, noise, shares, products(x.device, x.dtype), through)

    def estimate_log_density(
        self, tensors: Mapping[str, Tensor], pixels: Tensor, rows: Tensor, members: Tensor, sampling: Sampling
    ) -> Estimated:
        """Estimate log p by importance sampling: see `tasks.models.importance`."""
        return importance.estimate_log_density(self.vae, tensors, pixels, rows, members, sampling)

    def check_drawn(self) -> None:
        """Accept every model, since codes from the prior can always be decoded."""

    def sample(self, tensors: Mapping[str, Tensor], members: Tensor, count: int) -> Tensor:
        """Return the decoder's means (models, count, height * width * channels) in [0, 1] for codes from the prior."""
        codes = CounterRng(members).normal(DRAWN, (count, self.vae.latent), _dtype_of(tensors))
        layers = Layers(tensors, Mode(training=False))
        with torch.inference_mode():
            parts = []
            for part in torch.split(codes, DECODED, 1):
                parts.append(self.vae.preparation.displayed_pixels(self.vae.decode(layers, part).mean))
        return torch.cat(parts, 1)


def drawn_from(batch: Batch) -> CounterRng:
    """Return the random numbers of a batch. Raises ValueError if its mode has none."""
    if batch.mode.draws is None:
        raise ValueError("a bound requires a draw, but the batch's mode has none")
    return batch.mode.draws


def _dtype_of(tensors: Mapping[str, Tensor]) -> torch.dtype:
    return next(iter(tensors.values())).dtype


SEEN = 2**24  # image values processed at a time


# The share of its gradient that every image keeps. Initially, the broad density explains all images better (by 200 nats
# for 32 x 32 binary pixels), so without this share the network would never start to learn. Since Adam normalises
# gradients, training is as fast as usual while all images have only this share.
KEPT = 1e-3


class OutlierMixture:
    """The objective of a variational autoencoder mixed with a broad density of weight `outliers` in (0, 1).

    With B <= log p_vae(x) the evidence lower bound (Jensen), the loss of an image is, for a small c,

        -c log((1 - pi) exp(B)) - (1 - c) log((1 - pi) exp(B) + pi p_broad(x)) >= -log p(x),

    since the logarithm is monotonic. Its gradient with respect to -B is c + (1 - c) r, where r is the posterior
    probability that x is not an outlier. Images that the broad density explains better therefore hardly change the
    weights. As usual, B is estimated from one code, b. The loss is concave in b, so its mean over codes is below the
    loss of B, by r (1 - r) / 2 times the variance of b if that is small. For a share near 0, it is the autoencoder's
    loss. Both densities refer to the same input.
    """

    total = True

    def __init__(self, learned: Elbo, outliers: float, images: Sliceable) -> None:
        if not 0 < outliers < 1:
            raise ValueError(f"outliers is {outliers}; it must be between 0 and 1")
        self.learned = learned
        self.broad = OutlierDensity(learned.vae.preparation, images)
        self._log_typical = math.log1p(-outliers)
        self._log_outlier = math.log(outliers)

    stackable = Elbo.stackable
    capturable = Elbo.capturable
    captures_padding = Elbo.captures_padding

    @property
    def name(self) -> str:
        return f"{self.learned.name} with outliers"

    @property
    def weights(self) -> Mapping[str, Weight]:
        return self.learned.weights

    def initial(self, seed: int) -> Mapping[str, NDArray[np.float32]]:
        return self.learned.initial(seed)

    def losses(self, tensors: Mapping[str, Tensor], batch: Batch) -> Tensor:
        return self.layer_losses(Layers(tensors, batch.mode), batch)

    def layer_losses(self, layers: Layers, batch: Batch) -> Tensor:
        x = self.learned.model_inputs(batch, _dtype_of(layers.tensors))
        return self._losses(self.learned.negative_bounds(layers, x, drawn_from(batch)), self.broad.log_p(x))[0]

    def evaluate_rows(self, tensors: Mapping[str, Tensor], batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Return each row's evaluation loss, from the draw of the batch's mode, and no classification."""
        return self.losses(tensors, batch), None

    def manual_gradient(
        self,
        tensors: Mapping[str, Tensor],
        pixels: Tensor,
        labels: Tensor,  # noqa: ARG002
        shares: Tensor,
        draws: CounterRng,
    ) -> tuple[Tensor, Sequence[Tensor]] | None:
        """Return the loss and gradients of the fully connected network, or None for any other network."""
        if not isinstance(self.learned.vae, Dense):
            return None
        x = self.learned.vae.preparation.to_model_inputs(pixels[None], draws, _dtype_of(tensors), training=True)
        broad = self.broad.log_p(x)[0]
        return self.learned.gradients(tensors, x[0], shares, draws, lambda bounds: self._losses(bounds, broad))

    def estimate_log_density(
        self, tensors: Mapping[str, Tensor], pixels: Tensor, rows: Tensor, members: Tensor, sampling: Sampling
    ) -> Estimated:
        """Return the mixture of both densities of the bytes.

        The effective number of samples is that of the autoencoder's importance sampling, since the broad density is
        exact.
        """
        learned = self.learned.estimate_log_density(tensors, pixels, rows, members, sampling)
        log_p = learned.log_p
        preparation = self.learned.vae.preparation
        count = max(1, SEEN // (len(members) * math.prod(preparation.seen_shape)))
        with torch.inference_mode():
            for start in range(0, len(pixels), count):
                part = slice(start, start + count)
                x = importance.model_inputs(
                    preparation, pixels[part], rows[part], members, sampling, _dtype_of(tensors)
                )
                broad = self.broad.log_p(x.double()) + preparation.to_pixels(x)
                log_p[:, part] = self._log_mixture(log_p[:, part], broad)
        return Estimated(log_p, learned.effective_samples, learned.encoder_effective_samples, learned.way)

    def check_drawn(self) -> None:
        """Accept every model, since images are drawn from the autoencoder."""
        self.learned.check_drawn()

    def sample(self, tensors: Mapping[str, Tensor], members: Tensor, count: int) -> Tensor:
        """Draw images from the autoencoder, without the outlier component."""
        return self.learned.sample(tensors, members, count)

    def _losses(self, bounds: Tensor, broad: Tensor) -> tuple[Tensor, Tensor]:
        """Return the losses from negative bounds, and their gradients with respect to the bounds."""
        mixed = self._log_mixture(-bounds, broad)
        typical = (self._log_typical - bounds - mixed).exp()
        return KEPT * (bounds - self._log_typical) - (1 - KEPT) * mixed, KEPT + (1 - KEPT) * typical

    def _log_mixture(self, learned: Tensor, broad: Tensor) -> Tensor:
        """Return log((1 - pi) exp(learned) + pi exp(broad))."""
        return torch.logaddexp(learned + self._log_typical, broad + self._log_outlier)


WIDE: Mapping[str, Callable[[tuple[int, int, int], float], Vae]] = {"vae": mnist}  # available at any width
OURS: Mapping[str, Callable[[tuple[int, int, int]], Vae]] = {
    "vae": mnist,
    "conv-vae": cifar10,
    "conv-vae-one-scale": celeba,
}


class DensityObjective(Objective, Protocol):
    """An objective that learns a density. Tensors are (models, *shape), keyed by the names of `weights`."""

    def estimate_log_density(
        self, tensors: Mapping[str, Tensor], pixels: Tensor, rows: Tensor, members: Tensor, sampling: Sampling
    ) -> Estimated:
        """Return the log density of every image's bytes under every model, (models, n) float64, in nats.

        Also returns the effective numbers of samples of importance sampling. `pixels` are (n, height * width *
        channels) uint8. `rows` (n,) int64 are the images' numbers in their data set and `members` (models,) int64 the
        models' keys. Both select streams of random numbers.
        """

    def check_drawn(self) -> None:
        """Raise ValueError if the model cannot draw images."""

    def sample(self, tensors: Mapping[str, Tensor], members: Tensor, count: int) -> Tensor:
        """Draw images (models, count, height * width * channels) in [0, 1] from the models."""


def generative(model: DensityModel, images: Splits, outliers: float = 0.0, width: float = 1.0) -> DensityObjective:
    """Return the objective of this model for these images, with an outlier component of share `outliers`.

    Raises ValueError if the model does not support such images.
    """
    model.check(width)
    if is_own(model.name):
        if outliers:
            raise ValueError(
                f"outliers is {outliers}; it must be 0 for your own model, which may contain such a component"
            )
        return CustomDensity(str(model), images.shape)
    learned = Elbo(OURS[model.name](images.shape) if width == 1 else WIDE[model.name](images.shape, width))
    if outliers:
        return OutlierMixture(learned, outliers, whole_split(images.test))
    return learned
