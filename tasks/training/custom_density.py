"""Training a user's own model of the density of images; its log densities and samples."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasks.models.counter_rng import CounterRng, site_key, step_keys
from tasks.models.density_module import density_module_of
from tasks.models.dequantisation import Shape
from tasks.models.importance import Estimated, Sampling, model_inputs
from tasks.models.layers import Layers, Mode, Weight
from tasks.training.objective import Batch

ESTIMATED, DRAWN = -6, -7  # sites for the keys of log densities and of images, beside those of our own models
BLOCK = 128  # observations whose log densities draw from one seed, and rows evaluated at a time


class CustomDensity:
    """A user's own model learns the density of images (height, width, channels).

    The loss of an image is the module's `loss`, or -log_prob, in nats, of what it sees of the image in this draw. A
    minibatch's loss is the sum. Labels are not used. `tasks.models.density_module` describes what a module must do.
    """

    total = True

    captures_padding = False

    def __init__(self, name: str, shape: Shape) -> None:
        self.model = density_module_of(name, shape)
        self.preparation = self.model.preparation

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def stackable(self) -> bool:
        return self.model.stackable

    @property
    def capturable(self) -> bool:
        # Nothing in a step that vmap can compute depends on values, or on torch's generator.
        return self.stackable

    @property
    def weights(self) -> Mapping[str, Weight]:
        return self.model.weights

    def initial(self, seed: int) -> Mapping[str, NDArray[np.float32]]:
        return self.model.module.initial(seed)

    def losses(self, tensors: Mapping[str, Tensor], batch: Batch) -> Tensor:
        images, _ = self._model_inputs(tensors, batch)
        return self.model.losses(Layers(tensors, batch.mode), images).to(images.dtype)

    def evaluate_rows(self, tensors: Mapping[str, Tensor], batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Each row's loss in evaluation, from the one draw that the batch's mode names. Nothing is classified.

        At most 128 rows at a time: a module that takes many samples of each row takes memory for all of them.
        """
        images, keys = self._model_inputs(tensors, batch)
        losses = []
        for start in range(0, images.shape[1], BLOCK):
            mode = Mode(draws=CounterRng(step_keys(keys, torch.full_like(keys, start))))
            losses.append(self.model.losses(Layers(tensors, mode), images[:, start : start + BLOCK]))
        return torch.cat(losses, 1).to(images.dtype), None

    def _model_inputs(self, tensors: Mapping[str, Tensor], batch: Batch) -> tuple[Tensor, Tensor]:
        """The batch as the models see it, (models, rows, channels, height, width), and the keys of its draws."""
        draws, dtype = batch.mode.draws, next(iter(tensors.values())).dtype
        if draws is None:
            raise ValueError("what is seen is a draw: the batch's mode has no draws")
        return self._images(
            self.preparation.to_model_inputs(batch.pixels, draws, dtype, batch.mode.training)
        ), draws.keys

    def estimate_log_density(
        self, tensors: Mapping[str, Tensor], pixels: Tensor, rows: Tensor, members: Tensor, sampling: Sampling
    ) -> Estimated:
        """The module's log_prob; how it is estimated is its own affair."""
        return Estimated(self.log_p(tensors, pixels, rows, members, sampling), None)

    def log_p(
        self, tensors: Mapping[str, Tensor], pixels: Tensor, rows: Tensor, members: Tensor, sampling: Sampling
    ) -> Tensor:
        """The module's log_prob of what it sees, converted to bytes. ValueError where it is NaN or inf.

        Rows are evaluated in blocks of 128 by their numbers. Random numbers come from a seed of the model and the
        block, and a row has its place in the block even where the others are missing; so an estimate does not depend on
        the rows estimated beside it. Of `sampling`, only the view bears on a user's module.
        """
        dtype = next(iter(tensors.values())).dtype
        log_p = torch.empty(len(members), len(pixels), dtype=torch.float64, device=pixels.device)
        numbers = rows // BLOCK
        with torch.no_grad():  # inference mode would take autograd from modules that need it for a log density
            for number in torch.unique(numbers).tolist():
                part = (numbers == number).nonzero()[:, 0]
                x = model_inputs(self.preparation, pixels[part], rows[part], members, sampling, dtype)
                images = self._images(x).expand(len(members), *[-1] * 4)
                draws = CounterRng(step_keys(members ^ site_key(ESTIMATED), torch.full_like(members, number)))
                seen_log_p = self._log_prob(Layers(tensors, Mode(draws=draws)), images, rows[part] % BLOCK)
                log_p[:, part] = seen_log_p.double() + self.preparation.to_pixels(x.double())
        self._check(log_p, rows)
        return log_p

    def _log_prob(self, layers: Layers, images: Tensor, places: Tensor) -> Tensor:
        """log_prob of images (models, rows, channels, height, width) at these places (rows,) of their block."""
        if not self.model.log_prob.random(training=False):
            return self.model.log_prob.compute(layers, images)
        whole = images[:, :1].expand(-1, BLOCK, -1, -1, -1).clone()
        whole[:, places] = images
        return self.model.log_prob.compute(layers, whole)[:, places]

    def _check(self, log_p: Tensor, rows: Tensor) -> None:
        wrong = log_p.isnan() | log_p.isposinf()
        if wrong.any():
            model, place = wrong.nonzero()[0].tolist()
            value = float(log_p[model, place])
            raise ValueError(f"{self.model.log_prob.whose} makes {value} of observation {int(rows[place])}")

    def _images(self, x: Tensor) -> Tensor:
        """(models, rows, features) as (models, rows, channels, height, width)."""
        return torch.unflatten(x, 2, self.preparation.seen_shape)

    def check_drawn(self) -> None:
        self.model.check_samples()

    def sample(self, tensors: Mapping[str, Tensor], members: Tensor, count: int) -> Tensor:
        """Samples of the module as pixels: (models, count, height * width * channels) in [0, 1]."""
        keys = (members ^ site_key(DRAWN)).tolist()
        weights = [{name: tensor[model].detach() for name, tensor in tensors.items()} for model in range(len(keys))]
        return torch.stack([self.model.samples(own, count, key) for own, key in zip(weights, keys, strict=True)])
