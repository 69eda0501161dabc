"""Train a user's density model of images, such as a flow or a diffusion model with a bound.

`package.module:factory` names a function. factory(shape), with shape (channels, height, width), returns a
torch.nn.Module. Images are float32 (rows, channels, height, width), and densities and losses are in nats:

    log_prob(images) -> (rows,)   log density of the inputs, or an estimate or bound of it
    loss(images) -> (rows,)       training loss, summed over a minibatch; -log_prob(images) by default
    sample(count) -> images       (count, channels, height, width), like the inputs; without it, no samples are drawn
    sees = "dequantised"          conversion of a byte to an input

`sees`, `loss` and `sample` are optional. The input for a byte is drawn again in every training step:

- "dequantised": (byte + u) / 256, u uniform, in (0, 1);
- "binary": 1 with probability byte / 255, else 0;
- "logit": logit(0.05 + 0.9 (byte + u) / 256).

This module converts log densities of inputs to log densities of bytes by the change of variables; log_prob must not. In
evaluation, every observation has one fixed input, either shared by all models or one per model.

Random numbers come from torch's generator on the device of the images. It is seeded for the initial weights, for each
training step, for `sample`, and for log_prob of each block of 128 observations (rows 0 to 127 of the data set, 128 to
255, ...), separately for each model, so that no result depends on other computations. Register the module's constants
as buffers, which move to the device and are stored with the weights. In evaluation mode, rows must be independent, at
most 128 at a time. Several models are trained in one pass if torch.vmap yields the same results as single models, and
if the module draws no random numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tasks.models.counter_rng import CounterRng, site_key, step_keys
from tasks.models.factory_import import one_line
from tasks.models.importance import Estimated, Sampling, model_inputs
from tasks.models.layers import Layers, Mode, Weight
from tasks.models.likelihoods import Binary, Dequantised, Logit, Preparation, Shape
from tasks.models.modules import TRIED, Method, Module, drawing, kind
from tasks.training.objective import Batch

SEES: Mapping[str, Callable[[Shape], Preparation]] = {
    "dequantised": Dequantised,
    "binary": lambda shape: Binary(shape, padding=0),
    "logit": lambda shape: Logit(shape, mirrored=False),
}
SAMPLED = 256  # samples drawn at a time


class DensityModule:
    """The density model that a user's factory returns for images (height, width, channels).

    The model is tested on a few images. Raises ValueError if it cannot be used.
    """

    def __init__(self, text: str, shape: Shape) -> None:
        height, width, channels = shape
        self.name = text
        self.module = Module(text, (channels, height, width))
        self.preparation = self._preparation(shape)
        trial_inputs = self._trial(shape)
        if not self._can("log_prob"):
            raise ValueError(f"network {text} has no method log_prob(images)")
        self.log_prob = Method(self.module, "log_prob", "log densities", trial_inputs, chancy=True)
        if self.log_prob.tried.isposinf().any():
            raise ValueError(f"{self.log_prob.subject} returns inf for {TRIED} images; densities must be finite")
        own_loss = self._can("loss")
        if own_loss:
            self._loss = Method(self.module, "loss", "losses", trial_inputs, chancy=True)
        else:
            self._loss = self.log_prob
        self._loss.check_gradients()

    @property
    def weights(self) -> Mapping[str, Weight]:
        """Every tensor of the module."""
        return self.module.weights

    @property
    def stackable(self) -> bool:
        """Whether several models can be trained in one pass."""
        return self._loss.stackable

    def losses(self, layers: Layers, images: Tensor) -> Tensor:
        """Return the training losses (models, rows) of inputs (models, rows, channels, height, width)."""
        outputs = self._loss.compute(layers, images)
        return -outputs if self._loss is self.log_prob else outputs

    def check_samples(self) -> None:
        """Raise ValueError unless the module can draw samples."""
        if not self._can("sample"):
            raise ValueError(f"network {self.name} has no method sample(count), which drawing samples requires")
        tensors = {}
        for name, values in self.module.initial(0).items():
            tensors[name] = torch.from_numpy(values)
        if not torch.equal(self.samples(tensors, TRIED, 0), self.samples(tensors, TRIED, 0)):
            raise ValueError(f"network {self.name}: sample does not follow torch's seed; draw with torch alone")

    def samples(self, tensors: Mapping[str, Tensor], count: int, seed: int) -> Tensor:
        """Draw images (count, height * width * channels) in [0, 1] from one model with tensors of shape (*shape)."""
        parts = []
        with drawing(seed, next(iter(tensors.values())).device), torch.no_grad():
            for start in range(0, count, SAMPLED):
                parts.append(self._sample(tensors, min(SAMPLED, count - start)))
        return self.preparation.displayed_pixels(torch.cat(parts)[None].flatten(2))[0].clamp(0, 1)

    def _sample(self, tensors: Mapping[str, Tensor], count: int) -> Tensor:
        try:
            images = self.module.apply("sample", tensors, False, count)[0]
        except Exception as error:
            raise ValueError(f"network {self.name}: sample failed on {count}: {one_line(error)}") from error
        expected = (count, *self.preparation.seen_shape)
        shape = tuple(images.shape) if isinstance(images, Tensor) else kind(images)
        if not isinstance(images, Tensor) or shape != expected:
            raise ValueError(f"network {self.name}: sample returns {shape} for {count}; expected images {expected}")
        if images.isnan().any():
            raise ValueError(f"network {self.name}: sample returns NaN")
        return images

    def _can(self, name: str) -> bool:
        return callable(self.module.attribute(name))

    def _preparation(self, shape: Shape) -> Preparation:
        scale = self.module.attribute("sees", "dequantised")
        if not isinstance(scale, str) or scale not in SEES:
            raise ValueError(f"network {self.name}: sees is {scale!r}; it must be one of {', '.join(SEES)}")
        return SEES[scale](shape)

    def _trial(self, shape: Shape) -> Tensor:
        """Return random bytes, converted to inputs of the module."""
        stream = torch.Generator().manual_seed(0)
        pixels = torch.randint(256, (1, TRIED, shape[0] * shape[1] * shape[2]), dtype=torch.uint8, generator=stream)
        model_input = self.preparation.to_model_inputs(
            pixels, CounterRng(torch.zeros(1, dtype=torch.int64)), torch.float32
        )
        return torch.unflatten(model_input[0], 1, self.preparation.seen_shape)


@cache
def density_module_of(name: str, shape: Shape) -> DensityModule:
    """Return the density model of this name, which is built and tested once per process."""
    return DensityModule(name, shape)


ESTIMATED = -6  # random number sites of log densities and samples
DRAWN = -7  # in addition to those of built-in models
BLOCK = 128  # observations whose log densities share a seed, and rows evaluated at a time


class CustomDensity:
    """The objective of a user's density model of images (height, width, channels).

    The loss of an image is the module's `loss`, or -log_prob, of its input in this draw, in nats. The loss of a
    minibatch is the sum. Labels are not used. The docstring of this file describes the requirements on a module.
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
        # A step that vmap can compute depends on neither values nor torch's generator.
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
        """Return each row's evaluation loss, with inputs drawn by the batch's mode, and no classification.

        At most 128 rows are evaluated at a time, since a module that draws many samples per row needs memory for all of
        them.
        """
        images, keys = self._model_inputs(tensors, batch)
        losses = []
        for start in range(0, images.shape[1], BLOCK):
            mode = Mode(draws=CounterRng(step_keys(keys, torch.full_like(keys, start))))
            losses.append(self.model.losses(Layers(tensors, mode), images[:, start : start + BLOCK]))
        return torch.cat(losses, 1).to(images.dtype), None

    def _model_inputs(self, tensors: Mapping[str, Tensor], batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the models' inputs (models, rows, channels, height, width) and the keys of their draws."""
        draws = batch.mode.draws
        dtype = next(iter(tensors.values())).dtype
        if draws is None:
            raise ValueError("inputs are random, but the batch's mode has no draws")
        return self._images(
            self.preparation.to_model_inputs(batch.pixels, draws, dtype, batch.mode.training)
        ), draws.keys

    def estimate_log_density(
        self, tensors: Mapping[str, Tensor], pixels: Tensor, rows: Tensor, members: Tensor, sampling: Sampling
    ) -> Estimated:
        """Return the module's log_prob, which may be any estimate."""
        return Estimated(self.log_p(tensors, pixels, rows, members, sampling), None)

    def log_p(
        self, tensors: Mapping[str, Tensor], pixels: Tensor, rows: Tensor, members: Tensor, sampling: Sampling
    ) -> Tensor:
        """Return the module's log_prob, converted to a density of bytes. Raises ValueError for NaN and inf.

        Rows are evaluated in blocks of 128, according to their numbers. Random numbers come from a seed of the model
        and the block, and a row keeps its position in the block even if other rows are missing, so that an estimate
        does not depend on other rows. A user's module uses only the view of `sampling`.
        """
        dtype = next(iter(tensors.values())).dtype
        log_p = torch.empty(len(members), len(pixels), dtype=torch.float64, device=pixels.device)
        numbers = rows // BLOCK
        with torch.no_grad():  # inference mode would disable autograd, which some modules use for a log density
            for number in torch.unique(numbers).tolist():
                part = (numbers == number).nonzero()[:, 0]
                x = model_inputs(self.preparation, pixels[part], rows[part], members, sampling, dtype)
                images = self._images(x).expand(len(members), *[-1] * 4)
                draws = CounterRng(step_keys(members ^ site_key(ESTIMATED), torch.full_like(members, number)))
                seen_log_p = self._log_prob(Layers(tensors, Mode(draws=draws)), images, rows[part] % BLOCK)
                log_p[:, part] = seen_log_p.double() + self.preparation.to_pixels(x.double())
        self._check(log_p, rows)
        return log_p

    def _log_prob(self, layers: Layers, images: Tensor, positions: Tensor) -> Tensor:
        """Return log_prob of images (models, rows, channels, height, width) at these positions (rows,) of a block."""
        if not self.model.log_prob.random(training=False):
            return self.model.log_prob.compute(layers, images)
        full_block = images[:, :1].expand(-1, BLOCK, -1, -1, -1).clone()
        full_block[:, positions] = images
        return self.model.log_prob.compute(layers, full_block)[:, positions]

    def _check(self, log_p: Tensor, rows: Tensor) -> None:
        is_invalid = log_p.isnan() | log_p.isposinf()
        if is_invalid.any():
            model, position = is_invalid.nonzero()[0].tolist()
            value = float(log_p[model, position])
            raise ValueError(f"{self.model.log_prob.subject} returns {value} for observation {int(rows[position])}")

    def _images(self, x: Tensor) -> Tensor:
        """Reshape (models, rows, features) to (models, rows, channels, height, width)."""
        return torch.unflatten(x, 2, self.preparation.seen_shape)

    def check_drawn(self) -> None:
        self.model.check_samples()

    def sample(self, tensors: Mapping[str, Tensor], members: Tensor, count: int) -> Tensor:
        """Draw samples from the module as pixels (models, count, height * width * channels) in [0, 1]."""
        keys = (members ^ site_key(DRAWN)).tolist()
        weights = []
        for model in range(len(keys)):
            weights.append({name: tensor[model].detach() for name, tensor in tensors.items()})
        return torch.stack(
            [self.model.samples(model_weights, count, key) for model_weights, key in zip(weights, keys, strict=True)]
        )
